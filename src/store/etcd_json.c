/* The JSON of etcd's gateway (shapes: etcd's api/etcdserverpb/rpc.proto as proto3 JSON). */
#include "store/etcd_json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* etcd sends at most 1.5 MiB of changes at once: some 35 000 deletions of 5 marks each. */
#define MARKS_MAX 262144
#define CODE_MAX 16

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static ls_status add(lsi_buffer *out, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return lsi_buffer_append(out, text, (size_t)n);
}

/* "name":"base64" */
static ls_status add_bytes(lsi_buffer *out, const char *name, const void *data, size_t bytes)
{
    const uint8_t *in = data;
    uint8_t *at;
    LSI_TRY(add(out, "\"%s\":\"", name));
    size_t size = (bytes + 2) / 3 * 4;
    LSI_TRY(lsi_buffer_reserve(out, size + 1, &at));
    for (size_t i = 0; i < bytes; i += 3) {
        size_t left = bytes - i;
        uint32_t three = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                         (left > 2 ? in[i + 2] : 0);
        *at++ = (uint8_t)digits[three >> 18];
        *at++ = (uint8_t)digits[three >> 12 & 63];
        *at++ = (uint8_t)(left > 1 ? digits[three >> 6 & 63] : '=');
        *at++ = (uint8_t)(left > 2 ? digits[three & 63] : '=');
    }
    *at = '"';
    lsi_buffer_added(out, size + 1);
    return LS_OK;
}

void lsi_etcd_prefix_end(const char *prefix, char *end)
{
    size_t bytes = strlen(prefix);
    memcpy(end, prefix, bytes + 1);
    end[bytes - 1]++; /* printable: at most '~', and its successor is a byte too */
}

/* "key":… and, if there is one, "range_end":… */
static ls_status add_keys(lsi_buffer *out, const char *key, const char *end)
{
    LSI_TRY(add_bytes(out, "key", key, strlen(key)));
    if (!end)
        return LS_OK;
    LSI_TRY(add(out, ","));
    return add_bytes(out, "range_end", end, strlen(end));
}

ls_status lsi_etcd_range(lsi_buffer *out, const char *key, const char *end, uint64_t revision,
                         int limit)
{
    LSI_TRY(add(out, "{"));
    LSI_TRY(add_keys(out, key, end));
    return add(out, ",\"revision\":\"%" PRIu64 "\",\"limit\":\"%d\"}", revision, limit);
}

ls_status lsi_etcd_put(lsi_buffer *out, const char *key, const void *value, size_t bytes,
                       uint64_t lease)
{
    LSI_TRY(add(out, "{"));
    LSI_TRY(add_keys(out, key, NULL));
    LSI_TRY(add(out, ","));
    LSI_TRY(add_bytes(out, "value", value, bytes));
    return add(out, ",\"lease\":\"%" PRIu64 "\"}", lease);
}

/* The rest of a transaction that has begun with a comparison of the key. */
static ls_status add_put_or_range(lsi_buffer *out, const char *key, const void *value, size_t bytes,
                                  uint64_t lease)
{
    LSI_TRY(add_keys(out, key, NULL));
    LSI_TRY(add(out, "}],\"success\":[{\"request_put\":"));
    LSI_TRY(lsi_etcd_put(out, key, value, bytes, lease));
    LSI_TRY(add(out, "}],\"failure\":[{\"request_range\":{"));
    LSI_TRY(add_keys(out, key, NULL));
    return add(out, "}}]}");
}

ls_status lsi_etcd_put_unless_changed(lsi_buffer *out, const char *key, uint64_t revision,
                                      const void *value, size_t bytes, uint64_t lease)
{
    LSI_TRY(add(out,
                "{\"compare\":[{\"target\":\"MOD\",\"result\":\"LESS\",\"mod_revision\":\"%" PRIu64
                "\",",
                revision + 1));
    return add_put_or_range(out, key, value, bytes, lease);
}

ls_status lsi_etcd_compare_and_put(lsi_buffer *out, const char *key, uint64_t expected,
                                   const void *value, size_t bytes, uint64_t lease)
{
    LSI_TRY(
        add(out, "{\"compare\":[{\"target\":\"%s\",\"result\":\"EQUAL\",\"%s\":\"%" PRIu64 "\",",
            expected ? "MOD" : "CREATE", expected ? "mod_revision" : "create_revision", expected));
    return add_put_or_range(out, key, value, bytes, lease);
}

ls_status lsi_etcd_delete(lsi_buffer *out, const char *key)
{
    LSI_TRY(add(out, "{"));
    LSI_TRY(add_keys(out, key, NULL));
    return add(out, "}");
}

ls_status lsi_etcd_grant(lsi_buffer *out, uint64_t lease, uint64_t ttl_s)
{
    return add(out, "{\"ID\":\"%" PRIu64 "\",\"TTL\":\"%" PRIu64 "\"}", lease, ttl_s);
}

