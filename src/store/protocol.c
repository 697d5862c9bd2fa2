/* Frames to messages and back (format and invariants: protocol.h).
 *
 * One table says which fields each op uses; one function checks a message against it, whichever
 * direction the message goes, so encoder and decoder cannot disagree. */
#include "store/protocol.h"

#include <string.h>

#include "base/status.h"

/* What a field may be. */
typedef enum use {
    NONE,     /* must be 0, absent */
    OPTIONAL, /* anything within the limits, 0 included */
    REQUIRED  /* as OPTIONAL, but not 0 */
} use;

typedef struct shape {
    const char *name; /* NULL: no such op */
    lsi_store_sender sender;
    use id, key, value, version, number;
    uint64_t number_max;
} shape;

static const shape shapes[] = {
    [LSI_STORE_GET] = {"GET", LSI_STORE_CLIENT, REQUIRED, REQUIRED, NONE, NONE, NONE, 0},
    [LSI_STORE_PUT] = {"PUT", LSI_STORE_CLIENT, REQUIRED, REQUIRED, OPTIONAL, NONE, OPTIONAL,
                       UINT64_MAX},
    [LSI_STORE_CAS] = {"CAS", LSI_STORE_CLIENT, REQUIRED, REQUIRED, OPTIONAL, OPTIONAL, OPTIONAL,
                       UINT64_MAX},
    [LSI_STORE_REMOVE] = {"REMOVE", LSI_STORE_CLIENT, REQUIRED, REQUIRED, NONE, NONE, NONE, 0},
    [LSI_STORE_LEASE] = {"LEASE", LSI_STORE_CLIENT, REQUIRED, NONE, NONE, NONE, REQUIRED,
                         LSI_STORE_MS_MAX},
    [LSI_STORE_KEEP] = {"KEEP", LSI_STORE_CLIENT, REQUIRED, NONE, NONE, NONE, REQUIRED, UINT64_MAX},
    [LSI_STORE_REVOKE] = {"REVOKE", LSI_STORE_CLIENT, REQUIRED, NONE, NONE, NONE, REQUIRED,
                          UINT64_MAX},
    [LSI_STORE_WATCH] = {"WATCH", LSI_STORE_CLIENT, REQUIRED, OPTIONAL, NONE, NONE, NONE, 0},
    [LSI_STORE_WAIT] = {"WAIT", LSI_STORE_CLIENT, REQUIRED, REQUIRED, NONE, NONE, OPTIONAL,
                        LSI_STORE_MS_MAX},
    [LSI_STORE_ANSWER] = {"ANSWER", LSI_STORE_SERVER, REQUIRED, NONE, OPTIONAL, OPTIONAL, OPTIONAL,
                          UINT64_MAX},
    [LSI_STORE_EVENT] = {"EVENT", LSI_STORE_SERVER, NONE, REQUIRED, OPTIONAL, REQUIRED, OPTIONAL,
                         1},
};

int lsi_store_key_valid(const char *key, size_t bytes)
{
    if (bytes > LSI_STORE_KEY_MAX)
        return 0;
    for (size_t i = 0; i < bytes; i++) {
        if (key[i] < 0x21 || key[i] > 0x7e)
            return 0;
    }
    return 1;
}

static int fits(use rule, uint64_t value)
{
    return rule == OPTIONAL || (rule == REQUIRED) == (value != 0);
}

/* What is wrong with a message, NULL if nothing. */
static const char *fault_of(const lsi_store_message *m, size_t key_bytes)
{
    unsigned op = (unsigned)m->op;
    const shape *s = op < sizeof shapes / sizeof shapes[0] ? &shapes[op] : NULL;
    if (!s || !s->name)
        return "unknown op";
    if (!fits(s->id, m->id))
        return "bad id";
    if (!fits(s->key, key_bytes) || !lsi_store_key_valid(m->key, key_bytes))
        return "bad key";
    if (!fits(s->value, m->bytes) || m->bytes > LSI_STORE_VALUE_MAX)
        return "bad value size";
    if (!fits(s->version, m->version))
        return "bad version";
    if (!fits(s->number, m->number) || (s->number != NONE && m->number > s->number_max))
        return "bad number";
    if (m->op == LSI_STORE_EVENT && m->number == 1 && m->bytes > 0)
        return "a deletion with a value";
    if (m->status != LS_OK && (m->op != LSI_STORE_ANSWER || m->bytes > 0 || m->status > LS_OK ||
                               strcmp(ls_status_name(m->status), "LS_ERR_UNKNOWN") == 0))
        return "bad status";
    return NULL;
}

