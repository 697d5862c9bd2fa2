/* Parsing, printing and applying the selection rules.
 *
 * The defaults come from bench/algorithms on 2 cores, over shared memory and over loopback TCP, 2
 * to 12 ranks (docs/benchmarks.md): the board wins everywhere on one host, where `direct` leaves
 * the algorithm of what must go over the rings to the rules for these. By messages inside one
 * `direct` is best for small vectors, and `tree`, which needs the fewest messages, for large sums
 * of three ranks and more; the largest reduces are left to `direct` and `hd`, large broadcasts and
 * blocks to gather, which nobody adds, to `ring`. Between hosts each rank has a line of its own,
 * and the top of `tree` would be in the way: there `direct` has the fewest rounds, and `hd` fewer
 * messages, of large vectors or once there are many ranks; very large ones of four ranks are left
 * to `direct` again. What adds is chosen among these three alone: they add in the same order, so
 * what machine it is changes the time, and never a bit.
 */
#include "coll/select.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/status.h"
#include "coll/comm.h"

static const uint8_t offered[LSI_COLL_COUNT] = {
    [LSI_ALLREDUCE] = 1 << LSI_DIRECT | 1 << LSI_HD | 1 << LSI_RING | 1 << LSI_TREE,
    [LSI_REDUCE] = 1 << LSI_DIRECT | 1 << LSI_HD | 1 << LSI_RING | 1 << LSI_TREE,
    [LSI_REDUCE_SCATTER] = 1 << LSI_DIRECT | 1 << LSI_RING,
    [LSI_ALLGATHER] = 1 << LSI_DIRECT | 1 << LSI_RING,
    [LSI_ALLGATHERV] = 1 << LSI_DIRECT | 1 << LSI_RING,
    [LSI_BROADCAST] = 1 << LSI_DIRECT | 1 << LSI_RING | 1 << LSI_TREE,
    [LSI_GATHER] = 1 << LSI_DIRECT,
    [LSI_SCATTER] = 1 << LSI_DIRECT,
    [LSI_ALLTOALL] = 1 << LSI_DIRECT,
    [LSI_ALLTOALLV] = 1 << LSI_DIRECT,
    [LSI_BARRIER] = 1 << LSI_DIRECT,
    [LSI_P2P] = 1 << LSI_DIRECT,
};

int lsi_select_offers(lsi_coll coll, lsi_algorithm algorithm)
{
    return offered[coll] >> algorithm & 1;
}

#define KIB(n) ((size_t)(n) << 10)
#define SEGMENT KIB(66) /* what is larger takes more than one segment of TCP on loopback */

/* From how many bytes on so many ranks take another algorithm; they begin with `direct`. */
static const struct {
    lsi_reach reach;
    lsi_coll coll;
    int least, most; /* ranks */
    size_t from;
    lsi_algorithm algorithm;
} tuned[] = {
    {LSI_REACH_HOST, LSI_ALLREDUCE, 3, INT_MAX, SEGMENT, LSI_TREE},
    {LSI_REACH_HOST, LSI_REDUCE, 3, INT_MAX, SEGMENT, LSI_TREE},
    {LSI_REACH_HOST, LSI_REDUCE, 4, 4, KIB(1024), LSI_DIRECT},
    {LSI_REACH_HOST, LSI_REDUCE, 3, INT_MAX, KIB(1536), LSI_DIRECT},
    {LSI_REACH_HOST, LSI_REDUCE, 7, INT_MAX, KIB(4096), LSI_HD},
    {LSI_REACH_HOST, LSI_ALLGATHER, 6, INT_MAX, KIB(256), LSI_RING},
    {LSI_REACH_HOST, LSI_BROADCAST, 3, 3, KIB(2048), LSI_RING},
    {LSI_REACH_HOST, LSI_BROADCAST, 4, 5, KIB(1024), LSI_RING},
    {LSI_REACH_HOST, LSI_BROADCAST, 6, INT_MAX, KIB(384), LSI_RING},
    {LSI_REACH_HOST, LSI_BROADCAST, 7, INT_MAX, KIB(1024), LSI_TREE},
    {LSI_REACH_HOST, LSI_BROADCAST, 7, INT_MAX, KIB(4096), LSI_RING},
    {LSI_REACH_RINGS, LSI_REDUCE, 2, 2, KIB(1792), LSI_TREE},
    {LSI_REACH_RINGS, LSI_REDUCE, 3, 3, KIB(80), LSI_TREE},
    {LSI_REACH_RINGS, LSI_REDUCE, 3, 3, KIB(10240), LSI_DIRECT},
    {LSI_REACH_RINGS, LSI_REDUCE, 7, INT_MAX, KIB(224), LSI_TREE},
    {LSI_REACH_RINGS, LSI_REDUCE, 7, INT_MAX, KIB(1792), LSI_DIRECT},
    {LSI_REACH_RINGS, LSI_BROADCAST, 2, 2, KIB(56), LSI_TREE},
    {LSI_REACH_RINGS, LSI_BROADCAST, 2, 2, KIB(448), LSI_DIRECT},
    {LSI_REACH_RINGS, LSI_BROADCAST, 3, 3, KIB(10240), LSI_RING},
    {LSI_REACH_HOSTS, LSI_ALLREDUCE, 4, 4, KIB(128), LSI_HD},
    {LSI_REACH_HOSTS, LSI_ALLREDUCE, 4, 4, KIB(8192), LSI_DIRECT},
    {LSI_REACH_HOSTS, LSI_ALLREDUCE, 5, 8, KIB(256), LSI_HD},
    {LSI_REACH_HOSTS, LSI_ALLREDUCE, 9, INT_MAX, 0, LSI_HD},
    {LSI_REACH_HOSTS, LSI_BROADCAST, 5, INT_MAX, 0, LSI_TREE},
};

