/* A growing buffer (contract: buffer.h). Growth doubles, so adding is constant time on average;
 * bytes move to the front only when that frees at least as much as it copies. */
#include "store/buffer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

ls_status lsi_buffer_reserve(lsi_buffer *buffer, size_t more, uint8_t **end)
{
    size_t wanted = buffer->used + more;
    if (wanted < more || wanted > SIZE_MAX / 4)
        return lsi_fail(LS_ERR_NOMEM, NULL, "buffer", "%zu more bytes are too many", more);
    if (buffer->head + wanted > buffer->capacity && wanted <= buffer->capacity &&
        buffer->head >= buffer->used) {
        memmove(buffer->data, buffer->data + buffer->head, buffer->used);
        buffer->head = 0;
    }
    if (!buffer->data || buffer->head + wanted > buffer->capacity) {
        size_t capacity = wanted * 2 < 256 ? 256 : wanted * 2;
        uint8_t *data = malloc(capacity);
        if (!data)
            return lsi_fail(LS_ERR_NOMEM, NULL, "buffer", "no memory for %zu bytes", capacity);
        if (buffer->used > 0)
            memcpy(data, buffer->data + buffer->head, buffer->used);
        free(buffer->data);
        buffer->data = data;
        buffer->head = 0;
        buffer->capacity = capacity;
    }
    *end = buffer->data + buffer->head + buffer->used;
    return LS_OK;
}

void lsi_buffer_added(lsi_buffer *buffer, size_t bytes)
{
    assert(buffer->head + buffer->used + bytes <= buffer->capacity);
    buffer->used += bytes;
}

ls_status lsi_buffer_append(lsi_buffer *buffer, const void *data, size_t bytes)
{
    uint8_t *end = NULL;
    LSI_TRY(lsi_buffer_reserve(buffer, bytes, &end));
    if (bytes > 0)
        memcpy(end, data, bytes);
    lsi_buffer_added(buffer, bytes);
    return LS_OK;
}

void lsi_buffer_drop(lsi_buffer *buffer, size_t bytes)
{
    assert(bytes <= buffer->used);
    buffer->head += bytes;
    buffer->used -= bytes;
    if (buffer->used > 0)
        return;
    buffer->head = 0;
    if (buffer->capacity > LSI_BUFFER_IDLE_BYTES)
        lsi_buffer_free(buffer);
}

void lsi_buffer_free(lsi_buffer *buffer)
{
    free(buffer->data);
    *buffer = (lsi_buffer){0};
}
