/* An all-reduce of private memory through rooms in the segment, in tree order.
 *
 * Each member owns a segment of the vector, as in board_reduce.c. Pieces of it move in turns. In
 * turn k a member
 *
 *     brings    piece k of the others' segments, from its input to its rooms;
 *     sums      piece k - 1 of its own segment, from the others' rooms and its own input, to its
 *               result and to a room;
 *     fetches   piece k - 2 of the others' segments, from where they put it to its result.
 *
 * Of two members each puts its sums where it has read the other's input: those lines have just
 * come, and are not asked for a second time on their way back. On a Zen 4, 4 MiB take 0.84 of the
 * time of rooms of their own, and a fifth where the cores share no cache.
 *
 * 1. Nobody touches anybody's buffers but its own.
 * 2. A room is used again three or more turns later. Who begins turn k has fetched piece k - 3, so
 *    the others have summed it and read no more of what was brought of it; and who sums a piece
 *    sees that the others have brought it, so they have fetched the third one before. Of two, what
 *    lies in a member's rooms, sums included, is for itself alone.
 * 3. One operation at a time uses the rooms: every member has said with its entry that it has no
 *    other one under way.
 *
 * Cost for n members: each copies 2 (n - 1) / n of the vector and sums a share of 1 / n; that much
 * crosses between their caches twice. The other way, through the kernel (board_reduce.c), copies as
 * much, pays for system calls and pages, but lets each core keep what it has summed. Which of them
 * is faster depends on how near the cores are to each other and on the pages, so that is tried
 * (duel.h).
 */
#include <string.h>

#include "base/clock.h"
#include "base/pages.h"
#include "coll/board_ops.h"
#include "coll/reduce.h"

#define ROOMS 4 /* at least three, by invariant 2 */
/* The rooms of so many members leave little of the caches: they use half of the memory, as three
 * rooms. 16 and 64 MiB take 0.74 to 1.04 of the time by seven to nine ranks on two cores, 0.9 in
 * the middle; by five they would take 1.3 (Zen 5, two noisy runs). */
#define MANY 7
#define ROOMS_OF_MANY 3
#define PIECES 4 /* of a segment at least: or all would wait for each other */
#define LEAST_PIECE ((size_t)4 << 10)

enum { BRING, SUM, FETCH }; /* r->stage.part */

/* Pieces of an operation. */
typedef struct cut {
    size_t segment, piece; /* elements */
    size_t pieces;         /* of a segment */
    size_t room, rooms;    /* bytes for what is brought in a turn, and how many there are */
} cut;

/* For what is brought; two members do not need those for sums. */
static size_t bytes_of_rooms(const lsi_board *b)
{
    if (b->members == 2)
        return 2 * b->stage_bytes;
    return b->members < MANY ? b->stage_bytes : b->stage_bytes / 2;
}

static cut cut_of(const ls_comm *comm, const lsi_call *c)
{
    const size_t line = 64 / c->element, others = (size_t)comm->board.members - 1;
    const size_t bytes = bytes_of_rooms(&comm->board), least = LEAST_PIECE / 64 * line,
                 rooms = comm->board.members < MANY ? ROOMS : ROOMS_OF_MANY,
                 most = bytes / rooms / others / 64 * line;
    cut u = {.segment = lsi_board_segment(comm, c->count, c->element)};
    u.piece = (u.segment / PIECES + line - 1) / line * line;
    u.piece = u.piece < least ? least : u.piece;
    u.piece = u.piece > most ? most : u.piece;
    u.pieces = (u.segment + u.piece - 1) / u.piece;
    u.room = u.piece * others * c->element;
    u.rooms = bytes / u.room;
    return u;
}

/* Elements of piece k of a member's segment. Every other operation begins at the end: what was
 * touched last is still in the cache. */
static size_t range_of(const ls_request *r, const cut *u, int member, size_t k, size_t *from)
{
    const size_t place = r->seq % 2 ? u->pieces - 1 - k : k, count = r->call.count;
    const size_t end = (size_t)(member + 1) * u->segment;
    const size_t to = end < count ? end : count;
    *from = (size_t)member * u->segment + place * u->piece;
    return *from >= to ? 0 : to - *from < u->piece ? to - *from : u->piece;
}

/* The room of piece k. All of them in turn, in small operations too: lines that were written some
 * time ago have left the writer's own cache, and are found sooner in the one that is shared. */
static size_t room_of(const lsi_board *b, const cut *u, size_t k)
{
    return (b->staged + k) % u->rooms;
}

/* Where `from` puts what it brings for `to`. */
static char *brought(const lsi_board *b, const cut *u, int from, int to, size_t k, size_t element)
{
    const size_t others_before = (size_t)(to > from ? to - 1 : to);
    return b->rooms + (size_t)from * 2 * b->stage_bytes + room_of(b, u, k) * u->room +
           others_before * u->piece * element;
}

/* Where a member puts its sums. */
static char *summed(const lsi_board *b, const cut *u, int member, size_t k, size_t element)
{
    if (b->members == 2)
        return brought(b, u, 1 - member, member, k, element);
    return b->rooms + ((size_t)member * 2 + 1) * b->stage_bytes +
           room_of(b, u, k) * u->piece * element;
}

