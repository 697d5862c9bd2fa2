/* Sending samples one step ahead, and receiving them. */
#include "train/lend.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "train/trainer.h"

#define TAG 1 /* and the field */
#define ALIGN ((size_t)64)

int lsi_lend_provider(const uint8_t *has, int workers, int w)
{
    int sources = 0, turn = 0; /* of w among those who lack it */
    for (int i = 0; i < workers; i++) {
        sources += has[i] != 0;
        turn += i < w && !has[i];
    }
    if (!sources || has[w])
        return -1;
    int left = turn % sources, provider = 0;
    while (!has[provider] || left-- > 0)
        provider++;
    return provider;
}

/* ---- to customers --------------------------------------------------------------------------- */

static ls_status wait_for(ls_request **requests, int n)
{
    for (int i = 0; i < n; i++)
        LSI_TRY(ls_request_wait(&requests[i], 0));
    return LS_OK;
}

/* The samples of `step` to one customer. Those of the step before have left: their memory is the
 * reader's again. */
static ls_status send_to(lsi_trainer *t, lsi_customer *c, uint64_t step)
{
    const void *fields[LSI_FIELDS_MAX];
    size_t n;
    LSI_TRY(wait_for(c->requests, t->fields.n));
    LSI_TRY(lsi_reader_take(t, &c->reader, step, fields, &n));
    for (int f = 0; n && f < t->fields.n; f++)
        LSI_TRY(ls_send_start(t->comm, fields[f], n * t->fields.bytes[f], LS_U8, c->reader.worker,
                              TAG + f, &c->requests[f]));
    return LS_OK;
}

ls_status lsi_lend_send(lsi_trainer *t, uint64_t step)
{
    for (int i = 0; step < t->total && i < t->lend.n; i++)
        LSI_TRY(send_to(t, &t->lend.customers[i], step));
    return LS_OK;
}

static ls_status open_customers(lsi_trainer *t, uint64_t first_step)
{
    lsi_lend *l = &t->lend;
    l->customers = calloc((size_t)t->workers, sizeof *l->customers);
    if (!l->customers)
        return lsi_fail(LS_ERR_NOMEM, NULL, "lending", "out of memory");
    for (int w = 0; w < t->workers; w++)
        if (lsi_lend_provider(t->has, t->workers, w) == t->worker)
            LSI_TRY(lsi_reader_open(t, w, first_step, &l->customers[l->n++].reader));
    return lsi_lend_send(t, first_step);
}

/* ---- from a provider ------------------------------------------------------------------------ */

static ls_status post(lsi_trainer *t, uint64_t step)
{
    lsi_lend *l = &t->lend;
    uint64_t epoch, place;
    const int slot = (int)(step % LSI_LEND_SLOTS);
    const size_t n = step < t->total ? lsi_part_of(t, t->worker, step, &epoch, &place) : 0;
    for (int f = 0; n && f < t->fields.n; f++)
        LSI_TRY(ls_recv_start(t->comm, l->field[slot][f], n * t->fields.bytes[f], LS_U8,
                              l->provider, TAG + f, &l->requests[slot][f]));
    return LS_OK;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) & ~(ALIGN - 1);
}

static ls_status open_slots(lsi_trainer *t, uint64_t first_step)
{
    lsi_lend *l = &t->lend;
    const size_t most = lsi_part_most(t, t->worker);
    size_t all = 0, at = 0;
    for (int f = 0; f < t->fields.n; f++)
        all += LSI_LEND_SLOTS * aligned(most * t->fields.bytes[f]);
    l->provider = lsi_lend_provider(t->has, t->workers, t->worker);
    l->memory = aligned_alloc(ALIGN, all ? all : ALIGN);
    if (!l->memory)
        return lsi_fail(LS_ERR_NOMEM, NULL, "lending", "out of memory");
    for (int slot = 0; slot < LSI_LEND_SLOTS; slot++)
        for (int f = 0; f < t->fields.n; f++) {
            l->field[slot][f] = l->memory + at;
            at += aligned(most * t->fields.bytes[f]);
        }
    LSI_TRY(post(t, first_step));
    return post(t, first_step + 1);
}

ls_status lsi_lend_take(lsi_trainer *t, uint64_t step)
{
    lsi_lend *l = &t->lend;
    const int slot = (int)(step % LSI_LEND_SLOTS);
    LSI_TRY(wait_for(l->requests[slot], t->fields.n));
    for (int f = 0; f < t->fields.n; f++)
        t->taken[f] = l->field[slot][f];
    return post(t, step + 2);
}

/* ---- both ----------------------------------------------------------------------------------- */

ls_status lsi_lend_open(lsi_trainer *t, uint64_t first_step)
{
    return t->lacks ? open_slots(t, first_step) : open_customers(t, first_step);
}

/* The first request of these that is under way, NULL: none. */
static ls_request **find_pending(ls_request **requests, int n)
{
    for (int i = 0; i < n; i++)
        if (requests[i])
            return &requests[i];
    return NULL;
}

void lsi_lend_look(lsi_trainer *t)
{
    lsi_lend *l = &t->lend;
    ls_request **found = NULL;
    for (int i = 0; !found && i < l->n; i++)
        found = find_pending(l->customers[i].requests, t->fields.n);
    for (int slot = 0; !found && l->memory && slot < LSI_LEND_SLOTS; slot++)
        found = find_pending(l->requests[slot], t->fields.n);
    if (found) /* it drives all of them; what fails is told by whoever waits next */
        (void)ls_request_test(found);
}

void lsi_lend_close(lsi_trainer *t)
{
    lsi_lend *l = &t->lend;
    for (int i = 0; i < l->n; i++)
        lsi_reader_close(&l->customers[i].reader);
    free(l->customers);
    free(l->memory);
    *l = (lsi_lend){0};
}