/* The last rule ends where the new one begins. */
static void change_from(lsi_rules *rules, size_t from, lsi_algorithm algorithm)
{
    lsi_rule *last = &rules->rules[rules->n - 1];
    if (last->algorithm == algorithm || rules->n == LSI_RULES_MAX)
        return;
    if (last->from < from) {
        last->to = from;
        last = &rules->rules[rules->n++];
    }
    *last = (lsi_rule){from, SIZE_MAX, algorithm};
}

void lsi_select_defaults(lsi_selection *selection, int size, lsi_reach reach)
{
    memset(selection, 0, sizeof *selection);
    for (int c = 0; c < LSI_COLL_COUNT; c++)
        selection->of[c] = (lsi_rules){1, {{0, SIZE_MAX, LSI_DIRECT}}};
    for (size_t i = 0; i < sizeof tuned / sizeof *tuned; i++)
        if (tuned[i].reach == reach && size >= tuned[i].least && size <= tuned[i].most)
            change_from(&selection->of[tuned[i].coll], tuned[i].from, tuned[i].algorithm);
}

lsi_algorithm lsi_select_tuned(lsi_coll coll, size_t bytes, int size, lsi_reach reach)
{
    lsi_algorithm chosen = LSI_DIRECT;
    for (size_t i = 0; i < sizeof tuned / sizeof *tuned; i++)
        if (tuned[i].reach == reach && tuned[i].coll == coll && size >= tuned[i].least &&
            size <= tuned[i].most && bytes >= tuned[i].from)
            chosen = tuned[i].algorithm;
    return chosen;
}

lsi_algorithm lsi_select(const lsi_selection *selection, lsi_coll coll, size_t bytes)
{
    const lsi_rules *r = &selection->of[coll];
    for (int i = 0; i < r->n; i++)
        if (bytes >= r->rules[i].from && bytes < r->rules[i].to)
            return r->rules[i].algorithm;
    return LSI_DIRECT;
}

static ls_status bad(const char *name, const char *item, lsi_coll coll)
{
    char list[64] = "";
    for (int a = 0; a < LSI_ALGORITHM_COUNT; a++)
        if (lsi_select_offers(coll, (lsi_algorithm)a)) {
            size_t used = strlen(list);
            snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                     lsi_algorithm_names[a]);
        }
    return lsi_fail(LS_ERR_CONFIG, "e.g. 0-4k:direct,4k-inf:ring, or one name for all sizes", name,
                    "cannot read '%s'; %s offers %s", item, lsi_coll_names[coll], list);
}

/* One "FROM-TO:ALGORITHM" or "ALGORITHM". */
static ls_status parse_rule(const char *name, const char *item, lsi_coll coll, lsi_rule *rule)
{
    char text[64];
    snprintf(text, sizeof text, "%s", item);
    char *algorithm = text;
    char *colon = strchr(text, ':');
    rule->from = 0;
    rule->to = SIZE_MAX;
    if (colon) {
        *colon = 0;
        algorithm = colon + 1;
        char *dash = strchr(text, '-');
        if (!dash)
            return bad(name, item, coll);
        *dash = 0;
        if (lsi_parse_size(name, text, &rule->from) != LS_OK)
            return bad(name, item, coll);
        if (strcmp(dash + 1, "inf") && lsi_parse_size(name, dash + 1, &rule->to) != LS_OK)
            return bad(name, item, coll);
        if (rule->to <= rule->from)
            return bad(name, item, coll);
    }
    for (int a = 0; a < LSI_ALGORITHM_COUNT; a++)
        if (!strcmp(algorithm, lsi_algorithm_names[a]) &&
            lsi_select_offers(coll, (lsi_algorithm)a)) {
            rule->algorithm = (lsi_algorithm)a;
            return LS_OK;
        }
    return bad(name, item, coll);
}

