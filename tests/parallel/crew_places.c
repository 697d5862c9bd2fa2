/* Pages that are read-only, and what happens when they are written. */
#include "crew_places.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "parallel/replica.h"

#if defined(__x86_64__)
#define SINGLE_STEP 0x100 /* the trap flag */
#else
#define SINGLE_STEP 0
#endif

enum { PAGE = 4096, REGIONS = 64 };

/* Every `stride`th page of [from, to). Fine: protected again after each write to the first `words`
 * bytes; others do not count. */
typedef struct region {
    char *from, *to;
    size_t stride, words;
    int fine;
} region;

static struct {
    lsi_vault *vault;
    region regions[REGIONS];
    int n, place, passed;
    char *stepping[2]; /* pages to be protected again after the write, */
    char *left_open;   /* and before the next that counts */
    struct sigaction segv, trap;
} places;

static void end_now(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        ;
}

static void on_write(int number, siginfo_t *info, void *context)
{
    char *at = info->si_addr, *page = at - (uintptr_t)at % PAGE;
    const region *r = NULL;
    for (int i = 0; i < places.n; i++)
        if (at >= places.regions[i].from && at < places.regions[i].to)
            r = &places.regions[i];
    if (!r) { /* a bug of somebody's: die of it */
        signal(number, SIG_DFL);
        return;
    }
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
    if (r->fine && at >= r->from + r->words) { /* of no interest, and there may be many of them */
        places.left_open = page;
        return;
    }
    if (++places.passed == places.place)
        end_now();
    if (places.left_open && places.left_open != page)
        mprotect(places.left_open, PAGE, PROT_READ);
    places.left_open = NULL;
    if (!r->fine || !SINGLE_STEP)
        return;
    places.stepping[places.stepping[0] && places.stepping[0] != page] = page;
#if SINGLE_STEP
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= SINGLE_STEP;
#else
    (void)context;
#endif
}

static void on_trap(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    for (int i = 0; i < 2; i++)
        if (places.stepping[i])
            mprotect(places.stepping[i], PAGE, PROT_READ);
    memset(places.stepping, 0, sizeof places.stepping);
#if SINGLE_STEP
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)SINGLE_STEP;
#else
    (void)context;
#endif
}

static void protect(void *from, size_t bytes, size_t stride, int fine, size_t words)
{
    char *begin = from, *end = begin + (bytes + PAGE - 1) / PAGE * PAGE;
    if (places.n == REGIONS || !bytes)
        return;
    places.regions[places.n++] = (region){begin, end, stride, words, fine};
    for (char *page = begin; page < end; page += stride * PAGE)
        mprotect(page, PAGE, PROT_READ);
}

static void protect_slot(lsi_vault *v, int slot, size_t undo_at)
{
    const size_t bytes = v->head->shape.slot_bytes;
    char *from = lsi_vault_slot(v, slot);
    const size_t behind = undo_at ? undo_at : PAGE;
    protect(from, PAGE, 1, 1, sizeof(lsi_counters));
    protect(from + behind, bytes - behind, 3, 0, 0);
}

void crew_places_arm(lsi_vault *v, int slot, size_t undo_at, int place)
{
    const lsi_vault_shape *s = &v->head->shape;
    const struct sigaction segv = {.sa_sigaction = on_write, .sa_flags = SA_SIGINFO};
    const struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    if (places.vault)
        return;
    places.vault = v;
    places.n = places.passed = 0;
    places.left_open = NULL;
    places.place = place;
    sigaction(SIGSEGV, &segv, &places.segv);
    sigaction(SIGTRAP, &trap, &places.trap);
    protect(v->head, sizeof *v->head, 1, 1, sizeof *v->head);
    protect(v->weights, s->elements * sizeof(float) + s->state_bytes, 3, 0, 0);
    for (int i = 0; i < 2; i++)
        protect(v->buffers[i], s->buffers * sizeof(float), 1, 0, 0);
    protect((void *)v->marks, s->runs * sizeof(uint64_t), 1, 1, PAGE);
    for (int i = 0; i < (int)s->slots; i++)
        if (slot < 0 || slot == i)
            protect_slot(v, i, undo_at);
}

int crew_places_disarm(void)
{
    if (!places.vault)
        return 0;
    mprotect(places.vault->head, places.vault->bytes, PROT_READ | PROT_WRITE);
    sigaction(SIGSEGV, &places.segv, NULL);
    sigaction(SIGTRAP, &places.trap, NULL);
    places.vault = NULL;
    return places.passed;
}
