/* Seats and tables: text, and a sorted array. */
#include "launch/seat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lsi_seat_print(const lsi_seat *s, char text[LSI_SEAT_TEXT])
{
    snprintf(text, LSI_SEAT_TEXT, "%llu %d %d %d %llu %llu %d %d %s",
             (unsigned long long)s->generation, s->ready, s->busy, s->leaving,
             (unsigned long long)s->state, (unsigned long long)s->brought, s->fed, s->hungry,
             s->address);
}

int lsi_seat_parse(uint64_t id, const char *text, lsi_seat *out)
{
    unsigned long long generation, state, brought;
    lsi_seat s = {.id = id};
    char format[64];
    snprintf(format, sizeof format, "%%llu %%d %%d %%d %%llu %%llu %%d %%d %%%ds",
             LSI_ADDR_MAX - 1);
    const int n = sscanf(text, format, &generation, &s.ready, &s.busy, &s.leaving, &state, &brought,
                         &s.fed, &s.hungry, s.address);
    if (n < 8 || s.ready < 0 || s.ready > LSI_MAX_RANKS || s.busy < 0 || s.busy > LSI_MAX_RANKS)
        return 0;
    s.generation = generation;
    s.state = state;
    s.brought = brought;
    *out = s;
    return 1;
}

size_t lsi_table_print(const lsi_table *t, char *text)
{
    const size_t room = (size_t)LSI_MAX_HOSTS * 24;
    size_t used = (size_t)snprintf(text, room, "%d", t->stop);
    for (int h = 0; h < t->hosts && used < room; h++)
        used += (size_t)snprintf(text + used, room - used, " %llu:%d", (unsigned long long)t->id[h],
                                 t->size[h]);
    return used < room ? used : room - 1;
}

/* Digits alone, up to `most`; what follows them, or NULL. */
static const char *parse_number(const char *text, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !errno && *out <= most ? end : NULL;
}

int lsi_table_parse(uint64_t generation, const char *text, lsi_table *out)
{
    lsi_table t = {.generation = generation};
    uint64_t stop, n, sum = 0;
    const char *at = parse_number(text, 1, &stop);
    for (; at && *at == ' ' && t.hosts < LSI_MAX_HOSTS; t.hosts++) {
        uint64_t *id = &t.id[t.hosts];
        at = parse_number(at + 1, UINT64_MAX, id);
        if (!at || *at != ':' || (t.hosts && *id <= id[-1]))
            return 0;
        at = parse_number(at + 1, LSI_MAX_RANKS, &n);
        t.size[t.hosts] = (int)n;
        sum += n;
        if (!n)
            return 0;
    }
    if (!at || *at || !t.hosts || sum > LSI_MAX_RANKS)
        return 0;
    t.stop = (int)stop;
    *out = t;
    return 1;
}

void lsi_limits_parse(lsi_council *c, const char *text)
{
    int least, most;
    char transport[sizeof c->transport];
    if (sscanf(text, "%d %d %7s", &least, &most, transport) != 3 || least < 1 || most < 1 ||
        most > LSI_MAX_RANKS)
        return;
    if (strcmp(transport, "auto") && strcmp(transport, "shm") && strcmp(transport, "tcp"))
        return;
    c->least = least;
    c->most = most;
    memcpy(c->transport, transport, sizeof transport);
}

static void put_sorted(lsi_seat *seats, int *n, const lsi_seat *seat)
{
    int i = 0;
    while (i < *n && seats[i].id < seat->id)
        i++;
    if (i == *n || seats[i].id != seat->id) {
        if (*n == LSI_MAX_HOSTS)
            return;
        memmove(&seats[i + 1], &seats[i], (size_t)(*n - i) * sizeof *seats);
        ++*n;
    }
    seats[i] = *seat;
}

static int has(const lsi_seat *seats, int n, uint64_t id)
{
    for (int i = 0; i < n; i++)
        if (seats[i].id == id)
            return 1;
    return 0;
}

/* Of those that were ever heard of, the oldest that is not here. */
static void forget_one(lsi_council *c)
{
    int i = 0;
    while (i < c->n_known && has(c->seats, c->n_seats, c->known[i].id))
        i++;
    if (i == c->n_known)
        return;
    c->n_known--;
    memmove(&c->known[i], &c->known[i + 1], (size_t)(c->n_known - i) * sizeof *c->known);
}

void lsi_seats_put(lsi_council *c, const lsi_seat *seat)
{
    put_sorted(c->seats, &c->n_seats, seat);
    if (c->n_known == LSI_MAX_HOSTS && !has(c->known, c->n_known, seat->id))
        forget_one(c);
    put_sorted(c->known, &c->n_known, seat);
}

int lsi_seats_drop(lsi_council *c, uint64_t id)
{
    for (int i = 0; i < c->n_seats; i++) {
        if (c->seats[i].id != id)
            continue;
        memmove(&c->seats[i], &c->seats[i + 1], (size_t)(c->n_seats - i - 1) * sizeof *c->seats);
        c->n_seats--;
        return 1;
    }
    return 0;
}
