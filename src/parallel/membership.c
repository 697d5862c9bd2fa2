/* Entering and leaving generations, and what the launcher keeps. */
#include "parallel/membership.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/gate.h"
#include "base/log.h"
#include "base/memfile.h"
#include "base/status.h"

#define ANSWER_S 10.0 /* for a launcher to hand out what a neighbour has given it */
#define PATIENCE_S 600.0

static const char what[] = "membership";

static ls_status get_vault(void *arg, const lsi_vault_shape *shape, int make, lsi_vault **out);
static void tell_whole(void *arg, int whole);

ls_status lsi_member_open(lsi_member *m, const ls_config *config)
{
    *m = (lsi_member){.config = *config, .gate = -1, .kept = {-1, -1}};
    m->keeper = (lsi_keeper){.arg = m, .get = get_vault, .tell = tell_whole};
    const ls_status status = lsi_gate_find(&m->gate);
    return status == LS_ERR_NOT_FOUND ? LS_OK : status;
}

int lsi_member_lasts(const lsi_member *m)
{
    return m->gate >= 0;
}

static ls_status say(const lsi_member *m, lsi_gate_kind kind, int what_kept, int file)
{
    lsi_gate_message message = {.kind = kind,
                                .what = what_kept,
                                .own = what_kept == LSI_KEPT_STATE && m->own,
                                .generation = m->generation};
    if (file >= 0)
        message.files[message.n_files++] = file;
    return lsi_gate_send(m->gate, &message);
}

static void take_kept(lsi_member *m, int which, int file)
{
    if (m->kept[which] >= 0)
        close(m->kept[which]);
    m->kept[which] = file;
}

/* The files of the message, after the segment: what the launcher keeps. */
static void take_files(lsi_member *m, lsi_gate_message *message)
{
    int at = 1;
    for (int k = 0; k < LSI_KEPT_COUNT && at < message->n_files; k++)
        if (message->kept & 1u << k)
            take_kept(m, k, message->files[at++]);
    for (; at < message->n_files; at++)
        close(message->files[at]);
}

static ls_status let_in(lsi_member *m, lsi_gate_message *message)
{
    if (message->n_files < 1)
        return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "a generation without memory");
    lsi_boot *boot = &message->boot;
    boot->segment_fd = message->files[0];
    take_files(m, message);
    m->generation = boot->generation;
    const ls_status status = lsi_init_from(&m->config, boot, &m->comm);
    m->own = status == LS_OK && !m->comm->world->use_boards;
    m->keeper.slot = m->own ? 0 : boot->slot;
    m->keeper.slots = m->own ? 1 : boot->slots;
    explicit_bzero(message, sizeof *message);
    return status;
}

ls_status lsi_member_enter(lsi_member *m)
{
    lsi_gate_message message;
    ls_status status;
    if (m->gate < 0)
        return ls_init(&m->config, &m->comm);
    LSI_TRY(say(m, LSI_GATE_HERE, 0, -1));
    do {
        const int is_busy = lsi_vault_stock_touch(&m->stock);
        status = lsi_gate_receive(m->gate, is_busy ? 0 : PATIENCE_S, &message);
    } while (status == LS_IN_PROGRESS); /* a launcher that dies takes us with it */
    LSI_TRY(status);
    if (message.kind == LSI_GATE_ENTER)
        return let_in(m, &message);
    lsi_gate_drop(&message, -1);
    m->finished = message.kind == LSI_GATE_GO;
    if (m->finished)
        return LS_OK;
    return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "the launcher says %u instead of a generation",
                    (unsigned)message.kind);
}

void lsi_member_leave(lsi_member *m)
{
    ls_finalize(m->comm);
    m->comm = NULL;
}

void lsi_member_close(lsi_member *m)
{
    lsi_member_leave(m);
    lsi_vault_close(m->vault);
    lsi_vault_stock_close(&m->stock);
    for (int k = 0; k < LSI_KEPT_COUNT; k++)
        take_kept(m, k, -1);
    if (m->gate >= 0)
        close(m->gate);
    m->gate = -1;
    m->vault = NULL;
}

unsigned lsi_member_wish(const lsi_member *m)
{
    return m->gate >= 0 && m->comm ? atomic_load(&m->comm->world->host.block->wish) : 0;
}

int lsi_member_waiting(const lsi_member *m)
{
    return m->gate >= 0 && m->comm ? (int)atomic_load(&m->comm->world->host.block->waiting) : 0;
}

void lsi_member_done(lsi_member *m)
{
    if (m->gate >= 0)
        (void)say(m, LSI_GATE_DONE, 0, -1);
}

void lsi_member_goes(lsi_member *m)
{
    if (m->gate >= 0)
        (void)say(m, LSI_GATE_LEAVE, 0, -1);
}

