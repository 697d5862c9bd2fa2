/* Which of two ways is the faster one, here and now? Found by trying.
 *
 * Some choices depend on what no table knows: whether two cores share a cache, which can change
 * while a program runs (a virtual machine's cores are moved), or whether memory lies in large
 * pages. Both ways give the same bits, so trying costs time only: a few calls at the beginning,
 * then a few when the one in use has become slower or faster, and now and then.
 *
 * Pure: who asks also tells how long it took.
 */
#ifndef LSI_COLL_DUEL_H
#define LSI_COLL_DUEL_H

/* Zeros: nothing is known, and way 0 is tried first. */
typedef struct lsi_duel {
    double time[2];  /* of a call, smoothed; 0: not tried yet */
    double compared; /* of the better one, when they were compared the last time */
    int better;
    int trials;     /* calls of the other way that are left of the comparison under way */
    unsigned calls; /* since the last one */
} lsi_duel;

/* The way to go now: 0 or 1. */
int lsi_duel_way(const lsi_duel *d);
/* The call that went this way took so many seconds. Another way than the one to go is passed over.
 */
void lsi_duel_tell(lsi_duel *d, int way, double seconds);

#endif
