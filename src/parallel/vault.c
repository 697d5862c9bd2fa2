/* The vault's memory. */
#include "parallel/vault.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

#define MAGIC 0x6c73766175743031u
#define PAGE ((uint64_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)

static const char what[] = "memory of the training state";

static uint64_t paged(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Where the parts lie, and the size of all. */
static uint64_t lay_out(const lsi_vault_shape *s, uint64_t at[4])
{
    at[0] = HUGE_PAGE; /* behind the head: weights */
    at[1] = at[0] + paged(s->elements * sizeof(float) + s->state_bytes);
    at[2] = at[1] + 2 * paged(s->buffers * sizeof(float));
    at[3] = (at[2] + paged(s->runs * sizeof(uint64_t)) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    return at[3] + s->slots * s->slot_bytes;
}

static ls_status map(int fd, const lsi_vault_shape *shape, lsi_vault **out)
{
    uint64_t at[4];
    const uint64_t bytes = lay_out(shape, at);
    lsi_vault *v = calloc(1, sizeof *v);
    if (!v)
        return lsi_fail(LS_ERR_NOMEM, NULL, what, "out of memory");
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) {
        free(v);
        return lsi_fail_errno(what, "mmap");
    }
    (void)madvise(base, bytes, MADV_HUGEPAGE); /* best effort */
    *v = (lsi_vault){.fd = fd,
                     .bytes = bytes,
                     .head = (lsi_vault_head *)base,
                     .weights = (float *)(base + at[0]),
                     .buffers = {(float *)(base + at[1]),
                                 (float *)(base + at[1] + paged(shape->buffers * sizeof(float)))},
                     .marks = (_Atomic uint64_t *)(base + at[2]),
                     .slots = base + at[3]};
    *out = v;
    return LS_OK;
}

ls_status lsi_vault_create(const lsi_vault_shape *shape, lsi_vault **out)
{
    uint64_t at[4];
    const int fd = memfd_create("lockstep-state", MFD_CLOEXEC);
    if (fd < 0)
        return lsi_fail_errno(what, "memfd_create");
    if (ftruncate(fd, (off_t)lay_out(shape, at)) != 0) {
        lsi_fail_errno(what, "ftruncate");
        close(fd);
        return LS_ERR_SYSTEM;
    }
    const ls_status status = map(fd, shape, out);
    if (status != LS_OK) {
        close(fd);
        return status;
    }
    (*out)->head->magic = MAGIC;
    (*out)->head->shape = *shape;
    return LS_OK;
}

ls_status lsi_vault_map(int fd, const lsi_vault_shape *shape, lsi_vault **out)
{
    uint64_t at[4];
    struct stat info;
    if (fstat(fd, &info) != 0 || (uint64_t)info.st_size != lay_out(shape, at))
        return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "it has another size");
    LSI_TRY(map(fd, shape, out));
    if ((*out)->head->magic == MAGIC && !memcmp(&(*out)->head->shape, shape, sizeof *shape))
        return LS_OK;
    (*out)->fd = -1; /* still the caller's */
    lsi_vault_close(*out);
    *out = NULL;
    return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "it is of another model or optimizer");
}

void lsi_vault_close(lsi_vault *v)
{
    if (!v)
        return;
    munmap(v->head, v->bytes);
    if (v->fd >= 0)
        close(v->fd);
    free(v);
}
