/* Large blocks of a device's memory; the contract is in memory.h. */
#include "graph/memory.h"

#include <stdint.h>
#include <sys/mman.h>

#include "base/status.h"

#define HUGE_PAGE ((size_t)2 << 20)

ls_status lsi_block_alloc(lsi_device *device, size_t bytes, lsi_block *out)
{
    *out = (lsi_block){0};
    if (bytes == 0)
        return LS_OK;
    const size_t slack = bytes >= LSI_BLOCK_HUGE ? HUGE_PAGE : 0;
    if (bytes > SIZE_MAX / 2)
        return lsi_fail(LS_ERR_NOMEM, "use a smaller batch or model", "graph",
                        "%zu bytes are more than there can be", bytes);
    LSI_TRY(device->ops->alloc(bytes + slack, &out->memory));
    out->data = out->memory;
    out->bytes = bytes;
    if (slack) {
        const size_t past = (uintptr_t)out->memory % HUGE_PAGE;
        out->data = (char *)out->memory + (past ? HUGE_PAGE - past : 0);
        /* Best effort: without large pages everything works, a little slower. */
        (void)madvise(out->data, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    }
    return LS_OK;
}

void lsi_block_free(lsi_device *device, lsi_block *block)
{
    if (block->memory)
        device->ops->free(block->memory);
    *block = (lsi_block){0};
}
