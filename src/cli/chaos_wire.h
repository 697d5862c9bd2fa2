/* Links that can be long: for `lockstep chaos`, where the kernel has no netem.
 *
 * A link is a pair of TAP devices, one in a host's namespace and one at the bridge, and a thread
 * carries the frames from one to the other. What goes to the host can be held up for a while, in
 * order; nothing else is changed.
 */
#ifndef LSI_CLI_CHAOS_WIRE_H
#define LSI_CLI_CHAOS_WIRE_H

#include <lockstep/status.h>

typedef struct lsi_wires lsi_wires;

/* Up to `most` links; the thread is there at once. */
ls_status lsi_wires_open(int most, lsi_wires **out);
/* Ends the thread; the devices go with it. Accepts NULL. */
void lsi_wires_close(lsi_wires *wires);
/* One more, whose two devices, of these names, are in this namespace and down. Its number, or -1
 * with the error. */
int lsi_wires_add(lsi_wires *wires, const char *at_host, const char *at_bridge);
/* What leaves for the host of this link from now on takes so long. */
void lsi_wires_delay(lsi_wires *wires, int number, double seconds);

#endif
