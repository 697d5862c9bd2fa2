/* The word that says what a slot keeps: see transaction.c. */
#ifndef LSI_PARALLEL_TRANSACTION_H
#define LSI_PARALLEL_TRANSACTION_H

#include <stdint.h>

#define LSI_UNDO_ROWS 1u /* rows: to be put back */
#define LSI_UNDO_RUN 2u  /* a run: to be put back unless it has its mark */
#define LSI_UNDO_KIND 3u

/* Runs are below 2^24: 2^38 elements. Marks are kept modulo 2^38. */
static inline uint64_t lsi_undo_run(uint64_t mark, uint64_t run)
{
    return mark << 26 | run << 2 | LSI_UNDO_RUN;
}

static inline uint64_t lsi_undo_run_of(uint64_t word)
{
    return word >> 2 & 0xffffff;
}

static inline uint64_t lsi_undo_mark_of(uint64_t word)
{
    return word >> 26;
}

#endif
