/* A long sequence cut into samples; the contract is in sequence.h. */
#include "data/sequence.h"

ls_status lsi_sequence_part(const ls_dataset *dataset, const char *what, const char *path,
                            uint64_t total, int own, lsi_sequence *sequence)
{
    if (total < 2)
        return lsi_fail(LS_ERR_CONFIG, NULL, what, "%s has %llu tokens, too few for one sample",
                        path, (unsigned long long)total);
    const uint64_t train = own ? 0 : total - lsi_held_out(dataset, total);
    sequence->begin = dataset->config.validation && !own ? train : 0;
    sequence->end = dataset->config.validation || own ? total : train;
    return LS_OK;
}

ls_status lsi_sequence_bind(ls_dataset *dataset, const char *what, const char *path, size_t vocab,
                            const ls_data_field *fields, int count, lsi_sequence *sequence)
{
    const ls_data_field *wanted = lsi_field(fields, count, "tokens");
    if (!wanted)
        wanted = lsi_field(fields, count, "targets");
    const size_t context = wanted && wanted->ndim == 1 ? wanted->dims[0] : 1;
    const lsi_offer offers[2] = {
        {"tokens", LS_I32, 1, {context}, vocab},
        {"targets", LS_I32, 1, {context}, vocab},
    };
    LSI_TRY(lsi_match(dataset, offers, 2, fields, count, sequence->place));
    const uint64_t length = sequence->end - sequence->begin;
    if (length <= context)
        return lsi_fail(LS_ERR_CONFIG, "a shorter context, more data, or another share held out",
                        what, "%s: the part to %s has %llu tokens, one sample takes %zu", path,
                        dataset->config.validation ? "test on" : "train on",
                        (unsigned long long)length, context + 1);
    uint32_t least = UINT32_MAX; /* the smaller one of the two fields' bounds */
    for (int i = 0; i < 2; i++)
        if (sequence->place[i] >= 0 && fields[sequence->place[i]].bound &&
            fields[sequence->place[i]].bound < least)
            least = (uint32_t)fields[sequence->place[i]].bound;
    sequence->vocab = least == UINT32_MAX ? (uint32_t)INT32_MAX + 1 : least;
    sequence->context = context;
    dataset->count = (length - 1) / context;
    return LS_OK;
}
