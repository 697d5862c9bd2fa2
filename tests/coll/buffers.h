/* A rank's send and receive buffers, in shared and in private memory, with guards around them. */
#ifndef LS_TEST_BUFFERS_H
#define LS_TEST_BUFFERS_H

#include "ranks.h"

#define GUARD 64 /* bytes before and after a buffer that must not change */

/* MIXED: it depends on the rank. */
enum { SHARED, PRIVATE, MIXED, MEMORIES };
enum { SEND, RECV };
extern const char *const memory_names[MEMORIES];

typedef struct buffers {
    char *place[2][2]; /* [SHARED or PRIVATE][SEND or RECV] */
    size_t bytes;
} buffers;

void buffers_open(rank *self, buffers *b, size_t bytes);
void buffers_close(rank *self, buffers *b);
/* The buffer to use, `skew` bytes from an aligned address. */
char *buffers_pick(const rank *self, const buffers *b, int memory, int which, size_t skew);

/* Poison [at, at + bytes) and set the guards around it. */
void buffers_poison(char *at, size_t bytes);
/* Set the guards only. */
void buffers_guard(char *at, size_t bytes);
void buffers_check_guard(rank *self, const char *at, size_t bytes);

#endif
