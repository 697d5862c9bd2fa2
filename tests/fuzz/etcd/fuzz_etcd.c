/* Fuzzes the reading of etcd's answers: any bytes are taken or refused, and what was taken lies
 * where the answer says. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/etcd_json.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum(const uint8_t *data, size_t bytes)
{
    uint64_t total = 0;
    for (size_t i = 0; i < bytes; i++)
        total += data[i];
    return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lsi_etcd_answer answer;
    uint64_t total = 0;
    if (lsi_etcd_parse(data, size, &answer) != LS_OK)
        return 0;
    CHECK(memchr(answer.words, '\0', sizeof answer.words));
    CHECK(answer.count == 0 || (answer.entries && answer.code == LSI_ETCD_FINE));
    for (size_t i = 0; i < answer.count; i++) {
        const lsi_etcd_entry *entry = &answer.entries[i];
        CHECK(entry->key_bytes > 0 && entry->version > 0);
        total += sum(entry->key, entry->key_bytes) + sum(entry->value, entry->bytes);
    }
    CHECK(total < UINT64_MAX);
    lsi_etcd_answer_free(&answer);
    CHECK(answer.count == 0 && !answer.entries);
    return 0;
}
