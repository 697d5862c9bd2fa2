/* Large blocks of a device's memory.
 *
 * 1. Aligned to 64 bytes; blocks of LSI_BLOCK_HUGE and more to 2 MiB, and then in large pages where
 *    the system has them: activations and weights are walked through from end to end.
 */
#ifndef LSI_GRAPH_MEMORY_H
#define LSI_GRAPH_MEMORY_H

#include "device/device.h"

#define LSI_BLOCK_HUGE ((size_t)4 << 20)

typedef struct lsi_block {
    void *memory; /* as the device gave it */
    void *data;   /* aligned */
    size_t bytes;
} lsi_block;

/* Contents are undefined. 0 bytes: no memory, data is NULL. */
ls_status lsi_block_alloc(lsi_device *device, size_t bytes, lsi_block *out);
/* Accepts an empty block; empties it. */
void lsi_block_free(lsi_device *device, lsi_block *block);

#endif
