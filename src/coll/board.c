/* The board's memory. */
#include "coll/board.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define FIRST_LOOK 100 /* about 40 ns; from 25 to 150 it makes no difference but in steadiness */
#define CLDEMOTE (1u << 25)

/* Only where lines are handed over was waiting found to help. */
static uint32_t first_look(void)
{
#if defined(__x86_64__)
    unsigned a, b, c = 0, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && c & CLDEMOTE)
        return FIRST_LOOK;
#endif
    return 0;
}

/* Of a member's rooms for one purpose. */
static size_t stage_bytes(int members, size_t heap_bytes)
{
    size_t bytes = LSI_STAGE_BYTES;
    while (bytes > LSI_STAGE_FEWEST && bytes > heap_bytes / 16 / (size_t)members)
        bytes /= 2;
    return bytes;
}

size_t lsi_board_bytes(int members, size_t heap_bytes)
{
    const size_t n = (size_t)members;
    return sizeof(lsi_board_head) + n * LSI_BOARD_SLOTS * (sizeof(lsi_slot) + sizeof(lsi_note)) +
           n * (sizeof(lsi_stage) + 2 * stage_bytes(members, heap_bytes)) +
           n * LSI_BOARD_BOXES * LSI_BOARD_BOX_BYTES;
}

void lsi_board_attach(lsi_board *board, void *memory, int members, int self, size_t heap_bytes)
{
    memset(board, 0, sizeof *board);
    board->head = memory;
    board->slots = (lsi_slot *)(void *)((char *)memory + sizeof(lsi_board_head));
    board->notes = (lsi_note *)(void *)(board->slots + (size_t)members * LSI_BOARD_SLOTS);
    board->stages = (lsi_stage *)(void *)(board->notes + (size_t)members * LSI_BOARD_SLOTS);
    board->stage_bytes = stage_bytes(members, heap_bytes);
    board->rooms = (char *)(board->stages + members);
    board->boxes = board->rooms + (size_t)members * 2 * board->stage_bytes;
    board->members = members;
    board->self = self;
    board->done_below = 1; /* operations count from 1 */
    board->first_look = first_look();
}

void lsi_board_abort(lsi_board *board, int by, int status, const char *text)
{
    int32_t none = 0;
    if (!atomic_compare_exchange_strong(&board->head->aborted, &none, 1))
        return;
    board->head->by = by;
    snprintf(board->head->text, sizeof board->head->text, "%s", text);
    atomic_store_explicit(&board->head->aborted, status, memory_order_release);
}