static void bring(ls_request *r, const cut *u, size_t k)
{
    const lsi_board *b = &r->comm->board;
    const size_t element = r->call.element;
    for (int m = 0; m < b->members; m++) {
        size_t from, n = range_of(r, u, m, k, &from);
        if (m != b->self && n)
            memcpy(brought(b, u, b->self, m, k, element),
                   (const char *)r->call.send + from * element, n * element);
    }
}

static void sum(ls_request *r, const cut *u, size_t k)
{
    const lsi_board *b = &r->comm->board;
    const size_t element = r->call.element;
    const void *in[LSI_STAGE_MEMBERS];
    size_t from, n = range_of(r, u, b->self, k, &from);
    void *out[2] = {(char *)r->call.recv + from * element, summed(b, u, b->self, k, element)};
    for (int m = 0; m < b->members; m++)
        in[m] = m == b->self ? (const char *)r->call.send + from * element
                             : brought(b, u, m, b->self, k, element);
    if (n)
        lsi_reduce_tree(r->call.dtype, r->call.op, in, b->members, out, 2, n);
}

static void fetch(ls_request *r, const cut *u, size_t k)
{
    const lsi_board *b = &r->comm->board;
    const size_t element = r->call.element;
    for (int m = 0; m < b->members; m++) {
        size_t from, n = range_of(r, u, m, k, &from);
        if (m != b->self && n)
            memcpy((char *)r->call.recv + from * element, summed(b, u, m, k, element), n * element);
    }
}

int lsi_board_stage_has(const ls_request *r, int member)
{
    const lsi_board *b = &r->comm->board;
    const lsi_stage *s = &b->stages[member];
    const int sums = r->stage.part == FETCH;
    const uint32_t wanted = b->staged + (uint32_t)r->stage.turn - (sums ? 1 : 0);
    const uint32_t has =
        atomic_load_explicit(sums ? &s->summed : &s->brought, memory_order_acquire);
    return (int32_t)(has - wanted) >= 0;
}

/* Have all others? */
static int have_all(ls_request *r)
{
    const lsi_board *b = &r->comm->board;
    for (; r->seen < b->members; r->seen++)
        if (r->seen != b->self && !lsi_board_stage_has(r, r->seen))
            return 0;
    r->seen = 0;
    return 1;
}

static void say(ls_request *r, int part, size_t pieces)
{
    const lsi_board *b = &r->comm->board;
    lsi_stage *s = &b->stages[b->self];
    atomic_store_explicit(part == BRING ? &s->brought : &s->summed, b->staged + (uint32_t)pieces,
                          memory_order_release);
    lsi_world_ring(r->comm->world);
    r->moves++;
}

ls_status lsi_board_stage(ls_request *r)
{
    const cut u = cut_of(r->comm, &r->call);
    for (;;) {
        const size_t turn = r->stage.turn;
        switch (r->stage.part) {
        case BRING:
            if (turn < u.pieces) {
                bring(r, &u, turn);
                say(r, BRING, turn + 1);
            }
            r->stage.part = SUM;
            /* fall through */
        case SUM:
            if (turn >= 1 && turn - 1 < u.pieces) {
                if (!have_all(r))
                    return LS_IN_PROGRESS;
                sum(r, &u, turn - 1);
                say(r, SUM, turn);
            }
            r->stage.part = FETCH;
            /* fall through */
        default:
            if (turn >= 2) {
                if (!have_all(r))
                    return LS_IN_PROGRESS;
                fetch(r, &u, turn - 2);
            }
            r->stage.part = BRING;
            r->stage.turn++;
        }
        if (r->stage.turn == u.pieces + 2) {
            r->comm->board.staged += (uint32_t)u.pieces;
            lsi_board_stage_told(r);
            return LS_OK;
        }
    }
}

/* ---- which way ------------------------------------------------------------------------------ */

static lsi_duel *duel_of(ls_comm *comm, size_t bytes)
{
    int class = 0;
    while (bytes >> (class + LSI_STAGE_LEAST) > 1 && class < LSI_STAGE_CLASSES - 1)
        class ++;
    return &comm->board.duels[class];
}

uint32_t lsi_board_stage_flags(ls_comm *comm, const lsi_call *c, uint64_t seq)
{
    const lsi_board *b = &comm->board;
    if (c->coll != LSI_ALLREDUCE || comm->oldest != seq || b->members > LSI_STAGE_MEMBERS)
        return 0;
    const int staged = b->self == 0 && lsi_duel_way(duel_of(comm, c->count * c->element));
    return LSI_SLOT_ALONE | (staged ? LSI_SLOT_STAGE : 0u);
}

/* Else the first operations would wait for the system in every room that they come to, and the way
 * that they try would seem slow for thousands of calls. */
static void open_rooms(lsi_board *b)
{
    if (!b->rooms_open)
        lsi_pages_take(b->rooms, (size_t)b->members * 2 * b->stage_bytes);
    b->rooms_open = 1;
}

void lsi_board_stage_begin(ls_request *r, int staged)
{
    const int tells = r->comm->board.self == 0;
    if (staged)
        open_rooms(&r->comm->board);
    r->stage = (lsi_staging){.part = BRING, .way = staged, .began = tells ? lsi_now() : 0};
    r->seen = 0;
}

void lsi_board_stage_told(ls_request *r)
{
    if (r->stage.began > 0)
        lsi_duel_tell(duel_of(r->comm, r->call.count * r->call.element), r->stage.way,
                      lsi_now() - r->stage.began);
}
