/* HTTP requests that never block, through libcurl: one descriptor for all of them.
 *
 *     curl's sockets and its timer -> one epoll -> lsi_http_drive -> bodies of the transfers
 *
 * Invariants:
 * 1. No thread of ours; curl looks names up in one of its own. Nothing happens outside the calls.
 * 2. Proxies of the environment are ignored and redirects are not followed: who is asked is whom
 *    the caller named. Descriptors are close-on-exec (but for the pair by which curl wakes itself),
 *    no write raises SIGPIPE.
 * 3. A body larger than its limit ends the transfer; what came before stays in `body`.
 * 4. There are no time limits here: who drives ends what takes too long. Ending a transfer waits
 *    for the look-up of a name that is under way, as in base/net.h.
 *
 * One thread at a time.
 */
#ifndef LSI_STORE_HTTP_H
#define LSI_STORE_HTTP_H

#include <stddef.h>

#include "store/buffer.h"
#include <lockstep/status.h>

#define LSI_HTTP_ERROR_MAX 256

typedef struct lsi_http lsi_http;

typedef enum lsi_http_state {
    LSI_HTTP_RUNNING,
    LSI_HTTP_DONE,      /* `code` and the whole body are there */
    LSI_HTTP_UNREACHED, /* no connection: the request was not sent */
    LSI_HTTP_LOST,      /* the connection was lost: what became of the request is unknown */
    LSI_HTTP_TOO_LARGE, /* the body, or the headers */
    LSI_HTTP_NONSENSE,  /* not HTTP */
    LSI_HTTP_NOMEM
} lsi_http_state;

/* Members are for reading; the front of `body` may be dropped while it runs. */
typedef struct lsi_http_transfer {
    lsi_http *http;
    void *easy; /* CURL */
    lsi_http_state state;
    long code; /* of HTTP; 0 before the first byte of the body */
    size_t most, header_bytes;
    lsi_buffer body;
    char error[LSI_HTTP_ERROR_MAX]; /* curl's words when not DONE */
} lsi_http_transfer;

/* NULL, or why there can be no HTTP in this process. */
const char *lsi_http_why_unusable(void);
ls_status lsi_http_create(lsi_http **out);
void lsi_http_destroy(lsi_http *http); /* accepts NULL; its transfers must have been ended */
/* Readable when lsi_http_drive has something to do. */
int lsi_http_fd(const lsi_http *http);
/* POST `body` (copied) as JSON to http://ADDRESS/PATH; at most `most` bytes are taken in return.
 * *out is owned by the caller and moves on in lsi_http_drive only. */
ls_status lsi_http_post(lsi_http *http, const char *address, const char *path, const void *body,
                        size_t bytes, size_t most, lsi_http_transfer **out);
/* Give up what has not come, free what has. Accepts NULL. */
void lsi_http_end(lsi_http_transfer *transfer);
/* Wait until something happened to any transfer, or the time of lsi_http_wake_at came: LS_OK.
 * LS_IN_PROGRESS when nothing did before `deadline` (lsi_now() seconds; past: only look). */
ls_status lsi_http_drive(lsi_http *http, double deadline);
/* Make the descriptor readable at `when` (replaces what was asked for before). */
void lsi_http_wake_at(lsi_http *http, double when);

#endif
