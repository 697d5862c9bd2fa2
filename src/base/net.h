/* TCP sockets: addresses, listening, connecting, moving bytes before a deadline.
 *
 * 1. Every descriptor made here is non-blocking and close-on-exec, has TCP_NODELAY and, when
 *    connected, keep-alive probes (a host that vanished is noticed within about half a minute).
 * 2. No write raises SIGPIPE.
 * 3. Deadlines are lsi_now() seconds. Only the look-up of a name (getaddrinfo) can outlast one.
 *
 * Any thread; errors name the address, what failed and what to do.
 */
#ifndef LSI_BASE_NET_H
#define LSI_BASE_NET_H

#include <stddef.h>

#include <lockstep/status.h>

#define LSI_ADDR_MAX 80 /* "[IPv6 address]:port" or "IPv4:port", NUL included */

/* Listen on `host` (a name or address; NULL: 127.0.0.1) and `port` (0: any free one).
 * *address is filled with "ADDRESS:PORT" as actually bound. */
ls_status lsi_net_listen(const char *host, int port, int *fd, char address[LSI_ADDR_MAX]);
/* Accept one waiting connection: LS_IN_PROGRESS when there is none. TCP_NODELAY is set. */
ls_status lsi_net_accept(int listener, int *fd);
/* Start connecting to "HOST:PORT"; completion = writable, then lsi_net_connected. TCP_NODELAY.
 * Of a name with several addresses the first that can be started is taken. */
ls_status lsi_net_connect_start(const char *address, int *fd);
/* LS_OK when the connection of a writable socket is made, else the error (SO_ERROR): a refusal is
 * LS_ERR_PEER_DEAD. LS_IN_PROGRESS when it was too early to ask. */
ls_status lsi_net_connected(int fd, const char *address);
/* Connect, retrying refusals, until `deadline` (lsi_now() seconds); then LS_ERR_TIMEOUT. Tries
 * every address of a name. */
ls_status lsi_net_connect(const char *address, double deadline, int *fd);
/* "HOST:PORT" or "[V6]:PORT" into its parts; LS_ERR_CONFIG otherwise. Port 0 is accepted. */
ls_status lsi_net_split(const char *address, char host[LSI_ADDR_MAX], int *port);
/* The local address (no port) of a connected socket, and the interface that the route to the peer
 * takes ("?" when it cannot be told). Whoever was connected to has the address that the peer chose,
 * which may be another interface's. */
ls_status lsi_net_local(int fd, char host[LSI_ADDR_MAX], char interface[32]);
/* "ADDRESS:PORT" of the other end, "?" when it cannot be told. */
void lsi_net_peer(int fd, char address[LSI_ADDR_MAX]);
/* Blocking transfer of exactly `bytes` on a non-blocking socket before `deadline`; `who` names
 * the peer in errors. A closed connection is LS_ERR_PEER_DEAD. */
ls_status lsi_net_send_all(int fd, const void *data, size_t bytes, double deadline,
                           const char *who);
ls_status lsi_net_recv_all(int fd, void *data, size_t bytes, double deadline, const char *who);
/* Wait for poll(2) `events` or an error condition on `fd`: LS_OK, or LS_IN_PROGRESS when the
 * deadline passed first (nothing is recorded then). */
ls_status lsi_net_wait(int fd, short events, double deadline);
/* Record the errno of a socket call that failed: LS_ERR_PEER_DEAD when the connection is lost,
 * else LS_ERR_SYSTEM or LS_ERR_NOMEM. */
ls_status lsi_net_fail(const char *what, const char *who);

#endif