ls_status lsi_select_parse(const char *name, const char *text, lsi_coll coll,
                           lsi_selection *selection)
{
    if (!strcmp(text, "auto"))
        return LS_OK;
    lsi_rules rules = {0}, *old = &selection->of[coll];
    while (*text) {
        char item[64];
        size_t length = strcspn(text, ",");
        if (length == 0 || length >= sizeof item || rules.n == LSI_RULES_MAX)
            return bad(name, text, coll);
        snprintf(item, sizeof item, "%.*s", (int)length, text);
        LSI_TRY(parse_rule(name, item, coll, &rules.rules[rules.n]));
        rules.n++;
        text += length + (text[length] == ',');
    }
    int given = rules.n;
    for (int i = 0; i < old->n; i++) { /* the defaults fill what the text leaves open */
        int covered = 0;
        for (int k = 0; k < given; k++)
            covered |=
                rules.rules[k].from <= old->rules[i].from && rules.rules[k].to >= old->rules[i].to;
        if (!covered && rules.n < LSI_RULES_MAX)
            rules.rules[rules.n++] = old->rules[i];
    }
    *old = rules;
    return LS_OK;
}

ls_status lsi_select_environment(lsi_selection *selection)
{
    static const struct {
        const char *name;
        lsi_coll coll;
    } variables[] = {{"LOCKSTEP_ALLREDUCE", LSI_ALLREDUCE},
                     {"LOCKSTEP_REDUCE", LSI_REDUCE},
                     {"LOCKSTEP_REDUCE_SCATTER", LSI_REDUCE_SCATTER},
                     {"LOCKSTEP_ALLGATHER", LSI_ALLGATHER},
                     {"LOCKSTEP_BROADCAST", LSI_BROADCAST}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = getenv(variables[i].name);
        if (text && *text)
            LSI_TRY(lsi_select_parse(variables[i].name, text, variables[i].coll, selection));
    }
    selection->of[LSI_ALLGATHERV] = selection->of[LSI_ALLGATHER];
    return LS_OK;
}

static void print_size(char *text, size_t bytes, size_t value)
{
    if (value == SIZE_MAX)
        snprintf(text, bytes, "inf");
    else if (value && value % (1 << 20) == 0)
        snprintf(text, bytes, "%zuM", value >> 20);
    else if (value && value % 1024 == 0)
        snprintf(text, bytes, "%zuk", value >> 10);
    else
        snprintf(text, bytes, "%zu", value);
}

static ls_status find_coll(const char *what, const char *name, lsi_coll *coll)
{
    for (int c = 0; name && c < LSI_P2P; c++)
        if (!strcmp(name, lsi_coll_names[c])) {
            *coll = (lsi_coll)c;
            return LS_OK;
        }
    return lsi_fail(LS_ERR_INVALID, "allreduce, reduce, broadcast …", what,
                    "there is no collective '%s'", name ? name : "(null)");
}

ls_status ls_comm_select(ls_comm *comm, const char *collective, const char *rules)
{
    lsi_coll coll = LSI_ALLREDUCE;
    if (!comm || !rules)
        return lsi_fail(LS_ERR_INVALID, NULL, "ls_comm_select", "a NULL argument");
    LSI_TRY(find_coll("ls_comm_select", collective, &coll));
    if (!strcmp(rules, "auto")) {
        lsi_selection defaults;
        lsi_select_defaults(&defaults, comm->size, lsi_comm_reach(comm));
        comm->selection.of[coll] = defaults.of[coll];
    } else {
        LSI_TRY(lsi_select_parse(collective, rules, coll, &comm->selection));
    }
    lsi_comm_selected(comm);
    return LS_OK;
}

ls_status ls_comm_selection(const ls_comm *comm, const char *collective, char *text, size_t bytes)
{
    lsi_coll coll = LSI_ALLREDUCE;
    if (!comm || !text || !bytes)
        return lsi_fail(LS_ERR_INVALID, NULL, "ls_comm_selection", "a NULL argument");
    LSI_TRY(find_coll("ls_comm_selection", collective, &coll));
    lsi_select_print(&comm->selection, coll, text, bytes);
    return LS_OK;
}

const char *lsi_select_print(const lsi_selection *selection, lsi_coll coll, char *text,
                             size_t bytes)
{
    const lsi_rules *r = &selection->of[coll];
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < r->n && used < bytes; i++) {
        char from[32], to[32];
        print_size(from, sizeof from, r->rules[i].from);
        print_size(to, sizeof to, r->rules[i].to);
        used += (size_t)snprintf(text + used, bytes - used, "%s%s-%s:%s", i ? "," : "", from, to,
                                 lsi_algorithm_names[r->rules[i].algorithm]);
    }
    return text;
}
