/* The data of a run: what this worker has of it, and who has it.
 *
 * 1. What must be found in the data (facts.h) belongs to the run: whoever finds something else has
 *    other files, and is refused. One who is about to join finds that out alone.
 * 2. A worker that came to a run and finds no data where the run says goes without: others, who
 *    have it, lend it what it needs (lend.h). Where the user has said where it lies, it must be
 *    there.
 * 3. Who has the data is asked once a generation, and known to all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "train/trainer.h"

static ls_status open_set(lsi_trainer *t, int validation, ls_dataset **out)
{
    ls_data_config config = LS_DATA_CONFIG_INIT;
    lsi_train_config_data(&t->config, validation, &config);
    if (t->job->data_path)
        config.path = t->job->data_path;
    LSI_TRY(ls_dataset_open(&config, out));
    return ls_dataset_bind(*out, t->fields.of, t->fields.n);
}

static ls_status check_count(const lsi_trainer *t, uint64_t count)
{
    if (!count)
        return lsi_fail(LS_ERR_CONFIG, "more data, or a smaller model.context", "data",
                        "there is not one sample to train on");
    if (t->config.train.batch > count)
        return lsi_fail(LS_ERR_CONFIG, "a smaller --batch", "train.batch",
                        "%llu, and there are %llu samples",
                        (unsigned long long)t->config.train.batch, (unsigned long long)count);
    return LS_OK;
}

/* All that follows from how much there is. */
static ls_status settle(lsi_trainer *t)
{
    t->count = t->facts.train;
    t->per_epoch = (t->count + t->config.train.batch - 1) / t->config.train.batch;
    LSI_TRY(lsi_train_config_total(&t->config, t->count, &t->total));
    t->optim = (ls_optim_config)LS_OPTIM_CONFIG_INIT;
    return lsi_train_config_optim(&t->config, t->total, &t->optim);
}

static ls_status refuse(const lsi_trainer *t, const lsi_facts *mine, const lsi_facts *run)
{
    const char *path = t->job->data_path ? t->job->data_path : t->config.data.path;
    return lsi_fail(LS_ERR_INVALID,
                    "name a copy of the run's with --data KIND:PATH; where there is none, the "
                    "other workers lend theirs",
                    "data",
                    "%s is not what the run is trained on: %llu samples, %llu held out, "
                    "fingerprint %.12s here; %llu, %llu, %.12s there",
                    path, (unsigned long long)mine->train, (unsigned long long)mine->held,
                    mine->sha256, (unsigned long long)run->train, (unsigned long long)run->held,
                    run->sha256);
}

/* What lies here; it must be what the run has, if that is known. */
static ls_status open_own(lsi_trainer *t)
{
    lsi_facts mine;
    LSI_TRY(check_count(t, ls_dataset_count(t->train)));
    LSI_TRY(open_set(t, 1, &t->held));
    if (ls_dataset_count(t->held) == 0) {
        ls_dataset_close(t->held);
        t->held = NULL;
    }
    LSI_TRY(lsi_facts_find(t->train, t->held, &t->fields, &mine));
    if (t->known && !lsi_facts_are_same(&mine, &t->facts))
        return refuse(t, &mine, &t->facts);
    t->facts = mine;
    t->known |= t->decided;
    return LS_OK;
}

static int may_go_without(const lsi_trainer *t)
{
    return !t->decided && !t->job->data_path && lsi_member_lasts(t->member);
}

ls_status lsi_source_open(lsi_trainer *t)
{
    const ls_status status = open_set(t, 0, &t->train);
    t->lacks = status == LS_ERR_NOT_FOUND && may_go_without(t);
    if (t->lacks && t->member->makes_vault) /* the first of its host, and it has just come */
        lsi_log(LSI_LOG_WARN, "no data here (%s): the other workers lend theirs", ls_last_error());
    if (!t->lacks) {
        LSI_TRY(status);
        LSI_TRY(open_own(t));
    }
    if (t->known || !t->lacks)
        LSI_TRY(settle(t));
    return lsi_member_tell_data(t->member, !t->lacks);
}

/* ---- together ------------------------------------------------------------------------------- */

/* What a worker says of itself. */
typedef struct standing {
    uint64_t has, known; /* the data; what the run's must be */
    lsi_facts facts;
} standing;

/* Who speaks for the run: the first who knows it, else the first who has data; -1: nobody. */
static int find_speaker(const standing *all, int n)
{
    for (int w = 0; w < n; w++)
        if (all[w].known)
            return w;
    for (int w = 0; w < n; w++)
        if (all[w].has)
            return w;
    return -1;
}

/* Everybody comes to the same end; of those who are refused the first says so. */
static ls_status take_facts(lsi_trainer *t, const standing *all)
{
    const int from = find_speaker(all, t->workers);
    int other = -1; /* the first whose data is not the run's */
    for (int w = t->workers - 1; from >= 0 && w >= 0; w--)
        if (all[w].has && !lsi_facts_are_same(&all[w].facts, &all[from].facts))
            other = w;
    if (from < 0 || other >= 0) {
        t->all_failed = 1;
        const ls_status status = from < 0 ? lsi_fail(LS_ERR_NOT_FOUND, NULL, "data",
                                                     "no worker has it, and none knows it")
                                          : refuse(t, &all[other].facts, &all[from].facts);
        return t->worker == (from < 0 ? 0 : other) ? status : lsi_fail_text(status, "");
    }
    t->facts = all[from].facts;
    t->known = 1;
    return t->per_epoch ? LS_OK : settle(t);
}

ls_status lsi_source_agree(lsi_trainer *t)
{
    const standing mine = {!t->lacks, (uint64_t)t->known, t->facts};
    standing *all = calloc((size_t)t->workers, sizeof *all);
    t->has = calloc((size_t)t->workers, sizeof *t->has);
    ls_status status = all && t->has ? ls_allgather(t->comm, &mine, all, sizeof mine, LS_U8)
                                     : lsi_fail(LS_ERR_NOMEM, NULL, "data", "out of memory");
    if (status == LS_OK)
        status = take_facts(t, all);
    t->sources = 0;
    for (int w = 0; status == LS_OK && w < t->workers; w++) {
        t->has[w] = all[w].has != 0;
        t->sources += t->has[w];
    }
    free(all);
    return status;
}

int lsi_source_place(const lsi_trainer *t)
{
    int place = 0;
    for (int w = 0; w < t->worker; w++)
        place += t->has[w];
    return t->has[t->worker] ? place : -1;
}
