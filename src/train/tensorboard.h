/* TensorBoard event files: scalars by step.
 *
 * Records are framed as TensorFlow's TFRecord (length, masked CRC-32C of it, data, masked CRC-32C
 * of that), and each holds a protocol buffer Event. Written by hand: five fields.
 *
 * 1. A record is written whole, by one write(2), or not at all.
 * 2. A resumed run writes a file of its own, which begins by telling TensorBoard to forget the
 *    steps that it will do again.
 *
 * An object belongs to one thread at a time.
 */
#ifndef LSI_TRAIN_TENSORBOARD_H
#define LSI_TRAIN_TENSORBOARD_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

typedef struct lsi_events lsi_events;

/* A scalar at a step. */
typedef struct lsi_scalar {
    const char *tag; /* "loss" */
    double value;    /* NaN: left out */
} lsi_scalar;

#define LSI_SCALARS_MAX 8

/* A new file FOLDER/events.out.tfevents.TIME.HOST.PID for steps from `first` on (0: a new run). The
 * caller owns *out. */
ls_status lsi_events_open(const char *folder, uint64_t first, lsi_events **out);
/* Accepts NULL. */
void lsi_events_close(lsi_events *events);
/* One record with `count` scalars, at most LSI_SCALARS_MAX. LS_ERR_SYSTEM names the file. */
ls_status lsi_events_add(lsi_events *events, uint64_t step, const lsi_scalar *scalars, int count);
/* Its path, for those who want to say where it is. */
const char *lsi_events_path(const lsi_events *events);

/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) of some bytes. */
uint32_t lsi_crc32c(const void *data, size_t bytes);

#endif
