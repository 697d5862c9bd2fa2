/* TensorBoard event files.
 *
 *     Event    1 wall_time double, 2 step int64, 3 file_version string, 5 summary, 7 session_log
 *     Summary  1 value*: 1 tag string, 2 simple_value float
 *     SessionLog  1 status enum: 1 START
 *
 * An Event with a SessionLog of START at step s makes readers drop what they have from s on.
 */
#include "train/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"

#define WHAT "tensorboard"
#define RECORD_BYTES 1024
#define TAG_BYTES 64

struct lsi_events {
    int fd;
    off_t end;
    char *path;
};

typedef struct record {
    unsigned char bytes[RECORD_BYTES];
    size_t used;
} record;

/* ---- protocol buffers ------------------------------------------------------------------------ */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_byte(record *r, unsigned value)
{
    if (r->used < sizeof r->bytes)
        r->bytes[r->used++] = (unsigned char)value;
}

static void put_varint(record *r, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        put_byte(r, (unsigned)(value & 127) | 128);
    put_byte(r, (unsigned)value);
}

static void put_key(record *r, unsigned field, unsigned type)
{
    put_varint(r, field << 3 | type);
}

static void put_fixed(record *r, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put_byte(r, (unsigned)(value >> (8 * i)) & 255);
}

static void put_bytes(record *r, unsigned field, const void *data, size_t bytes)
{
    put_key(r, field, BYTES);
    put_varint(r, bytes);
    for (size_t i = 0; i < bytes; i++)
        put_byte(r, ((const unsigned char *)data)[i]);
}

static void put_double(record *r, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(r, field, FIXED64);
    put_fixed(r, bits, 8);
}

static void put_float(record *r, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(r, field, FIXED32);
    put_fixed(r, bits, 4);
}

static void begin_event(record *r, uint64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    r->used = 0;
    put_double(r, 1, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    put_key(r, 2, VARINT);
    put_varint(r, step);
}

/* ---- records --------------------------------------------------------------------------------- */

uint32_t lsi_crc32c(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return ~crc;
}

/* CRCs of data that holds CRCs are weak: TFRecord rotates and adds. */
static uint32_t masked_crc(const void *data, size_t bytes)
{
    const uint32_t crc = lsi_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static ls_status append(lsi_events *e, const record *event)
{
    record r = {.used = 0};
    put_fixed(&r, event->used, 8);
    put_fixed(&r, masked_crc(r.bytes, 8), 4);
    memcpy(r.bytes + r.used, event->bytes, event->used);
    r.used += event->used;
    put_fixed(&r, masked_crc(event->bytes, event->used), 4);
    ssize_t n;
    do
        n = write(e->fd, r.bytes, r.used);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)r.used) {
        e->end += n;
        return LS_OK;
    }
    if (n >= 0)
        errno = ENOSPC;
    const ls_status status = lsi_fail_errno(WHAT, "%s cannot be written", e->path);
    if (ftruncate(e->fd, e->end) != 0)
        return status; /* readers stop at a record that is not whole */
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

static ls_status create_file(const char *folder, lsi_events *e)
{
    char host[65] = "host";
    if (gethostname(host, sizeof host - 1) != 0)
        snprintf(host, sizeof host, "host");
    for (int n = 0; n < 1000; n++) {
        free(e->path);
        if (asprintf(&e->path, "%s/events.out.tfevents.%010lld.%s.%ld.%d", folder,
                     (long long)time(NULL), host, (long)getpid(), n) < 0) {
            e->path = NULL;
            return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory");
        }
        e->fd = open(e->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (e->fd >= 0)
            return LS_OK;
        if (errno != EEXIST)
            break;
    }
    return lsi_fail_errno(WHAT, "%s cannot be created", e->path);
}

static ls_status write_head(lsi_events *e, uint64_t first)
{
    static const char version[] = "brain.Event:2";
    record event;
    begin_event(&event, 0);
    put_bytes(&event, 3, version, strlen(version));
    LSI_TRY(append(e, &event));
    if (!first)
        return LS_OK;
    begin_event(&event, first);
    put_bytes(&event, 7, (const unsigned char[]){1 << 3 | VARINT, 1}, 2);
    return append(e, &event);
}

ls_status lsi_events_open(const char *folder, uint64_t first, lsi_events **out)
{
    lsi_events *e = calloc(1, sizeof *e);
    if (!e)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory");
    e->fd = -1;
    ls_status status = create_file(folder, e);
    if (status == LS_OK)
        status = write_head(e, first);
    if (status != LS_OK) {
        if (e->fd >= 0)
            unlink(e->path);
        lsi_events_close(e);
        return status;
    }
    *out = e;
    return LS_OK;
}

void lsi_events_close(lsi_events *e)
{
    if (!e)
        return;
    if (e->fd >= 0)
        close(e->fd);
    free(e->path);
    free(e);
}

const char *lsi_events_path(const lsi_events *e)
{
    return e->path;
}

ls_status lsi_events_add(lsi_events *e, uint64_t step, const lsi_scalar *scalars, int count)
{
    record event, summary = {.used = 0}, value;
    if (count < 0 || count > LSI_SCALARS_MAX)
        return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "%d scalars, %d are the limit", count,
                        LSI_SCALARS_MAX);
    for (int i = 0; i < count; i++) {
        const size_t length = strlen(scalars[i].tag);
        if (length >= TAG_BYTES)
            return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "the tag '%.60s…' is too long",
                            scalars[i].tag);
        if (isnan(scalars[i].value))
            continue;
        value.used = 0;
        put_bytes(&value, 1, scalars[i].tag, length);
        put_float(&value, 2, (float)scalars[i].value);
        put_bytes(&summary, 1, value.bytes, value.used);
    }
    begin_event(&event, step);
    put_bytes(&event, 5, summary.bytes, summary.used);
    return append(e, &event);
}
