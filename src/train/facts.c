/* Counts and fingerprint of a run's data. */
#include "train/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define SAMPLES 32               /* of a part, but */
#define ENOUGH ((size_t)1 << 20) /* not more bytes than this, if there are at least */
#define FEWEST 4                 /* of them: it is to take milliseconds */

/* So many of `count` samples, each of `bytes`. */
static uint64_t how_many(uint64_t count, size_t bytes)
{
    uint64_t n = bytes ? ENOUGH / bytes : SAMPLES;
    n = n < FEWEST ? FEWEST : n > SAMPLES ? SAMPLES : n;
    return n < count ? n : count;
}

/* One part of the data; place[f] in `room`, which has `bytes`. */
static ls_status add_part(lsi_sha256 *hash, const ls_dataset *set, void *const *place, void *room,
                          size_t bytes)
{
    const uint64_t count = ls_dataset_count(set), n = how_many(count, bytes);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t index = n > 1 ? (count - 1) / (n - 1) * i : 0;
        const ls_status status = ls_dataset_read(set, index, 0, place);
        if (status == LS_OK)
            LSI_TRY(lsi_sha256_update(hash, room, bytes));
        else
            LSI_TRY(lsi_sha256_update(hash, &status, sizeof status));
    }
    return LS_OK;
}

ls_status lsi_facts_find(const ls_dataset *train, const ls_dataset *held, const lsi_fields *fields,
                         lsi_facts *out)
{
    unsigned char digest[LSI_SHA256_BYTES];
    void *place[LSI_FIELDS_MAX];
    size_t all = 0;
    lsi_sha256 *hash = NULL;
    for (int f = 0; f < fields->n; f++)
        all += fields->bytes[f];
    char *room = calloc(all + 1, 1);
    if (!room)
        return lsi_fail(LS_ERR_NOMEM, NULL, "data", "out of memory");
    place[0] = room;
    for (int f = 1; f < fields->n; f++)
        place[f] = (char *)place[f - 1] + fields->bytes[f - 1];
    ls_status status = lsi_sha256_create(&hash);
    if (status == LS_OK)
        status = add_part(hash, train, place, room, all);
    if (status == LS_OK && held)
        status = add_part(hash, held, place, room, all);
    if (status == LS_OK)
        status = lsi_sha256_final(hash, digest);
    if (status == LS_OK) {
        *out = (lsi_facts){ls_dataset_count(train), held ? ls_dataset_count(held) : 0, ""};
        lsi_sha256_hex(digest, out->sha256);
    }
    lsi_sha256_destroy(hash);
    free(room);
    return status;
}

int lsi_facts_are_same(const lsi_facts *a, const lsi_facts *b)
{
    return a->train == b->train && a->held == b->held && strcmp(a->sha256, b->sha256) == 0;
}

void lsi_facts_print(const lsi_facts *facts, char text[LSI_FACTS_TEXT])
{
    snprintf(text, LSI_FACTS_TEXT, "%llu %llu %s", (unsigned long long)facts->train,
             (unsigned long long)facts->held, facts->sha256);
}

int lsi_facts_parse(const char *text, lsi_facts *out)
{
    char line[LSI_FACTS_TEXT];
    unsigned long long train, held;
    lsi_facts found = {0};
    int used = 0;
    const int length = snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
    if (length >= (int)sizeof line ||
        sscanf(line, "%19llu %19llu %64[0-9a-f]%n", &train, &held, found.sha256, &used) != 3 ||
        strlen(found.sha256) != LSI_SHA256_HEX - 1 || line[used] || !train)
        return 0;
    found.train = train;
    found.held = held;
    *out = found;
    return 1;
}
