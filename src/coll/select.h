/* Which algorithm serves which size: a table that can be printed and set as text.
 *
 *     LOCKSTEP_ALLREDUCE=0-4k:tree,4k-inf:ring      or just      LOCKSTEP_ALLREDUCE=hd
 *
 * Sizes are the bytes of `count` elements (of one block, for the collectives that have one a rank;
 * of allgatherv's on average), half-open ranges; what no range covers keeps the default.
 */
#ifndef LSI_COLL_SELECT_H
#define LSI_COLL_SELECT_H

#include "coll/call.h"

#define LSI_RULES_MAX 8

typedef struct lsi_rule {
    size_t from, to; /* [from, to) bytes */
    lsi_algorithm algorithm;
} lsi_rule;

typedef struct lsi_rules {
    int n;
    lsi_rule rules[LSI_RULES_MAX];
} lsi_rules;

/* One set of rules for each collective that has a choice. */
typedef struct lsi_selection {
    lsi_rules of[LSI_COLL_COUNT];
} lsi_selection;

/* How the ranks of a group reach each other; all of them see the same. */
typedef enum lsi_reach {
    LSI_REACH_HOSTS, /* over several hosts */
    LSI_REACH_HOST,  /* by messages inside one host, where they share processors */
    LSI_REACH_RINGS, /* by messages, too, but through shared memory */
    LSI_REACH_BOARD  /* by shared memory inside one host */
} lsi_reach;

/* 1 when the collective can be served by the algorithm. */
int lsi_select_offers(lsi_coll coll, lsi_algorithm algorithm);
/* The tuned defaults for a group of `size`. */
void lsi_select_defaults(lsi_selection *selection, int size, lsi_reach reach);
/* The one for so many bytes. */
lsi_algorithm lsi_select_tuned(lsi_coll coll, size_t bytes, int size, lsi_reach reach);
/* Put the rules in `text` before what is there. `name` is the variable or flag, for errors. */
ls_status lsi_select_parse(const char *name, const char *text, lsi_coll coll,
                           lsi_selection *selection);
/* LOCKSTEP_ALLREDUCE and its sisters. */
ls_status lsi_select_environment(lsi_selection *selection);
lsi_algorithm lsi_select(const lsi_selection *selection, lsi_coll coll, size_t bytes);
/* "0-4k:tree,4k-inf:ring" into text. */
const char *lsi_select_print(const lsi_selection *selection, lsi_coll coll, char *text,
                             size_t bytes);

#endif
