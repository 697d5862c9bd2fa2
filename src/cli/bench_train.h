/* What the two files of `lockstep bench train` share: the command line, and a worker. */
#ifndef LSI_CLI_BENCH_TRAIN_H
#define LSI_CLI_BENCH_TRAIN_H

#define LSI_BENCH_SETS_MAX 32

typedef struct lsi_bench_train {
    const char *model, *optimizer, *device, *transport;
    const char *sets[LSI_BENCH_SETS_MAX];
    int n_sets;
    long batch, micro, shards, workers, seed, bucket; /* batch 0: as usual; workers 0: not given */
    double seconds;
    int profile, json, bind_core;
} lsi_bench_train;

/* Be one worker, from ls_init to the exit status. */
int lsi_bench_train_work(const lsi_bench_train *options);

#endif
