/* Status codes and the last error.
 *
 * Every fallible call returns an ls_status: LS_OK, LS_IN_PROGRESS for a request that is not done
 * yet, or a negative code. Codes are grouped by how far the damage reaches, so that the caller
 * knows what to do: LS_STATUS_OPERATION (fix the call and go on), LS_STATUS_PEER (that rank is
 * lost), LS_STATUS_GROUP (the communicator is unusable), LS_STATUS_PROCESS (this process lacks
 * something: memory, descriptors, a usable environment).
 */
#ifndef LOCKSTEP_STATUS_H
#define LOCKSTEP_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LS_API __attribute__((visibility("default")))
#else
#define LS_API
#endif

typedef enum ls_status {
    LS_OK = 0,
    LS_IN_PROGRESS = 1,

    /* The operation was refused; nothing else is affected. */
    LS_ERR_INVALID = -1,     /* a bad argument */
    LS_ERR_UNSUPPORTED = -2, /* a valid request that this build or algorithm cannot serve */
    LS_ERR_NOT_FOUND = -3,   /* no such key, file or name */
    LS_ERR_CONFLICT = -4,    /* compare-and-put: the value was another one */

    /* A peer is lost or misbehaves. */
    LS_ERR_PEER_DEAD = -20, /* process death or connection loss */
    LS_ERR_TIMEOUT = -21,   /* somebody did not answer before the deadline */
    LS_ERR_PROTOCOL = -22,  /* bytes that no well-behaved peer sends */
    LS_ERR_AUTH = -23,      /* the peer does not hold the run's key */

    /* The group cannot go on. */
    LS_ERR_MISMATCH = -40, /* two ranks called different things */
    LS_ERR_ABORTED = -41,  /* another rank failed; the message names it and its cause */

    /* This process lacks something. */
    LS_ERR_NOMEM = -60,
    LS_ERR_SYSTEM = -61, /* a system call failed; the message has errno's text */
    LS_ERR_CONFIG = -62  /* environment, flags or files that make no sense */
} ls_status;

typedef enum ls_status_reach {
    LS_STATUS_FINE = 0,
    LS_STATUS_OPERATION,
    LS_STATUS_PEER,
    LS_STATUS_GROUP,
    LS_STATUS_PROCESS
} ls_status_reach;

/* How far the damage of `status` reaches. Any thread, never blocks. */
LS_API ls_status_reach ls_status_get_reach(ls_status status);

/* A static name such as "LS_ERR_TIMEOUT". Never NULL. */
LS_API const char *ls_status_name(ls_status status);

/* The calling thread's most recent error as "what: detail (hint)", "" when there was none. The
 * text stays valid until this thread's next failing call. */
LS_API const char *ls_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