static void put_number(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_number(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

ls_status lsi_store_encode(const lsi_store_message *message, lsi_buffer *out)
{
    size_t key_bytes = strnlen(message->key, sizeof message->key);
    const char *fault = fault_of(message, key_bytes);
    if (fault)
        return lsi_fail(LS_ERR_INVALID, NULL, "store message", "op %d: %s", (int)message->op,
                        fault);
    size_t bytes = LSI_STORE_HEAD_BYTES + key_bytes + message->bytes;
    uint8_t *at;
    LSI_TRY(lsi_buffer_reserve(out, bytes, &at));
    put_number(at, bytes - 4, 4);
    put_number(at + 4, message->id, 4);
    at[8] = (uint8_t)message->op;
    at[9] = (uint8_t)-message->status;
    put_number(at + 10, key_bytes, 2);
    put_number(at + 12, message->version, 8);
    put_number(at + 20, message->number, 8);
    memcpy(at + LSI_STORE_HEAD_BYTES, message->key, key_bytes);
    if (message->bytes > 0)
        memcpy(at + LSI_STORE_HEAD_BYTES + key_bytes, message->value, message->bytes);
    lsi_buffer_added(out, bytes);
    return LS_OK;
}

static ls_status refuse(const char *fault, uint64_t number)
{
    return lsi_fail(LS_ERR_PROTOCOL, "do both sides run the same version?", "store message",
                    "%s (%llu)", fault, (unsigned long long)number);
}

ls_status lsi_store_decode(lsi_store_sender sender, const uint8_t *data, size_t bytes,
                           lsi_store_message *message, size_t *frame_bytes)
{
    if (bytes < 4)
        return LS_IN_PROGRESS;
    size_t frame = 4 + (size_t)get_number(data, 4);
    if (frame < LSI_STORE_HEAD_BYTES || frame > LSI_STORE_FRAME_MAX)
        return refuse("bad frame size", frame);
    /* Refuse the wrong op early too: bytes of another protocol need not be waited for. */
    if (bytes > 8) {
        unsigned op = data[8];
        if (op >= sizeof shapes / sizeof shapes[0] || !shapes[op].name ||
            shapes[op].sender != sender)
            return refuse("an op that this side may not send", op);
    }
    if (bytes < frame)
        return LS_IN_PROGRESS;

    size_t key_bytes = (size_t)get_number(data + 10, 2);
    if (key_bytes > LSI_STORE_KEY_MAX || key_bytes > frame - LSI_STORE_HEAD_BYTES)
        return refuse("bad key size", key_bytes);
    lsi_store_message m = {
        .id = (uint32_t)get_number(data + 4, 4),
        .op = (lsi_store_op)data[8],
        .status = (ls_status) - (int)data[9],
        .version = get_number(data + 12, 8),
        .number = get_number(data + 20, 8),
        .bytes = frame - LSI_STORE_HEAD_BYTES - key_bytes,
        .value = data + LSI_STORE_HEAD_BYTES + key_bytes,
    };
    memcpy(m.key, data + LSI_STORE_HEAD_BYTES, key_bytes);
    m.key[key_bytes] = '\0';
    const char *fault = fault_of(&m, key_bytes);
    if (fault)
        return refuse(fault, (uint64_t)m.op);
    *message = m;
    *frame_bytes = frame;
    return LS_OK;
}

ls_status lsi_store_show(const lsi_buffer *events, size_t *shown, lsi_store_event *event)
{
    lsi_store_message m;
    LSI_TRY(lsi_store_decode(LSI_STORE_SERVER, lsi_buffer_front(events), events->used, &m, shown));
    memcpy(event->key, m.key, sizeof event->key);
    event->version = m.version;
    event->deleted = m.number == 1;
    event->bytes = m.bytes;
    event->value = m.value;
    return LS_OK;
}
