/* Faults through the same seam that the product uses: a link in front of another link.
 *
 * A plan is text, from LOCKSTEP_FAULT or a test: "RANK>PEER KIND=K" items separated by ';', where
 * RANK is the sender and either may be '*'; K counts the messages (or parts of large ones) sent on
 * that link from 1:
 *
 *     0>1 drop=3         the 3rd message is never sent
 *     *>2 delay=5:200    before the 5th message, nothing is sent for 200 ms
 *     1>0 cut=4          the stream ends instead of the 4th message
 *     1>0 corrupt=2      one bit of the 2nd message's header flips
 *     1>0 garble=2       one bit of the 2nd message's payload flips
 *     *>* short=7        every write moves at most 7 bytes
 */
#ifndef LSI_TRANSPORT_FAULT_H
#define LSI_TRANSPORT_FAULT_H

#include "transport/link.h"

/* LS_ERR_CONFIG, naming the item, when `plan` makes no sense. */
ls_status lsi_fault_check(const char *plan);
/* Wrap *link in place (taking it over) if the plan has items for self > peer; else leave it. */
ls_status lsi_fault_wrap(const char *plan, int self, int peer, lsi_link **link);

#endif
