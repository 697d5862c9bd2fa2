/* The board: where the ranks of one host meet in shared memory.
 *
 * Each operation of a communicator has a slot for every local member. A rank posts what it called
 * and where its buffers lie, and everybody reads everybody's slot: one cache line each way is the
 * whole cost of a small all-reduce.
 *
 * Invariants:
 * 1. A slot is written by its owner only. `entered` and `phase` = operation number * 8 + phase only
 *    grow; what a phase announces is written before it is released.
 * 2. Every operation waits until all members have entered it. A rank has at most
 *    LSI_BOARD_ACTIVE operations under way, so whoever has entered operation s has completed all
 *    up to s - ACTIVE, and with 2 * ACTIVE slots no slot is overwritten that anyone still reads.
 * 3. A box (the place for small messages) is written by operation s only if every operation that
 *    used it before is complete on every member: told by `oldest` for the few warm boxes, which
 *    take turns; by invariant 2 for the others, one a slot. Its owner may write a second time,
 *    before it says WORKED, what no other member reads until then: the sum of its own part.
 * 4. Nobody touches another's buffers unless it has said so by `busy` and then seen that nobody has
 *    aborted. Who gives up aborts first and then waits for those who are busy, so its buffers are
 *    its own again when its call returns. (Both sides with sequential consistency, as in Dekker's
 *    algorithm: one of the two sees the other.)
 *
 * What the caches want (measured on Sapphire Rapids, two cores, microseconds a round):
 * a. Slots are taken in an irregular order. At a fixed stride the processor's prefetcher fetches
 *    the peer's next slot before it is written, and writing it takes one more trip: 0.15 instead of
 *    0.09.
 * b. Two ranks write slots and warm boxes where they have read the last time: those lines are
 *    theirs already. 16 lines: 0.23 instead of 0.39.
 * c. What was written is handed over (lsi_board_hand_over), the slot first, then the box.
 * d. Nobody looks before the peers can have written (board_quick.c).
 * e. The line of a later post is fetched to be written while this one is under way: who has read a
 *    line shares it with its writer, and would write only after another trip.
 * f. What is read at once is not written in parts just before (lsi_call_head): the processor would
 *    wait for its own stores, and those for the lines above. Without e and f 8 bytes take 0.07
 *    instead of 0.05 on a Zen 5.
 */
#ifndef LSI_COLL_BOARD_H
#define LSI_COLL_BOARD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/duel.h"
#include "transport/wire.h"

#define LSI_BOARD_ACTIVE 8
#define LSI_BOARD_SLOTS (2 * LSI_BOARD_ACTIVE)
#define LSI_BOARD_WARM 4 /* boxes used in turn while operations follow one another */
#define LSI_BOARD_BOXES (LSI_BOARD_WARM + LSI_BOARD_SLOTS)
#define LSI_BOARD_BOX_BYTES ((size_t)16 << 10)
#define LSI_BOARD_LINE 56                  /* of the input in the slot's first line, */
#define LSI_BOARD_INLINE 120               /* and in both */
#define LSI_BOARD_SMALL ((size_t)2048)     /* up to here a copy in a box beats a second round */
#define LSI_BOARD_READ ((size_t)56 << 10)  /* of others' boxes; a second round beats more of it */
#define LSI_BOARD_QUICK ((size_t)64 << 10) /* worth the short way */
#define LSI_STAGE_BYTES ((size_t)1 << 20)  /* of a member's rooms for input, and for sums */
#define LSI_STAGE_FEWEST ((size_t)64 << 10)
#define LSI_STAGE_MEMBERS 16
#define LSI_STAGE_LEAST 14   /* sizes up to 2^15 bytes are one class, then each power of two, */
#define LSI_STAGE_CLASSES 14 /* the last one without an end */

typedef enum lsi_phase {
    LSI_PHASE_ENTERED = 1, /* posted */
    LSI_PHASE_WORKED,      /* has read and written all it wanted in others' buffers */
    LSI_PHASE_RESULT,      /* two-level, leader: the result stands in its buffer */
    LSI_PHASE_COPIED       /* two-level: has copied the result */
} lsi_phase;

enum {                           /* lsi_slot.flags */
       LSI_SLOT_SEND_SHARED = 1, /* `send` is an offset in the segment, else an address */
       LSI_SLOT_RECV_SHARED = 2,
       LSI_SLOT_BOXED = 4,    /* the input stands in the box */
       LSI_SLOT_CAN_READ = 8, /* this process may read and write its peers' memory (CMA) */
       LSI_SLOT_ALONE = 16,   /* an all-reduce, and no other operation is under way here */
       LSI_SLOT_STAGE = 32    /* member 0: through rooms, if all are alone */
};

/* What the peers always read, and what they read later: in pairs of cache lines of their own,
 * because processors fetch the neighbour along. */
typedef struct lsi_slot {
    _Alignas(128) _Atomic uint32_t entered;
    uint32_t signature;
    union {
        uint8_t data[LSI_BOARD_INLINE];
        struct {
            uint64_t send, recv;
            uint64_t oldest; /* the owner's oldest operation that is not complete */
            uint32_t flags, box;
            uint64_t lists; /* two-level, leader: offset of its node list beyond the first */
        };
    };
    _Alignas(128) _Atomic uint32_t phase; /* beyond ENTERED */
} lsi_slot;