ls_status lsi_etcd_lease(lsi_buffer *out, uint64_t lease)
{
    return add(out, "{\"ID\":\"%" PRIu64 "\"}", lease);
}

ls_status lsi_etcd_watch(lsi_buffer *out, const char *key, const char *end, uint64_t revision)
{
    LSI_TRY(add(out, "{\"create_request\":{"));
    LSI_TRY(add_keys(out, key, end));
    return add(out,
               ",\"start_revision\":\"%" PRIu64 "\",\"progress_notify\":true,\"fragment\":true}}",
               revision);
}

static ls_status refuse(const char *name, const char *problem)
{
    return lsi_fail(LS_ERR_PROTOCOL, "is that an etcd with its v3 JSON gateway?", "store",
                    "etcd's answer: '%s' %s", name, problem);
}

/* A member that must be an object or an array if it is there; NULL if not. */
static ls_status get_typed(const json_t *object, const char *name, json_type type, json_t **out)
{
    *out = json_object_get(object, name);
    if (*out && json_typeof(*out) != type)
        return refuse(name, "has another type");
    return LS_OK;
}

static ls_status get_flag(const json_t *object, const char *name, int *out)
{
    const json_t *value = json_object_get(object, name);
    if (value && !json_is_boolean(value))
        return refuse(name, "is neither true nor false");
    *out = json_is_true(value);
    return LS_OK;
}

/* int64: a string of digits, or a number; 0 if it is not there. */
static ls_status get_number(const json_t *object, const char *name, uint64_t *out)
{
    const json_t *value = json_object_get(object, name);
    *out = 0;
    if (!value)
        return LS_OK;
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out = (uint64_t)json_integer_value(value);
        return LS_OK;
    }
    const char *text = json_string_value(value);
    size_t length = text ? strlen(text) : 0;
    if (length == 0 || length > 19 || strspn(text, "0123456789") != length)
        return refuse(name, "is not a number");
    for (; *text; text++) /* 19 digits fit */
        *out = *out * 10 + (uint64_t)(*text - '0');
    return *out <= INT64_MAX ? LS_OK : refuse(name, "is too large");
}

