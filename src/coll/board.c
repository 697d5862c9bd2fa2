/* The board's memory. */
#include "coll/board.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define FIRST_LOOK 50 /* about 20 ns */

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

/* Where waiting was found to help, and for how long. Emerald Rapids, 8 bytes: 0.17 us without it,
 * 0.12 with 50 ticks, 0.13 with 100, 0.15 with 150; 1 KiB: 0.30 and, with 100, 0.27. On Sapphire
 * Rapids 25 to 150 ticks differ in steadiness only. Zen 4, 8 bytes: 0.120 without, 0.099 with 100,
 * 0.092 with 130 and 0.110 with 160; where another thread shares the core 0.132, 0.107, 0.127 and
 * 0.147; on another one 0.096 without, 0.077 with 30, 0.080 with 50, 0.088 with 65, 0.095 with 100,
 * and 1 KiB 0.142, 0.150, 0.152, 0.160 and 0.171. Zen 3 is better off without. */
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
