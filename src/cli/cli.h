/* The subcommands of `lockstep`. Each gets its own arguments (argv[0] is its name) and returns the
 * exit status: 0, 1 when the work failed, 2 when the arguments make no sense. */
#ifndef LSI_CLI_CLI_H
#define LSI_CLI_CLI_H

#include <stddef.h>
#include <stdint.h>

#include "base/host.h"
#include "coll/call.h"
#include <lockstep/comm.h>
#include <lockstep/status.h>
#include <lockstep/types.h>

#define LSI_CLI_FAILED 1
#define LSI_CLI_USAGE 2

int lsi_cli_run(int argc, char **argv);
int lsi_cli_bench(int argc, char **argv);
int lsi_cli_bench_train(int argc, char **argv);
int lsi_cli_train(int argc, char **argv);
int lsi_cli_join(int argc, char **argv);
int lsi_cli_eval(int argc, char **argv);
int lsi_cli_generate(int argc, char **argv);
int lsi_cli_predict(int argc, char **argv);
int lsi_cli_hash(int argc, char **argv);
int lsi_cli_chaos(int argc, char **argv);
int lsi_cli_info(int argc, char **argv);
int lsi_cli_status(int argc, char **argv);
/* Not for users: one rank of `lockstep bench`, which starts itself so. */
int lsi_cli_bench_worker(int argc, char **argv);
/* Likewise of `lockstep train` and `lockstep eval`. */
int lsi_cli_train_worker(int argc, char **argv);
int lsi_cli_eval_worker(int argc, char **argv);

/* Say on stderr what is wrong with the arguments of `command` (NULL: of lockstep itself), and
 * where help is. Returns LSI_CLI_USAGE. */
int lsi_cli_usage(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same with the error that was recorded last, by a parser of base/env.h say. */
int lsi_cli_bad_value(const char *command);
/* Say on stderr what failed, as recorded. Returns LSI_CLI_FAILED. */
int lsi_cli_fail(void);
/* After getopt_long returned '?' or ':' (opterr must be 0, optstring begin with "+:"). */
int lsi_cli_bad_option(const char *command, int code, char **argv);

/* info.c: what other commands want to know, too. */

/* Do the variables that ls_init reads make sense? `transport` stands for LOCKSTEP_TRANSPORT unless
 * it is NULL. LS_ERR_CONFIG names the variable. */
ls_status lsi_cli_check_environment(const char *transport);
/* Cores that we may use, at least 2 and at most LSI_MAX_RANKS: how many ranks are usual here. */
int lsi_cli_usual_ranks(void);
/* A line of /proc/meminfo, "MemAvailable" say, in bytes; 0 if there is none. */
size_t lsi_cli_memory(const char *name);
/* "Intel(R) Xeon(R) Processor", "aarch64" where the kernel does not tell. Returns `text`. */
const char *lsi_cli_processor(char *text, size_t bytes);

/* What the files of `lockstep bench` share. bench.c reads the command line and starts the ranks,
 * bench_worker.c is a rank: it measures and prints. bench_ops.c has one line for each collective,
 * bench_data.c makes inputs and compares results, bench_print.c has the table. */

#define LSI_BENCH_SIZES_MAX 512
#define LSI_BENCH_SIZE_MAX ((size_t)1 << 40)

/* How much a rank hands in, or gets back. */
typedef enum lsi_bench_part {
    LSI_BENCH_NONE = 0,
    LSI_BENCH_ONE, /* `count` elements */
    LSI_BENCH_ALL  /* a block of `count` elements for each rank */
} lsi_bench_part;

typedef struct lsi_bench_op {
    const char *name;
    lsi_coll coll;
    lsi_bench_part send, recv;
    unsigned char root_sends, root_receives; /* only the root does */
    unsigned char reduces;
    unsigned char in_place; /* LS_IN_PLACE is defined; with root_…: on the root */
    unsigned char uneven;   /* blocks are not all of `count` elements */
} lsi_bench_op;

typedef struct lsi_bench_options {
    const lsi_bench_op *op;
    int ranks, bind_core;
    const char *rules, *transport; /* NULL: the environment's */
    ls_dtype dtype;
    ls_op reduction;
    long iters, warmup; /* iters 0: as many as fit */
    int in_place, private_memory, json, check;
    int n_sizes, sizes_given; /* given: not to be lessened where memory is short */
    size_t sizes[LSI_BENCH_SIZES_MAX];
} lsi_bench_options;

/* One collective with its buffers, as bench_ops.c and bench_data.c see it. */
typedef struct lsi_bench_call {
    ls_comm *comm;
    const lsi_bench_op *op;
    ls_dtype dtype;
    ls_op reduction;
    int rank, size, root;
    size_t count;                 /* the mean of all blocks */
    size_t blocks[LSI_MAX_RANKS]; /* uneven: elements of the block to, and from, each rank */
    char *send, *recv;            /* in place: recv holds the input, too */
    int in_place;
} lsi_bench_call;

/* One line of the table. */
typedef struct lsi_bench_row {
    size_t bytes, count;
    const char *algorithm;
    double time_s, min_s, algbw, busbw; /* GB/s */
    int64_t wrong;                      /* elements, of all ranks */
} lsi_bench_row;

/* Be one rank of the group, from ls_init to the exit status. */
int lsi_bench_work(const lsi_bench_options *options);

/* bench_sizes.c: "8:128M:x4", "0:1k:+256", "8,64k,1M", or several of these with commas. */
ls_status lsi_bench_parse_sizes(const char *text, lsi_bench_options *options);

/* By name; NULL if there is none. */
const lsi_bench_op *lsi_bench_find(const char *name);
/* "allreduce, reduce, …". */
const char *lsi_bench_list(void);
/* Elements that a size of `bytes` comes to: of a rank, or of a block where the larger side has one
 * for each rank. At least 1 unless `bytes` is 0. */
size_t lsi_bench_count(const lsi_bench_op *op, size_t bytes, ls_dtype dtype, int ranks);
/* Set the count, and the blocks where they are uneven: a half and one and a half times `count` in
 * turns, so that those of a rank are `count` times their number together. */
void lsi_bench_deal(lsi_bench_call *call, size_t count);
/* Elements of the block to or from rank b. */
size_t lsi_bench_block(const lsi_bench_call *call, int b);
/* Bytes of the larger side, for `count` elements: what the table shows as size. */
size_t lsi_bench_bytes(const lsi_bench_op *op, size_t count, ls_dtype dtype, int ranks);
/* Bus bandwidth / algorithm bandwidth, as nccl-tests has it. */
double lsi_bench_bus_factor(const lsi_bench_op *op, int ranks);
/* Does this rank find its input in `recv`? Only the root may gather and scatter in place: the
 * others do as ever. A broadcast is in place always. */
int lsi_bench_is_in_place(const lsi_bench_call *call);
/* Call it once. Blocks. */
ls_status lsi_bench_run(const lsi_bench_call *call);

/* Write the input, and rubbish to where the result is to be. */
void lsi_bench_fill(const lsi_bench_call *call);
/* How many elements of this rank's result are wrong? */
size_t lsi_bench_wrong(const lsi_bench_call *call);

/* On standard output, as a table or as options->json says. */
void lsi_bench_print_header(const lsi_bench_options *options, const ls_comm *comm);
void lsi_bench_print_row(const lsi_bench_options *options, const ls_comm *comm,
                         const lsi_bench_row *row);
/* `busbw`: the average over the rows; `wrong`: the sum. */
void lsi_bench_print_end(const lsi_bench_options *options, double busbw, int64_t wrong);

#endif
