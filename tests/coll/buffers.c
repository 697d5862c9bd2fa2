#include "buffers.h"

#include <stdlib.h>
#include <string.h>

#define GUARD_BYTE 0xc3
#define POISON 0xa5

const char *const memory_names[MEMORIES] = {"shared", "private", "mixed"};

void buffers_open(rank *self, buffers *b, size_t bytes)
{
    b->bytes = bytes + 4 * GUARD;
    for (int i = 0; i < 2; i++) {
        void *memory;
        OK(self, ls_alloc(self->comm, b->bytes, &memory));
        b->place[SHARED][i] = memory;
        b->place[PRIVATE][i] = malloc(b->bytes);
        CHECK(self, b->place[PRIVATE][i] != NULL);
    }
}

void buffers_close(rank *self, buffers *b)
{
    for (int i = 0; i < 2; i++) {
        ls_free(self->comm, b->place[SHARED][i]);
        free(b->place[PRIVATE][i]);
    }
}

char *buffers_pick(const rank *self, const buffers *b, int memory, int which, size_t skew)
{
    if (memory == MIXED)
        memory = self->rank >> which & 1 ? PRIVATE : SHARED;
    return b->place[memory][which] + GUARD + skew;
}

void buffers_guard(char *at, size_t bytes)
{
    memset(at - GUARD, GUARD_BYTE, GUARD);
    memset(at + bytes, GUARD_BYTE, GUARD);
}

void buffers_poison(char *at, size_t bytes)
{
    memset(at, POISON, bytes);
    buffers_guard(at, bytes);
}

void buffers_check_guard(rank *self, const char *at, size_t bytes)
{
    unsigned char guard[GUARD];
    memset(guard, GUARD_BYTE, sizeof guard);
    CHECK(self, !memcmp(at - GUARD, guard, GUARD), "written before the buffer");
    CHECK(self, !memcmp(at + bytes, guard, GUARD), "written past the buffer");
}
