/* The vault's memory. */
#include "parallel/vault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memfile.h"
#include "base/pages.h"
#include "base/status.h"

#define MAGIC 0x6c73766175743031u
#define PAGE ((uint64_t)4096)
#define TOUCH (4 * LSI_LARGE_PAGE) /* at a time */

static const char what[] = "memory of the training state";

static int make_file(void)
{
    return lsi_memfile_create("lockstep-state", MFD_CLOEXEC);
}

static uint64_t paged(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Where the parts lie, and the size of all. */
static uint64_t lay_out(const lsi_vault_shape *s, uint64_t at[4])
{
    at[0] = LSI_LARGE_PAGE; /* behind the head: weights */
    at[1] = at[0] + paged(s->elements * sizeof(float) + s->state_bytes);
    at[2] = at[1] + 2 * paged(s->buffers * sizeof(float));
    at[3] = (at[2] + paged(s->runs * sizeof(uint64_t)) + LSI_LARGE_PAGE - 1) / LSI_LARGE_PAGE *
            LSI_LARGE_PAGE;
    return at[3] + s->slots * s->slot_bytes;
}

/* `stock`: NULL, or one whose file this is. */
static ls_status map(int fd, const lsi_vault_shape *shape, lsi_vault_stock *stock, lsi_vault **out)
{
    uint64_t at[4];
    const uint64_t bytes = lay_out(shape, at);
    lsi_vault *v = calloc(1, sizeof *v);
    if (!v)
        return lsi_fail(LS_ERR_NOMEM, NULL, what, "out of memory");
    char *base = lsi_pages_map(fd, bytes);
    if (base && stock) /* with its pages */
        base = mremap(stock->base, stock->bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, base);
    if (!base || base == MAP_FAILED) {
        free(v);
        return lsi_fail_errno(what, "mmap");
    }
    if (stock)
        *stock = (lsi_vault_stock){0};
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

void lsi_vault_stock_open(lsi_vault_stock *stock, size_t bytes)
{
    lsi_vault_stock_close(stock);
    const int fd = bytes ? make_file() : -1;
    if (fd < 0)
        return;
    void *base = ftruncate(fd, (off_t)bytes) == 0 ? lsi_pages_map(fd, bytes) : NULL;
    if (!base) {
        close(fd);
        return;
    }
    (void)madvise(base, bytes, MADV_HUGEPAGE);
    *stock = (lsi_vault_stock){.base = base, .bytes = bytes, .fd = fd};
}

int lsi_vault_stock_touch(lsi_vault_stock *stock)
{
    const size_t left = stock->bytes - stock->touched, n = left < TOUCH ? left : TOUCH;
    if (!n)
        return 0;
    lsi_pages_enlarge(stock->base + stock->touched, n);
    /* Without the memory, or by an old kernel: what is there is what there is. */
    const int failed = madvise(stock->base + stock->touched, n, MADV_POPULATE_WRITE) != 0;
    stock->touched = failed && errno != EINTR ? stock->bytes : stock->touched + (failed ? 0 : n);
    return 1;
}

void lsi_vault_stock_close(lsi_vault_stock *stock)
{
    if (stock->base) {
        munmap(stock->base, stock->bytes);
        close(stock->fd);
    }
    *stock = (lsi_vault_stock){0};
}

ls_status lsi_vault_create(const lsi_vault_shape *shape, lsi_vault_stock *stock, lsi_vault **out)
{
    uint64_t at[4];
    const int has_stock = stock && stock->base;
    const int fd = has_stock ? stock->fd : make_file();
    if (fd < 0)
        return lsi_fail_errno(what, "a memory file");
    ls_status status = LS_OK;
    if (ftruncate(fd, (off_t)lay_out(shape, at)) != 0)
        status = lsi_fail_errno(what, "ftruncate");
    if (status == LS_OK)
        status = map(fd, shape, has_stock ? stock : NULL, out);
    if (status != LS_OK) {
        if (!has_stock)
            close(fd);
        return status;
    }
    if (!has_stock)
        lsi_pages_enlarge((*out)->head, (*out)->bytes);
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
    LSI_TRY(map(fd, shape, NULL, out));
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
