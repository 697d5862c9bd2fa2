/* Seats and tables as text, and the seats that are taken. For the files of the council. */
#ifndef LSI_LAUNCH_SEAT_H
#define LSI_LAUNCH_SEAT_H

#include "launch/council.h"

#define LSI_SEAT_TEXT (LSI_ADDR_MAX + 120)

void lsi_seat_print(const lsi_seat *seat, char text[LSI_SEAT_TEXT]);
/* 0 when it makes no sense. */
int lsi_seat_parse(uint64_t id, const char *text, lsi_seat *out);

/* Room for LSI_MAX_HOSTS * 24; returns the length. */
size_t lsi_table_print(const lsi_table *table, char *text);
int lsi_table_parse(uint64_t generation, const char *text, lsi_table *out);

void lsi_limits_parse(lsi_council *c, const char *text);

/* Ascending by number. Dropping returns whether it was there. */
void lsi_seats_put(lsi_council *c, const lsi_seat *seat);
int lsi_seats_drop(lsi_council *c, uint64_t id);

/* council.c: open the store and take a seat there, with the number that we have, if we have one. */
ls_status lsi_council_connect(lsi_council *c, const char *url, double timeout_s);
/* Say how many workers the run may have. */
void lsi_council_limit(lsi_council *c);
/* In a store that was not in use: all that hosts find there that come later. */
void lsi_council_furnish(lsi_council *c);
/* council_clear.c: the first host removes what an earlier run has left in a store that is not ours.
 * Blocks for up to lease_s and a little. LS_ERR_CONFLICT: that run is still there. */
ls_status lsi_council_clear(lsi_council *c, double lease_s);
/* Is there a host already? LS_ERR_NOT_FOUND if not. */
ls_status lsi_council_find_hosts(lsi_council *c);
/* council_move.c: the store is lost: find another, or not yet. */
void lsi_council_move(lsi_council *c);
/* We wait without a quorum: is there one elsewhere? */
void lsi_council_look(lsi_council *c);

#endif
