/* What a model wants against what the data has, and words for the difference. */
#include <stdio.h>
#include <string.h>

#include "data/format.h"

static int is_called(const char *wanted, const char *offered)
{
    return !strcmp(wanted, offered) || (!strcmp(offered, "image") && !strcmp(wanted, "input"));
}

const ls_data_field *lsi_field(const ls_data_field *fields, int count, const char *name)
{
    for (int f = 0; f < count; f++)
        if (is_called(fields[f].name, name))
            return &fields[f];
    return NULL;
}

/* "f32 (32, 32, 3)" */
static void describe(ls_dtype dtype, int ndim, const size_t *dims, char text[LSI_DATA_TEXT])
{
    size_t used = (size_t)snprintf(text, LSI_DATA_TEXT, "%s (", ls_dtype_name(dtype));
    for (int d = 0; d < ndim && used < LSI_DATA_TEXT; d++)
        used +=
            (size_t)snprintf(text + used, LSI_DATA_TEXT - used, "%s%zu", d ? ", " : "", dims[d]);
    if (used < LSI_DATA_TEXT)
        snprintf(text + used, LSI_DATA_TEXT - used, ")");
}

/* "key=value key=value" as a hint, NULL when there are no settings. */
static const char *fitting(const ls_dataset *dataset, char text[LSI_DATA_TEXT + 32])
{
    snprintf(text, LSI_DATA_TEXT + 32, "settings of a model that fits: %s", dataset->settings);
    return *dataset->settings ? text : NULL;
}

static const char *where(const ls_dataset *dataset)
{
    return dataset->config.path ? dataset->config.path : "generated";
}

static ls_status not_offered(const ls_dataset *dataset, const lsi_offer *offers, int offer_count,
                             const char *wanted)
{
    char have[LSI_DATA_TEXT] = "", what[32], hint[LSI_DATA_TEXT + 32];
    size_t used = 0;
    for (int o = 0; o < offer_count && used < sizeof have; o++)
        used += (size_t)snprintf(have + used, sizeof have - used, "%s%s", o ? ", " : "",
                                 offers[o].name);
    snprintf(what, sizeof what, "data %s", dataset->format->name);
    return lsi_fail(LS_ERR_CONFIG, fitting(dataset, hint), what,
                    "%s: the model wants '%.60s', the data has %s", where(dataset), wanted, have);
}

static ls_status compare(const ls_dataset *dataset, const lsi_offer *offer,
                         const ls_data_field *field)
{
    char what[32], hint[LSI_DATA_TEXT + 32];
    snprintf(what, sizeof what, "data %s", dataset->format->name);
    int same = field->dtype == offer->dtype && field->ndim == offer->ndim;
    for (int d = 0; same && d < field->ndim; d++)
        same = field->dims[d] == offer->dims[d];
    if (!same) {
        char want[LSI_DATA_TEXT], have[LSI_DATA_TEXT];
        describe(field->dtype, field->ndim, field->dims, want);
        describe(offer->dtype, offer->ndim, offer->dims, have);
        return lsi_fail(LS_ERR_CONFIG, fitting(dataset, hint), what,
                        "%s: the model wants '%s' as %s, the data has %s", where(dataset),
                        field->name, want, have);
    }
    if (offer->bound && field->bound && offer->bound > field->bound)
        return lsi_fail(LS_ERR_CONFIG, fitting(dataset, hint), what,
                        "%s: values of '%s' are below %zu, the model takes only those below %zu",
                        where(dataset), field->name, offer->bound, field->bound);
    return LS_OK;
}

ls_status lsi_match(const ls_dataset *dataset, const lsi_offer *offers, int offer_count,
                    const ls_data_field *fields, int count, int *place)
{
    for (int o = 0; o < offer_count; o++)
        place[o] = -1;
    for (int f = 0; f < count; f++) {
        int o = 0;
        while (o < offer_count && !(is_called(fields[f].name, offers[o].name) && place[o] < 0))
            o++;
        if (o == offer_count)
            return not_offered(dataset, offers, offer_count, fields[f].name);
        LSI_TRY(compare(dataset, &offers[o], &fields[f]));
        place[o] = f;
    }
    return LS_OK;
}
