/* Entering a generation: a segment, boot records, and who is let in. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "launch/decide.h"
#include "launch/elastic.h"

/* The `n` of our workers that wait who have been with the run for the longest, by their numbers. */
static int choose(const lsi_run *run, int n, int chosen[LSI_MAX_RANKS])
{
    int count = 0;
    for (int i = 0; i < run->config->ranks; i++) {
        const lsi_child *child = &run->children[i];
        if (child->pid <= 0 || !child->here)
            continue;
        int at = count++;
        const uint64_t since = child->since ? child->since : UINT64_MAX;
        for (; at > 0; at--) {
            const uint64_t before = run->children[chosen[at - 1]].since;
            if (before && before <= since)
                break;
            if (!before && since == UINT64_MAX)
                break;
            chosen[at] = chosen[at - 1];
        }
        chosen[at] = i;
    }
    return count < n ? count : n;
}

static void let_in(lsi_run *run, int index, int rank, const lsi_boot *general)
{
    lsi_elastic *e = run->elastic;
    lsi_child *child = &run->children[index];
    lsi_gate_message m = {.kind = LSI_GATE_ENTER, .generation = e->generation, .boot = *general};
    m.boot.rank = rank;
    m.boot.slot = index;
    m.files[m.n_files++] = run->segment.fd;
    for (int k = 0; k < LSI_KEPT_COUNT; k++) {
        const int file = k == LSI_KEPT_STATE && child->state >= 0 ? child->state : e->kept[k];
        if (file < 0)
            continue;
        m.kept |= 1u << k;
        m.files[m.n_files++] = file;
    }
    child->here = 0;
    child->inside = e->generation;
    child->rank = rank;
    child->since = child->since ? child->since : e->generation;
    if (lsi_gate_send(child->gate, &m) != LS_OK)
        lsi_log(LSI_LOG_INFO, "worker %d: %s", index, ls_last_error());
    explicit_bzero(&m, sizeof m);
}

static void fill_boot(const lsi_run *run, int place, int ranks, lsi_boot *boot)
{
    const lsi_elastic *e = run->elastic;
    const lsi_council *c = &e->council;
    *boot = (lsi_boot){.magic = LSI_BOOT_MAGIC,
                       .version = LSI_BOOT_VERSION,
                       .size = ranks,
                       .host = place,
                       .hosts = e->table.hosts,
                       .generation = e->generation,
                       .slots = run->config->ranks,
                       .key = c->key};
    for (int h = 0; h < e->table.hosts; h++)
        boot->host_size[h] = e->table.size[h];
    snprintf(boot->store, sizeof boot->store, "%.*s", LSI_ADDR_MAX - 1,
             strncmp(c->url, "tcp://", 6) ? c->url : c->url + 6);
    snprintf(boot->bind, sizeof boot->bind, "%s", c->bind);
}

/* Whoever is still inside an older generation is alone there. */
void lsi_elastic_abandon(lsi_run *run, const char *cause)
{
    const lsi_elastic *e = run->elastic;
    int ranks = 0;
    for (int h = 0; h < e->table.hosts; h++)
        ranks += e->table.size[h];
    for (int r = 0; run->segment.block && r < ranks; r++)
        if (r < e->first_rank || r >= e->first_rank + (int)run->segment.block->local_size)
            lsi_host_mark_dead(run->segment.block, r, cause);
}

void lsi_elastic_set_wishes(lsi_run *run)
{
    const lsi_elastic *e = run->elastic;
    unsigned wish = 0;
    if (!run->segment.block)
        return;
    if (e->council.stop || e->table.stop)
        wish |= LSI_WISH_STOP;
    if (e->council.change >= e->generation || e->leaving)
        wish |= LSI_WISH_CHANGE;
    atomic_store(&run->segment.block->waiting, (uint32_t)lsi_decide_spare(&e->council));
    atomic_store(&run->segment.block->wish, wish);
}

/* A generation that counts on our workers, while they are still inside an older one: they come too
 * late for it. The others are told, or they would wait. */
static void decline(lsi_run *run, const lsi_table *table, int place, int first)
{
    lsi_elastic *e = run->elastic;
    for (int i = 0; place >= 0 && i < table->size[place]; i++)
        lsi_council_tell_dead(&e->council, table->generation, first + i,
                              "it was still inside an older generation");
    if (place >= 0)
        e->declined = table->generation;
}

void lsi_elastic_on_generation(void *arg, const lsi_table *table)
{
    lsi_run *run = arg;
    lsi_elastic *e = run->elastic;
    int first = 0, ranks = 0, chosen[LSI_MAX_RANKS];
    const int place = lsi_council_place(&e->council, table, &first, &ranks);
    if (lsi_elastic_count_inside(run)) {
        lsi_elastic_abandon(run, "the other hosts have gone on without this one");
        decline(run, table, place, first);
        return;
    }
    if (place < 0)
        return;
    lsi_host segment;
    if (lsi_host_create(ranks, first, table->size[place], &segment) != LS_OK) {
        lsi_log(LSI_LOG_ERROR, "%s", ls_last_error());
        lsi_council_end(&e->council, 1, ls_last_error());
        return;
    }
    lsi_host_unmap(&run->segment);
    run->segment = segment;
    e->table = *table;
    e->generation = table->generation;
    e->first_rank = first;
    lsi_elastic_set_wishes(run);
    lsi_boot boot;
    fill_boot(run, place, ranks, &boot);
    const int n = choose(run, table->size[place], chosen);
    for (int i = 0; i < n; i++)
        let_in(run, chosen[i], first + i, &boot);
    for (int i = n; i < table->size[place]; i++) /* died since we said that they wait */
        lsi_host_mark_dead(run->segment.block, first + i, "it died before it could enter");
    for (int i = n; i < table->size[place]; i++)
        lsi_council_tell_dead(&e->council, e->generation, first + i,
                              "it died before it could enter");
    explicit_bzero(&boot, sizeof boot);
    lsi_log(LSI_LOG_INFO, "generation %llu: %d workers on %d hosts, from %d on here",
            (unsigned long long)e->generation, ranks, table->hosts, first);
}
