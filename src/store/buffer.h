/* A growing buffer: bytes are added at its end and taken from its front.
 *
 * 1. The bytes in use lie in one piece, [data + head, data + head + used).
 * 2. A pointer into the buffer is valid until the next reserve or drop.
 * 3. An empty buffer holds at most LSI_BUFFER_IDLE_BYTES: thousands of idle clients stay cheap.
 */
#ifndef LSI_STORE_BUFFER_H
#define LSI_STORE_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#define LSI_BUFFER_IDLE_BYTES 4096

/* All zero is an empty buffer. */
typedef struct lsi_buffer {
    uint8_t *data;
    size_t head, used, capacity;
} lsi_buffer;

/* Make room for `more` bytes at the end and point *end there; they count once lsi_buffer_added. */
ls_status lsi_buffer_reserve(lsi_buffer *buffer, size_t more, uint8_t **end);
void lsi_buffer_added(lsi_buffer *buffer, size_t bytes);
/* Reserve, copy, added. */
ls_status lsi_buffer_append(lsi_buffer *buffer, const void *data, size_t bytes);
/* Take `bytes` <= used from the front. */
void lsi_buffer_drop(lsi_buffer *buffer, size_t bytes);
void lsi_buffer_free(lsi_buffer *buffer);

static inline const uint8_t *lsi_buffer_front(const lsi_buffer *buffer)
{
    return buffer->data + buffer->head;
}

#endif
