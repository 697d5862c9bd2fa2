/* The output of lockstep bench: a table in the manner of nccl-tests, or one JSON object a line.
 *
 * Invariants:
 * 1. In the table, all that is not a row begins with '#'. With --json there are only objects.
 * 2. Nothing is flushed here: the caller does, and looks whether it worked.
 */
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "coll/comm.h"
#include "coll/reduce.h"
#include <lockstep/version.h>

/* What the bytes travel by. */
static const char *transport(const ls_comm *comm)
{
    const lsi_world *w = comm->world;
    if (w->size == 1)
        return "none";
    if (!w->use_boards || w->hosts == w->size)
        return "tcp";
    return w->hosts > 1 ? "shm+tcp" : "shm";
}

static int has_data(const lsi_bench_options *o)
{
    return o->op->send != LSI_BENCH_NONE;
}

static const char *memory(const lsi_bench_options *o)
{
    return o->private_memory ? "malloc" : "ls_alloc";
}

/* NULL where there is none. */
static const char *type_name(const lsi_bench_options *o)
{
    return has_data(o) ? ls_dtype_name(o->dtype) : NULL;
}

static const char *op_name(const lsi_bench_options *o)
{
    return o->op->reduces ? ls_op_name(o->reduction) : NULL;
}

void lsi_bench_print_header(const lsi_bench_options *o, const ls_comm *comm)
{
    char processor[128], host[64] = "?", rules[256] = "direct";
    const lsi_world *w = comm->world;
    if (o->json)
        return;
    gethostname(host, sizeof host - 1);
    if (o->op->coll != LSI_P2P)
        ls_comm_selection(comm, o->op->name, rules, sizeof rules);
    printf("# lockstep %s: %s, %d rank%s", ls_version(), o->op->name, w->size,
           w->size > 1 ? "s" : "");
    if (w->hosts > 1)
        printf(" on %d hosts", w->hosts);
    printf("\n# %s  %s, %s, %ld cores, %s\n", w->hosts > 1 ? "rank 0 on" : "machine  ", host,
           lsi_cli_processor(processor, sizeof processor), sysconf(_SC_NPROCESSORS_ONLN),
           lsi_reduce_level_name(lsi_reduce_levels() - 1));
    printf("# transport  %s%s%s", transport(comm), *w->interfaces ? " by " : "", w->interfaces);
    if (has_data(o))
        printf(", buffers from %s%s", memory(o), o->in_place ? ", timed in place" : "");
    printf("\n# selection  %s\n#\n", rules);
    printf("# %10s %12s %5s %5s %9s %11s %11s %9s %9s %7s\n", "size", "count", "type", "op",
           "algorithm", "time", "min", "algbw", "busbw", "wrong");
    printf("# %10s %12s %5s %5s %9s %11s %11s %9s %9s\n", "(B)", "(elements)", "", "", "", "(us)",
           "(us)", "(GB/s)", "(GB/s)");
}

static void print_json(const lsi_bench_options *o, const ls_comm *comm, const lsi_bench_row *r)
{
    const char *interfaces = comm->world->interfaces;
    json_t *errors = o->check ? json_integer(r->wrong) : json_null();
    json_t *line = json_pack(
        "{s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:s, s:i, s:o, s:s?, s:s?, s:s, s:s?, s:b, s:s}",
        "collective", o->op->name, "bytes", (json_int_t)r->bytes, "count", (json_int_t)r->count,
        "time_us", r->time_s * 1e6, "min_us", r->min_s * 1e6, "algbw_gbs", r->algbw, "busbw_gbs",
        r->busbw, "algorithm", r->algorithm, "ranks", ls_comm_size(comm), "errors", errors, "dtype",
        type_name(o), "op", op_name(o), "transport", transport(comm), "interface",
        *interfaces ? interfaces : NULL, "in_place", o->in_place, "memory", memory(o));
    if (line)
        json_dumpf(line, stdout, JSON_REAL_PRECISION(7));
    putchar('\n');
    json_decref(line);
}

void lsi_bench_print_row(const lsi_bench_options *o, const ls_comm *comm, const lsi_bench_row *r)
{
    const char *type = type_name(o), *op = op_name(o);
    char wrong[24] = "-";
    if (o->json) {
        print_json(o, comm, r);
        return;
    }
    if (o->check)
        snprintf(wrong, sizeof wrong, "%lld", (long long)r->wrong);
    printf("%12zu %12zu %5s %5s %9s %11.2f %11.2f %9.3f %9.3f %7s\n", r->bytes, r->count,
           type ? type : "-", op ? op : "-", r->algorithm, r->time_s * 1e6, r->min_s * 1e6,
           r->algbw, r->busbw, wrong);
}

void lsi_bench_print_end(const lsi_bench_options *o, double busbw, int64_t wrong)
{
    if (o->json)
        return;
    printf("#");
    if (has_data(o))
        printf(" average bus bandwidth %.3f GB/s,", busbw);
    if (o->check)
        printf(" %lld wrong\n", (long long)wrong);
    else
        printf(" not checked\n");
}
