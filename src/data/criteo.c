/* Clicks as Criteo publishes them (Kaggle display advertising, Terabyte logs): a line is
 *
 *     label TAB 13 whole numbers TAB 26 categories as hexadecimal of at most 32 bits
 *
 * where numbers and categories may be missing. Numbers become ln(1 + max(x, 0)), missing ones 0.
 * Categories are hashed into the rows of the model's tables, with the column as salt; a missing one
 * is a category of its own.
 *
 * 1. Opening goes through the file once and notes the offset of every MARK-th line, 8 bytes for
 *    about 8 KB; the file stays on the disk. A line is parsed when it is read, and errors name its
 *    number and offset. The first line is parsed at open, so that another file is refused early.
 * 2. The logarithm is made of double additions, multiplications and one division (no libm).
 * 3. The lines are in the order of time: the last share is held out.
 */
#include <stdlib.h>
#include <string.h>

#include "data/file.h"
#include "data/format.h"

#define WHAT "data criteo"
#define MARK 32
#define DENSE 13
#define TABLES 26
#define COLUMNS (1 + DENSE + TABLES)

typedef struct state {
    lsi_file file;
    uint64_t *marks;
    uint64_t lines;
    uint32_t rows;
    int place[3]; /* dense, ids, target */
} state;

/* What a line says. */
typedef struct record {
    float target, dense[DENSE];
    uint64_t category[TABLES]; /* above 32 bits: missing */
} record;

/* ---- values --------------------------------------------------------------------------------- */

/* ln(1 + x): 1 + x = m 2^e with m in [1, 2), ln m = 2 artanh(t) with t = (m - 1) / (m + 1) <= 1/3,
 * by its series to t^15: 2e-9 off at most. */
static float log_of(uint32_t x)
{
    const double v = (double)x + 1.0;
    const int e = 63 - __builtin_clzll((uint64_t)x + 1);
    const double m = v / (double)((uint64_t)1 << e), t = (m - 1.0) / (m + 1.0), u = t * t;
    double sum = 1.0 / 15.0;
    for (int k = 13; k > 0; k -= 2)
        sum = sum * u + 1.0 / (double)k;
    return (float)((double)e * 0.69314718055994530942 + 2.0 * t * sum);
}

/* MurmurHash3's finalizer, then scaled to the rows. */
static int32_t row_of(uint64_t category, int column, uint32_t rows)
{
    uint64_t x = category + (uint64_t)(column + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return (int32_t)lsi_below((uint32_t)((x ^ x >> 33) >> 16), rows);
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* A whole number in [at, end); missing and negative ones are 0. Returns whether it is one. */
static int parse_number(const uint8_t *at, const uint8_t *end, uint32_t *out)
{
    const int negative = at < end && *at == '-';
    uint64_t x = 0;
    at += negative;
    if (at == end) {
        *out = 0;
        return !negative;
    }
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return 0;
        x = x * 10 + (uint64_t)(*at - '0');
        if (x > UINT32_MAX)
            return 0;
    }
    *out = negative ? 0 : (uint32_t)x;
    return 1;
}

static int parse_category(const uint8_t *at, const uint8_t *end, uint64_t *out)
{
    uint64_t x = 0;
    if (end - at > 8)
        return 0;
    *out = (uint64_t)1 << 32;
    if (at == end)
        return 1;
    for (; at < end; at++) {
        const uint8_t c = *at | 0x20;
        if (*at >= '0' && *at <= '9')
            x = x << 4 | (uint64_t)(*at - '0');
        else if (c >= 'a' && c <= 'f')
            x = x << 4 | (uint64_t)(c - 'a' + 10);
        else
            return 0;
    }
    *out = x;
    return 1;
}

static ls_status bad_line(const state *s, uint64_t line, const uint8_t *at, int column,
                          const char *expected)
{
    return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "%s: line %llu, column %d, offset %zu: expected %s",
                    s->file.path, (unsigned long long)(line + 1), column + 1,
                    (size_t)(at - s->file.bytes), expected);
}

static ls_status parse_column(const state *s, uint64_t line, int column, const uint8_t *at,
                              const uint8_t *end, record *out)
{
    uint32_t number = 0;
    if (column == 0) {
        if (end - at != 1 || (*at != '0' && *at != '1'))
            return bad_line(s, line, at, column, "the label 0 or 1");
        out->target = (float)(*at - '0');
    } else if (column <= DENSE) {
        if (!parse_number(at, end, &number))
            return bad_line(s, line, at, column, "a whole number of 32 bits, or nothing");
        out->dense[column - 1] = log_of(number);
    } else if (!parse_category(at, end, &out->category[column - 1 - DENSE])) {
        return bad_line(s, line, at, column, "at most 8 hexadecimal digits");
    }
    return LS_OK;
}

