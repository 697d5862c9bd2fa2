/* The board's memory. */
#include "coll/board.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define FIRST_LOOK 24 /* multiplications of 3 cycles */

#if defined(__x86_64__)
/* Intel's servers of many cores; AMD's from Zen 4 on, by family and model. */
static int is_better_late(void)
{
    unsigned a = 0, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d))
        return 0;
    if (c == signature_INTEL_ecx)
        return __builtin_cpu_supports("avx512f");
    if (c != signature_AMD_ecx || !__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    const unsigned family = (a >> 8 & 15) + (a >> 20 & 255);
    const unsigned model = (a >> 4 & 15) | (a >> 12 & 240);
    const int zen3 = model < 0x10 || (model >= 0x20 && model < 0x60);
    return family > 25 || (family == 25 && !zen3);
}
#endif

/* Where waiting was found to help, and for how long. Zen 5, two cores of one cache, microseconds of
 * 8 bytes and of 1 KiB: 0.074 and 0.108 without it, 0.053 and 0.104 with 14 multiplications, 0.044
 * and 0.098 with 20, 0.048 and 0.098 with 28; longer is steadier. Before, a loop looked at the
 * clock instead, whose ticks are 10 ns apart there: 0.078 and 0.108. By that loop: Emerald Rapids
 * 0.17 without, 0.12 with 25 ns, 0.13 with 50; Zen 4 0.096 without, 0.077 with 12 ns, 0.080 with 19
 * and 0.095 with 38. Zen 3 is better off without. */
static uint32_t first_look(void)
{
#if defined(__x86_64__)
    return is_better_late() ? FIRST_LOOK : 0;
#else
    return 0;
#endif
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
