/* Numbers and sizes from text.
 *
 * Invariants:
 * 1. The whole text counts: no leading white space, no trailing rest, no empty text.
 * 2. An error names the flag or variable, the text given, and what would be accepted.
 */
#include "base/env.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define SECONDS_MAX 1e9 /* thirty years: longer sums would lose precision, and nobody waits */

/* strto* accept white space and signs that we do not. */
static int starts_as_number(const char *text)
{
    return text &&
           (isdigit((unsigned char)text[0]) || (text[0] == '-' && isdigit((unsigned char)text[1])));
}

static ls_status refuse(const char *name, const char *text, const char *accepted)
{
    return lsi_fail(LS_ERR_CONFIG, NULL, name, "'%.60s' is not %s", text ? text : "", accepted);
}

ls_status lsi_parse_int(const char *name, const char *text, long min, long max, long *out)
{
    char *end = NULL;
    errno = 0;
    long value = starts_as_number(text) ? strtol(text, &end, 10) : 0;
    if (!end || *end || errno || value < min || value > max)
        return lsi_fail(LS_ERR_CONFIG, NULL, name, "'%.60s' is not a whole number from %ld to %ld",
                        text ? text : "", min, max);
    *out = value;
    return LS_OK;
}

ls_status lsi_parse_seconds(const char *name, const char *text, double *out)
{
    char *end = NULL;
    double value = 0;
    if (starts_as_number(text) || (text && text[0] == '.' && isdigit((unsigned char)text[1])))
        value = strtod(text, &end);
    if (!end || *end || !isfinite(value) || value <= 0 || value > SECONDS_MAX)
        return refuse(name, text, "a number of seconds above 0 and at most 1e9, such as 0.5 or 30");
    *out = value;
    return LS_OK;
}

/* The power of 1024 that a suffix stands for, as a shift; -1 for an unknown suffix. */
static int size_shift(const char *suffix)
{
    if (!*suffix)
        return 0;
    if (suffix[1])
        return -1;
    switch (tolower((unsigned char)suffix[0])) {
    case 'k': return 10;
    case 'm': return 20;
    case 'g': return 30;
    default: return -1;
    }
}

ls_status lsi_parse_size(const char *name, const char *text, size_t *out)
{
    static const char accepted[] = "a number of bytes, with an optional k, M or G, such as 64M";
    if (!starts_as_number(text) || text[0] == '-')
        return refuse(name, text, accepted);

    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = size_shift(end);
    if (errno || shift < 0)
        return refuse(name, text, accepted);
    if (value > (unsigned long long)(SIZE_MAX >> shift))
        return refuse(name, text, "a size that fits in an address");
    *out = (size_t)value << shift;
    return LS_OK;
}

/* The variable's text, NULL when it is unset or empty. */
static const char *set_value(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

ls_status lsi_env_int(const char *name, long min, long max, long *out)
{
    const char *text = set_value(name);
    return text ? lsi_parse_int(name, text, min, max, out) : LS_OK;
}

ls_status lsi_env_seconds(const char *name, double *out)
{
    const char *text = set_value(name);
    return text ? lsi_parse_seconds(name, text, out) : LS_OK;
}

ls_status lsi_env_size(const char *name, size_t *out)
{
    const char *text = set_value(name);
    return text ? lsi_parse_size(name, text, out) : LS_OK;
}
