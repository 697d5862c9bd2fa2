/* The board's memory. */
#include "coll/board.h"

#include <stdio.h>
#include <string.h>

size_t lsi_board_bytes(int members)
{
    size_t n = (size_t)members;
    return sizeof(lsi_board_head) + n * LSI_BOARD_SLOTS * sizeof(lsi_slot) +
           n * LSI_BOARD_BOXES * LSI_BOARD_BOX_BYTES;
}

void lsi_board_attach(lsi_board *board, void *memory, int members, int self)
{
    memset(board, 0, sizeof *board);
    board->head = memory;
    board->slots = (lsi_slot *)(void *)((char *)memory + sizeof(lsi_board_head));
    board->boxes = (char *)board->slots + (size_t)members * LSI_BOARD_SLOTS * sizeof(lsi_slot);
    board->members = members;
    board->self = self;
    board->done_below = 1; /* operations count from 1 */
}

uint32_t lsi_board_take_box(lsi_board *board, uint64_t seq)
{
    uint32_t box = (uint32_t)(seq % LSI_BOARD_WARM); /* few boxes in turn stay in the cache */
    if (board->box_used[box] >= board->done_below)
        for (uint32_t i = 0; i < LSI_BOARD_BOXES; i++)
            if (board->box_used[i] < board->box_used[box])
                box = i; /* the oldest: used SLOTS operations ago or more, free by invariant 2 */
    board->box_used[box] = seq;
    return box;
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
