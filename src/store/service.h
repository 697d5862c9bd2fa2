/* What the server does with requests: sessions on a map, without sockets and without a clock.
 *
 *     bytes in -> session (decode) -> map -> listener -> sessions that watch or wait -> bytes out
 *
 * The tcp server moves the bytes; the fuzzer and the unit tests drive the same functions directly.
 *
 * Invariants:
 * 1. Requests of a session are answered in order, except WAIT, which is answered when its key
 *    appears, at its time-out, or when the session waits for something else.
 * 2. A session sees each change under its prefixes once, in version order. A session that cannot
 *    take an event (memory, LSI_SESSION_OUTPUT_MAX) has failed: its owner closes it, and nothing
 *    is skipped in silence.
 * 3. Only lsi_session_close ends a session; bad input and too much output merely make it fail.
 *
 * One thread. `now` is lsi_now() seconds and never goes back.
 */
#ifndef LSI_STORE_SERVICE_H
#define LSI_STORE_SERVICE_H

#include <stddef.h>
#include <stdint.h>

#include "store/buffer.h"
#include "store/map.h"
#include <lockstep/status.h>

#define LSI_SESSION_OUTPUT_MAX (2 * LSI_MAP_BYTES_MAX) /* all keys, and as much on top */
#define LSI_SESSION_WATCHES_MAX 64

typedef struct lsi_service lsi_service;
typedef struct lsi_session lsi_session;

ls_status lsi_service_create(lsi_service **out);
void lsi_service_destroy(lsi_service *service); /* and its sessions */
/* The map itself: changes made in it reach the sessions. Owned by the service. */
lsi_map *lsi_service_map(lsi_service *service);
/* End leases and waits whose time is over. */
void lsi_service_expire(lsi_service *service, double now);

ls_status lsi_session_open(lsi_service *service, lsi_session **out);
/* Accepts NULL. Ends the session's leases, of which other sessions may hear. */
void lsi_session_close(lsi_session *session);
/* Bytes came from the client: execute all requests that are complete. An error means that the
 * session has failed. */
ls_status lsi_session_input(lsi_session *session, const uint8_t *data, size_t bytes, double now);
/* LS_OK, or why the session is to be closed. */
ls_status lsi_session_health(const lsi_session *session);
/* Bytes for the client; whoever sends them drops them from the front. */
lsi_buffer *lsi_session_output(lsi_session *session);

#endif