/* ---- what is kept --------------------------------------------------------------------------- */

/* Ask the launcher for what it keeps; LS_ERR_NOT_FOUND when that is nothing. */
static ls_status want(lsi_member *m, int which, double patience_s)
{
    lsi_gate_message message;
    LSI_TRY(say(m, LSI_GATE_WANT, which, -1));
    const ls_status status = lsi_gate_receive(m->gate, patience_s, &message);
    if (status == LS_IN_PROGRESS)
        return lsi_fail(LS_ERR_TIMEOUT, NULL, what, "the launcher has not handed out the %s",
                        which == LSI_KEPT_STATE ? "state" : "papers");
    LSI_TRY(status);
    if (message.kind != LSI_GATE_KEPT || message.n_files > 1) {
        lsi_gate_drop(&message, -1);
        return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "the launcher hands out %u with %d files",
                        (unsigned)message.kind, message.n_files);
    }
    m->makes_vault = message.boot.slot == 0 && !(message.kept & 1u << LSI_KEPT_STATE);
    m->workers = message.boot.size + message.boot.slots;
    if (message.n_files == 0)
        return LS_ERR_NOT_FOUND;
    take_kept(m, which, message.files[0]);
    return LS_OK;
}

static ls_status get_vault(void *arg, const lsi_vault_shape *shape, int make, lsi_vault **out)
{
    lsi_member *m = arg;
    if (m->vault) {
        *out = m->vault;
        return LS_OK;
    }
    if (m->kept[LSI_KEPT_STATE] < 0 && make) {
        LSI_TRY(lsi_vault_create(shape, &m->stock, &m->vault));
        *out = m->vault;
        return say(m, LSI_GATE_KEEP, LSI_KEPT_STATE, m->vault->fd);
    }
    lsi_vault_stock_close(&m->stock); /* another one has made it */
    if (m->kept[LSI_KEPT_STATE] < 0)
        LSI_TRY(want(m, LSI_KEPT_STATE, ANSWER_S));
    LSI_TRY(lsi_vault_map(m->kept[LSI_KEPT_STATE], shape, &m->vault));
    m->kept[LSI_KEPT_STATE] = -1; /* the vault's now */
    *out = m->vault;
    return LS_OK;
}

static void tell_whole(void *arg, int whole)
{
    const lsi_member *m = arg;
    /* If it is gone, so are we soon. */
    (void)say(m, whole ? LSI_GATE_WHOLE : LSI_GATE_SPOILT, LSI_KEPT_STATE, -1);
}

ls_status lsi_member_tell_data(const lsi_member *m, int has)
{
    return m->gate < 0 ? LS_OK : say(m, has ? LSI_GATE_FED : LSI_GATE_HUNGRY, 0, -1);
}

ls_status lsi_member_ask_papers(lsi_member *m)
{
    if (m->gate < 0)
        return LS_OK;
    const ls_status status = want(m, LSI_KEPT_PAPERS, PATIENCE_S);
    return status == LS_ERR_NOT_FOUND ? LS_OK : status;
}

void lsi_member_expect(lsi_member *m, size_t bytes)
{
    if (m->makes_vault)
        lsi_vault_stock_open(&m->stock, bytes);
}

ls_status lsi_member_papers(const lsi_member *m, char **text)
{
    struct stat info;
    const int fd = m->kept[LSI_KEPT_PAPERS];
    *text = NULL;
    if (fd < 0)
        return LS_OK;
    if (fstat(fd, &info) != 0)
        return lsi_fail_errno(what, "fstat");
    char *copy = calloc((size_t)info.st_size + 1, 1);
    if (!copy)
        return lsi_fail(LS_ERR_NOMEM, NULL, what, "out of memory");
    if (pread(fd, copy, (size_t)info.st_size, 0) != (ssize_t)info.st_size) {
        free(copy);
        return lsi_fail_errno(what, "pread");
    }
    *text = copy;
    return LS_OK;
}

ls_status lsi_member_keep_papers(lsi_member *m, const char *text)
{
    if (m->gate < 0 || m->kept[LSI_KEPT_PAPERS] >= 0)
        return LS_OK;
    const int fd = lsi_memfile_create("lockstep-papers", MFD_CLOEXEC);
    if (fd < 0)
        return lsi_fail_errno(what, "a memory file");
    const size_t bytes = strlen(text);
    if (pwrite(fd, text, bytes, 0) != (ssize_t)bytes) {
        lsi_fail_errno(what, "pwrite");
        close(fd);
        return LS_ERR_SYSTEM;
    }
    take_kept(m, LSI_KEPT_PAPERS, fd);
    return say(m, LSI_GATE_KEEP, LSI_KEPT_PAPERS, fd);
}