static int digit_value(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Exactly what add_bytes writes: padded, nothing else in between, no stray bits. */
static int decode(const char *text, size_t length, uint8_t *out, size_t *bytes)
{
    if (length % 4 != 0)
        return 0;
    size_t padding =
        length == 0 ? 0 : (size_t)(text[length - 1] == '=') + (text[length - 2] == '=');
    uint32_t bits = 0;
    for (size_t i = 0; i < length - padding; i++) {
        int value = digit_value(text[i]);
        if (value < 0)
            return 0;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 != 0)
            *out++ = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    *bytes = length / 4 * 3 - padding;
    return padding == 0 || (bits & (padding == 1 ? 3u : 15u)) == 0;
}

static ls_status get_bytes(const json_t *object, const char *name, uint8_t **memory,
                           const uint8_t **out, size_t *bytes)
{
    const json_t *value = json_object_get(object, name);
    *out = *memory;
    *bytes = 0;
    if (!value)
        return LS_OK;
    if (!json_is_string(value) ||
        !decode(json_string_value(value), json_string_length(value), *memory, bytes))
        return refuse(name, "is not base64");
    *memory += *bytes;
    return LS_OK;
}

static ls_status read_entry(const json_t *kv, uint8_t **memory, lsi_etcd_entry *entry)
{
    if (!json_is_object(kv))
        return refuse("kv", "has another type");
    LSI_TRY(get_bytes(kv, "key", memory, &entry->key, &entry->key_bytes));
    LSI_TRY(get_bytes(kv, "value", memory, &entry->value, &entry->bytes));
    LSI_TRY(get_number(kv, "mod_revision", &entry->version));
    if (entry->key_bytes == 0 || entry->version == 0)
        return refuse("kv", "lacks its key or its revision");
    return LS_OK;
}

/* Keys of a range, or changes of a watch. `bytes` of text are enough memory for what they hold. */
static ls_status read_entries(const json_t *list, int are_events, size_t bytes,
                              lsi_etcd_answer *out)
{
    size_t count = json_array_size(list), i;
    const json_t *item;
    if (count == 0)
        return LS_OK;
    out->entries = calloc(count, sizeof *out->entries);
    out->memory = malloc(bytes);
    if (!out->entries || !out->memory)
        return lsi_fail(LS_ERR_NOMEM, NULL, "store", "no memory for %zu keys", count);
    uint8_t *memory = out->memory;
    json_array_foreach(list, i, item)
    {
        lsi_etcd_entry *entry = &out->entries[i];
        const json_t *type = json_object_get(item, "type");
        if (are_events && type) {
            const char *name = json_string_value(type);
            entry->deleted = name && strcmp(name, "DELETE") == 0;
            if (!entry->deleted && !(name && strcmp(name, "PUT") == 0))
                return refuse("type", "is neither PUT nor DELETE");
        }
        LSI_TRY(read_entry(are_events ? json_object_get(item, "kv") : item, &memory, entry));
    }
    out->count = count;
    return LS_OK;
}

/* Words of a stranger, for an error text: printable ones only. */
static void copy_words(lsi_etcd_answer *out, const char *words)
{
    snprintf(out->words, sizeof out->words, "%s", words ? words : "");
    for (char *c = out->words; *c; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
}

/* An error is {"error": words, "code": number} or, in a stream, {"error": {"grpc_code": …}}. */
static ls_status read_error(const json_t *root, lsi_etcd_answer *out)
{
    const json_t *error = json_object_get(root, "error");
    const json_t *inner = json_is_object(error) ? error : root;
    const json_t *code = json_object_get(inner, "code"), *words = json_object_get(inner, "message");
    if (!code)
        code = json_object_get(inner, "grpc_code");
    if (!error && !code)
        return LS_OK;
    if (!words)
        words = error;
    if (!json_is_integer(code) || json_integer_value(code) < 1 ||
        json_integer_value(code) > CODE_MAX)
        return refuse("code", "is not one of gRPC's");
    if (!json_is_string(words))
        return refuse("error", "has no words");
    out->code = (int)json_integer_value(code);
    copy_words(out, json_string_value(words));
    return LS_OK;
}

static ls_status read_answer(const json_t *root, size_t bytes, lsi_etcd_answer *out)
{
    json_t *header, *list, *result, *events;
    if (!json_is_object(root))
        return refuse("answer", "is not an object");
    LSI_TRY(read_error(root, out));
    if (out->code != LSI_ETCD_FINE)
        return LS_OK;
    LSI_TRY(get_typed(root, "result", JSON_OBJECT, &result)); /* of streams */
    if (result)
        root = result;
    LSI_TRY(get_typed(root, "header", JSON_OBJECT, &header));
    if (!header)
        return refuse("header", "is missing");
    LSI_TRY(get_number(header, "revision", &out->revision));
    LSI_TRY(get_flag(root, "succeeded", &out->succeeded));
    LSI_TRY(get_flag(root, "more", &out->more));
    LSI_TRY(get_number(root, "deleted", &out->deleted));
    LSI_TRY(get_number(root, "TTL", &out->ttl_s));
    LSI_TRY(get_flag(root, "created", &out->created));
    LSI_TRY(get_flag(root, "canceled", &out->canceled));
    LSI_TRY(get_flag(root, "fragment", &out->fragment));
    LSI_TRY(get_number(root, "compact_revision", &out->compacted));
    copy_words(out, json_string_value(json_object_get(root, "cancel_reason")));

    LSI_TRY(get_typed(root, "responses", JSON_ARRAY, &list)); /* of txn */
    const json_t *holder = root;
    if (json_array_size(list) > 0) {
        LSI_TRY(get_typed(json_array_get(list, 0), "response_range", JSON_OBJECT, &result));
        if (result)
            holder = result;
    }
    LSI_TRY(get_typed(holder, "kvs", JSON_ARRAY, &list));
    LSI_TRY(get_typed(root, "events", JSON_ARRAY, &events));
    if (list && events)
        return refuse("kvs", "and events at once");
    return read_entries(events ? events : list, events != NULL, bytes, out);
}

/* jansson takes some hundred bytes of memory for each member, however short it is. */
static int has_too_many_members(const char *text, size_t bytes)
{
    size_t marks = 0;
    for (size_t i = 0; i < bytes; i++)
        marks += text[i] == ',' || text[i] == '{' || text[i] == '[';
    return marks > MARKS_MAX;
}

ls_status lsi_etcd_parse(const void *text, size_t bytes, lsi_etcd_answer *out)
{
    lsi_etcd_answer answer = {0};
    json_error_t error;
    if (bytes == 0)
        return refuse("answer", "is empty");
    if (has_too_many_members(text, bytes))
        return refuse("answer", "has more members than any of etcd's");
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return lsi_fail(LS_ERR_PROTOCOL, "is that an etcd with its v3 JSON gateway?", "store",
                        "etcd's answer is not JSON: %s", error.text);
    ls_status status = read_answer(root, bytes, &answer);
    json_decref(root);
    if (status != LS_OK) {
        lsi_etcd_answer_free(&answer);
        return status;
    }
    *out = answer;
    return LS_OK;
}

void lsi_etcd_answer_free(lsi_etcd_answer *answer)
{
    free(answer->entries);
    free(answer->memory);
    memset(answer, 0, sizeof *answer);
}