/* What the peers read only when something differs. */
typedef struct lsi_note {
    _Alignas(128) lsi_wire_call call;
    _Atomic uint32_t busy; /* the owner reads and writes in the others' buffers: invariant 4 */
} lsi_note;

/* How many pieces of private memory stand in a member's rooms, in all operations so far:
 * board_stage.c. */
typedef struct lsi_stage {
    _Alignas(128) _Atomic uint32_t brought;
    _Alignas(128) _Atomic uint32_t summed;
} lsi_stage;

typedef struct lsi_board_head {
    _Alignas(128) _Atomic int32_t aborted; /* 0, 1 while the text is written, then the status */
    int32_t by;
    char text[1000];
    _Alignas(64) _Atomic uint32_t users;
} lsi_board_head;

typedef struct lsi_board {
    lsi_board_head *head;
    lsi_slot *slots;   /* [LSI_BOARD_SLOTS][members] */
    lsi_note *notes;   /* [LSI_BOARD_SLOTS][members] */
    lsi_stage *stages; /* [members] */
    char *rooms;       /* [members][2][stage_bytes]: for input, for sums */
    char *boxes;       /* [members][LSI_BOARD_BOXES][LSI_BOARD_BOX_BYTES] */
    size_t stage_bytes;
    int members, self;
    int rooms_open;                      /* the rooms are there, for this process */
    uint32_t own_flags[LSI_BOARD_SLOTS]; /* as posted: our own slots are not ours to read */
    uint64_t done_below;                 /* every member has completed all operations below */
    uint32_t first_look; /* multiplications from our post to the first look at the peers' */
    uint32_t came_last;  /* some word of the last line from a peer (board_quick.c) */
    uint32_t staged;     /* pieces of a segment, in all operations that are complete here */
    lsi_duel duels[LSI_STAGE_CLASSES]; /* member 0: through the kernel, or through rooms? */
} lsi_board;

/* Bytes of shared memory for a board of `members`, whose heaps have `heap_bytes` each: the rooms of
 * boards are no large part of a small heap. */
size_t lsi_board_bytes(int members, size_t heap_bytes);
/* Use the (zeroed) memory as board; the same on every member. */
void lsi_board_attach(lsi_board *board, void *memory, int members, int self, size_t heap_bytes);

/* Who writes in this place, of a row of places, in its turn `turn`? Two ranks change places. */
static inline size_t lsi_board_side(const lsi_board *b, int member, uint64_t turn)
{
    return (size_t)(b->members == 2 && turn % 2 ? 1 - member : member);
}

/* Triangular numbers: each row once, at distances that change. */
static inline lsi_slot *lsi_board_slot(const lsi_board *b, uint64_t seq, int member)
{
    size_t i = (size_t)(seq % LSI_BOARD_SLOTS), row = i * (i + 1) / 2 % LSI_BOARD_SLOTS;
    return &b->slots[row * (size_t)b->members + lsi_board_side(b, member, seq / LSI_BOARD_SLOTS)];
}

static inline lsi_note *lsi_board_note(const lsi_board *b, uint64_t seq, int member)
{
    return &b->notes[(size_t)(seq % LSI_BOARD_SLOTS) * (size_t)b->members + (size_t)member];
}

/* The box that `member` uses for operation `seq`, by its number. */
static inline char *lsi_board_box(const lsi_board *b, uint64_t seq, int member, uint32_t number)
{
    uint64_t turn = number < LSI_BOARD_WARM ? seq / LSI_BOARD_WARM : 0;
    size_t row = number % LSI_BOARD_BOXES;
    return b->boxes +
           (lsi_board_side(b, member, turn) * LSI_BOARD_BOXES + row) * LSI_BOARD_BOX_BYTES;
}

/* The number of a box that we may use for operation `seq`. */
static inline uint32_t lsi_board_take_box(const lsi_board *b, uint64_t seq)
{
    return b->done_below + LSI_BOARD_WARM > seq
               ? (uint32_t)(seq % LSI_BOARD_WARM)
               : LSI_BOARD_WARM + (uint32_t)(seq % LSI_BOARD_SLOTS);
}

static inline uint32_t lsi_board_state(uint64_t seq, lsi_phase phase)
{
    return (uint32_t)(seq * 8) + (uint32_t)phase;
}

/* Has this slot's owner reached `phase` of operation `seq`? */
static inline int lsi_board_reached(const lsi_slot *slot, uint64_t seq, lsi_phase phase)
{
    const _Atomic uint32_t *word = phase == LSI_PHASE_ENTERED ? &slot->entered : &slot->phase;
    uint32_t state = atomic_load_explicit(word, memory_order_acquire);
    return (int32_t)(state - lsi_board_state(seq, phase)) >= 0;
}

/* The line was written for a peer: move it out of our own cache, to where the peer finds it
 * sooner. A hint; a no-op on processors that do not know it. */
static inline void lsi_board_hand_over(const void *line)
{
#if defined(__x86_64__)
    __asm__ volatile("cldemote %0" : : "m"(*(const char *)line));
#else
    (void)line;
#endif
}

/* Record a failure for the other members (the first wins). */
void lsi_board_abort(lsi_board *board, int by, int status, const char *text);

#endif
