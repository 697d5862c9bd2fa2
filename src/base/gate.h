/* The gate: what a launcher and a worker of an elastic run tell each other.
 *
 * A run lives through generations (DESIGN section 6). Each is a group of its own, with a segment
 * and a boot record (boot.h) of its own; a worker waits at the gate before each, and is let in by
 * its launcher. What must outlive workers (configuration, training state) is kept by the launcher
 * as open descriptors, and handed out with the record.
 *
 * One socket pair a worker, inherited as the descriptor that LOCKSTEP_GATE_FD names; one message is
 * one packet, with up to LSI_GATE_FILES descriptors.
 */
#ifndef LSI_BASE_GATE_H
#define LSI_BASE_GATE_H

#include <stdint.h>

#include "base/boot.h"
#include <lockstep/status.h>

#define LSI_GATE_ENV "LOCKSTEP_GATE_FD"
#define LSI_GATE_FILES 3

typedef enum lsi_gate_kind {
    /* of the worker */
    LSI_GATE_HERE = 1, /* it waits to be let in; `generation`: the latest it was in, 0: none */
    LSI_GATE_KEEP,     /* a descriptor to be kept: `what` */
    LSI_GATE_WANT,     /* one that is to be handed out: the state as soon as it is there, papers as
                          soon as it is known whether there are any */
    LSI_GATE_WHOLE,    /* in `generation` the state that is kept is one to go on with; */
    LSI_GATE_SPOILT,   /* it is not from now on: another is being copied over it */
    LSI_GATE_FED,      /* it has the data, */
    LSI_GATE_HUNGRY,   /* or lacks it, and needs others who have it */
    LSI_GATE_DONE,     /* the work is done: its end will be in order */
    LSI_GATE_LEAVE,    /* it has been asked to go, and will end in order; others go on */
    /* of the launcher */
    LSI_GATE_ENTER, /* `boot`, and the files: segment, then what is kept, in order of `what` */
    LSI_GATE_KEPT,  /* what was wanted; no file: there is none. Of `boot`, the worker's slot, how
                       many there are, and the size of the latest generation */
    LSI_GATE_GO     /* nothing is left to do: end */
} lsi_gate_kind;

/* The first line of the papers: this, and the run's folder. */
#define LSI_PAPERS_OUT "# out "

/* What launchers keep. */
enum { LSI_KEPT_PAPERS, LSI_KEPT_STATE, LSI_KEPT_COUNT };

typedef struct lsi_gate_message {
    uint32_t kind; /* lsi_gate_kind */
    int32_t what;  /* LSI_KEPT_… */
    int32_t own;   /* KEEP, WHOLE, SPOILT: for this worker alone, not for all of the host */
    uint32_t kept; /* as bits 1 << what; ENTER: which files follow the segment; KEPT: is there a
                      state? */
    uint64_t generation;
    lsi_boot boot;
    int n_files;
    int files[LSI_GATE_FILES]; /* of the receiver, close-on-exec */
} lsi_gate_message;

/* A pair of sockets: [0] for the launcher, [1] for the worker. Both close-on-exec. */
ls_status lsi_gate_pair(int fds[2]);
/* The worker's end, from the environment: LS_ERR_NOT_FOUND when there is none. Once. */
ls_status lsi_gate_find(int *fd);
/* Send; files stay the sender's. LS_ERR_PEER_DEAD when the other side is gone. Does not block. */
ls_status lsi_gate_send(int fd, const lsi_gate_message *message);
/* The next message, waiting up to timeout_s: LS_IN_PROGRESS when none came, LS_ERR_PEER_DEAD when
 * the other side is gone, LS_ERR_PROTOCOL for nonsense. Files are the caller's. */
ls_status lsi_gate_receive(int fd, double timeout_s, lsi_gate_message *message);
/* Close the files of a message but number `but` (-1: all). */
void lsi_gate_drop(lsi_gate_message *message, int but);

#endif
