/* A worker's way through the generations of an elastic run.
 *
 * Under a launcher that counts generations (base/gate.h) a worker enters one after the other: each
 * is a communicator of its own, on which nobody can be replaced. Without such a launcher there is
 * one, as ls_init makes it.
 *
 * What outlives a generation belongs to the member: the papers (text that says what the run is) and
 * the vault (vault.h). The launcher keeps both, for workers that come later.
 */
#ifndef LSI_PARALLEL_MEMBERSHIP_H
#define LSI_PARALLEL_MEMBERSHIP_H

#include "base/gate.h"
#include "coll/comm.h"
#include "parallel/replica.h"

typedef struct lsi_member {
    ls_config config;
    int gate;      /* -1: there are no generations */
    ls_comm *comm; /* of the generation; NULL between them */
    uint64_t generation;
    int finished;             /* told to go: nothing is left to do */
    int own;                  /* every worker is a domain of its own */
    int kept[LSI_KEPT_COUNT]; /* descriptors that the launcher has handed out; -1: none */
    lsi_keeper keeper;
    lsi_vault *vault; /* mapped */
    int makes_vault;  /* this host has none yet, and this worker is its first */
    int workers;      /* that there will be, if this host joins with all of its own */
    lsi_vault_stock stock;
} lsi_member;

/* `config` as for ls_init. */
ls_status lsi_member_open(lsi_member *m, const ls_config *config);
/* Leaves the generation, if there is one, and the gate. */
void lsi_member_close(lsi_member *m);

/* Can there be another generation? */
int lsi_member_lasts(const lsi_member *m);
/* The vault will begin with so many bytes that this worker touches: it has them ready, should it be
 * the one to make the vault, by what it does while it waits to be let in. After asking for the
 * papers. */
void lsi_member_expect(lsi_member *m, size_t bytes);
/* Wait to be let into the next generation: m->comm then; or m->finished is set, and there is none.
 * Blocks: the launcher says what it waits for. */
ls_status lsi_member_enter(lsi_member *m);
/* Leave the generation; in order, with everybody, if it has not failed. */
void lsi_member_leave(lsi_member *m);
/* What the launcher wishes: LSI_WISH_… */
unsigned lsi_member_wish(const lsi_member *m);
/* Workers that a change would add. */
int lsi_member_waiting(const lsi_member *m);
/* The work is done, or this worker was asked to go: its end is in order. */
void lsi_member_done(lsi_member *m);
void lsi_member_goes(lsi_member *m);

/* Whether this worker has the data: where nobody at the gate has it, somebody who has is waited for
 * as long as there is one. */
ls_status lsi_member_tell_data(const lsi_member *m, int has);

/* The papers: what the launcher has (NULL: none yet; the caller frees it), and what it is to keep
 * (once for a host; for the others it does nothing). Before the first generation it must be asked
 * first. */
ls_status lsi_member_ask_papers(lsi_member *m);
ls_status lsi_member_papers(const lsi_member *m, char **text);
ls_status lsi_member_keep_papers(lsi_member *m, const char *text);

#endif