static ls_status parse_line(const state *s, uint64_t line, const uint8_t *at, record *out)
{
    const uint8_t *limit = s->file.bytes + s->file.size;
    const uint8_t *end = memchr(at, '\n', (size_t)(limit - at));
    end = end ? end : limit;
    if (end > at && end[-1] == '\r')
        end--;
    for (int column = 0; column < COLUMNS; column++) {
        const uint8_t *tab = memchr(at, '\t', (size_t)(end - at));
        if (!tab && column < COLUMNS - 1)
            return bad_line(s, line, end, column,
                            "40 columns with tabs between: a label, 13 numbers, 26 categories");
        if (tab && column == COLUMNS - 1)
            return bad_line(s, line, tab, column, "the line to end after 40 columns");
        LSI_TRY(parse_column(s, line, column, at, tab ? tab : end, out));
        at = tab ? tab + 1 : end;
    }
    return LS_OK;
}

/* ---- the format ----------------------------------------------------------------------------- */

static ls_status index_lines(state *s)
{
    const uint8_t *at = s->file.bytes, *limit = at + s->file.size;
    size_t room = 0;
    for (; at < limit; s->lines++) {
        if (s->lines % MARK == 0) {
            if (s->lines / MARK == room) {
                room = room ? 2 * room : 1024;
                uint64_t *more = realloc(s->marks, room * sizeof *more);
                if (!more)
                    return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for the index of %s",
                                    s->file.path);
                s->marks = more;
            }
            s->marks[s->lines / MARK] = (uint64_t)(at - s->file.bytes);
        }
        const uint8_t *end = memchr(at, '\n', (size_t)(limit - at));
        at = end ? end + 1 : limit;
    }
    return LS_OK;
}

static ls_status open_criteo(ls_dataset *dataset)
{
    state *s = calloc(1, sizeof *s);
    if (!s)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for it");
    dataset->state = s;
    LSI_TRY(lsi_file_map(WHAT, dataset->config.path, &s->file));
    record first;
    if (parse_line(s, 0, s->file.bytes, &first) != LS_OK)
        return LS_ERR_CONFIG; /* the text stands */
    lsi_file_read_through(&s->file);
    LSI_TRY(index_lines(s));
    lsi_file_read_anywhere(&s->file);
    if (s->lines < 2)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT,
                        "%s has one line, which cannot be split into a part to train on and one to "
                        "test",
                        s->file.path);
    if (lsi_is_for(dataset, "dlrm"))
        memcpy(dataset->settings, "dense=13 tables=26", sizeof "dense=13 tables=26");
    const uint64_t held = lsi_held_out(dataset, s->lines);
    dataset->count = dataset->config.validation ? held : s->lines - held;
    return LS_OK;
}

static ls_status bind(ls_dataset *dataset, const ls_data_field *fields, int count)
{
    static const lsi_offer offers[3] = {
        {"dense", LS_F32, 1, {DENSE}, 0},
        {"ids", LS_I32, 1, {TABLES}, 0},
        {"target", LS_F32, 0, {0}, 0},
    };
    state *s = dataset->state;
    LSI_TRY(lsi_match(dataset, offers, 3, fields, count, s->place));
    if (s->place[1] >= 0) {
        s->rows = (uint32_t)fields[s->place[1]].bound;
        if (s->rows == 0)
            return lsi_fail(LS_ERR_CONFIG, "give the field 'ids' a bound", WHAT,
                            "categories are hashed into the rows of the model's tables, and the "
                            "model does not say how many these have");
    }
    return LS_OK;
}

static ls_status read_sample(const ls_dataset *dataset, uint64_t index, uint64_t epoch,
                             void *const *fields)
{
    (void)epoch;
    const state *s = dataset->state;
    uint64_t line = index + (dataset->config.validation ? s->lines - dataset->count : 0);
    const uint8_t *limit = s->file.bytes + s->file.size,
                  *at = s->file.bytes + s->marks[line / MARK];
    for (uint64_t skip = line % MARK; skip > 0; skip--) {
        const uint8_t *end = memchr(at, '\n', (size_t)(limit - at));
        if (!end)
            return bad_line(s, line, at, 0, "a line; the file was changed since it was opened");
        at = end + 1;
    }
    record r;
    LSI_TRY(parse_line(s, line, at, &r));
    if (s->place[0] >= 0)
        memcpy(fields[s->place[0]], r.dense, sizeof r.dense);
    if (s->place[1] >= 0)
        for (int t = 0; t < TABLES; t++)
            ((int32_t *)fields[s->place[1]])[t] = row_of(r.category[t], t, s->rows);
    if (s->place[2] >= 0)
        *(float *)fields[s->place[2]] = r.target;
    return LS_OK;
}

static void close_criteo(void *argument)
{
    state *s = argument;
    if (!s)
        return;
    lsi_file_close(&s->file);
    free(s->marks);
    free(s);
}

const lsi_format lsi_format_criteo = {
    .name = "criteo",
    .path = "a file of lines with label, 13 numbers and 26 categories",
    .open = open_criteo,
    .bind = bind,
    .read = read_sample,
    .close = close_criteo,
};
