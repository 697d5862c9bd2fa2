/* The sizes of a benchmark, from text.
 *
 * Invariants:
 * 1. Ranges are inclusive: 8:64:x2 has 64.
 * 2. Nothing here loops longer than LSI_BENCH_SIZES_MAX, whatever the text says.
 */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/status.h"
#include "cli/cli.h"

static const char name[] = "--sizes";
static const char hint[] = "e.g. 8:128M:x4, 0:1M:+64k, or 8,4k,1M";

static ls_status refuse(const char *item, const char *why)
{
    return lsi_fail(LS_ERR_CONFIG, hint, name, "'%.60s' %s", item, why);
}

static ls_status add(lsi_bench_options *options, const char *item, size_t bytes)
{
    if (bytes > LSI_BENCH_SIZE_MAX)
        return refuse(item, "is above 1024G");
    if (options->n_sizes == LSI_BENCH_SIZES_MAX)
        return lsi_fail(LS_ERR_CONFIG, "take larger steps", name, "more than %d sizes",
                        LSI_BENCH_SIZES_MAX);
    options->sizes[options->n_sizes++] = bytes;
    return LS_OK;
}

/* FROM:TO:xFACTOR or FROM:TO:+STEP; `text` is cut up. */
static ls_status add_range(lsi_bench_options *options, const char *item, char *text)
{
    size_t from = 0, to = 0, step = 0;
    char *end = strchr(text, ':'), *by = strchr(end + 1, ':');
    if (!by || (by[1] != 'x' && by[1] != '+'))
        return refuse(item, "is not FROM:TO:xFACTOR or FROM:TO:+STEP");
    *end = *by = 0;
    if (lsi_parse_size(name, text, &from) != LS_OK || lsi_parse_size(name, end + 1, &to) != LS_OK ||
        lsi_parse_size(name, by + 2, &step) != LS_OK)
        return refuse(item, "has a part that is no number (k, M and G may follow one)");
    if (from > to)
        return refuse(item, "begins above its end");
    if (by[1] == 'x' ? step < 2 || from == 0 : step == 0)
        return refuse(item, "never reaches its end");
    int multiply = by[1] == 'x';
    for (size_t bytes = from;; bytes = multiply ? bytes * step : bytes + step) {
        LSI_TRY(add(options, item, bytes));
        if (multiply ? bytes > to / step : step > to - bytes)
            return LS_OK;
    }
}

static ls_status add_item(lsi_bench_options *options, const char *item)
{
    char text[64];
    size_t bytes = 0;
    snprintf(text, sizeof text, "%s", item);
    if (strchr(text, ':'))
        return add_range(options, item, text);
    if (lsi_parse_size(name, text, &bytes) != LS_OK)
        return refuse(item, "is no number of bytes (k, M and G may follow)");
    return add(options, item, bytes);
}

ls_status lsi_bench_parse_sizes(const char *text, lsi_bench_options *options)
{
    options->n_sizes = 0;
    for (;;) {
        char item[64];
        size_t length = strcspn(text, ",");
        if (length == 0 || length >= sizeof item)
            return refuse(text, length ? "is too long" : "is no size");
        snprintf(item, sizeof item, "%.*s", (int)length, text);
        LSI_TRY(add_item(options, item));
        if (!text[length])
            return LS_OK;
        text += length + 1;
    }
}
