/* Devices: the registry, opening one, its scratch memory. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/kernels.h"
#include "device/ref.h"

static const char *always(void)
{
    return NULL;
}

static ls_status host_alloc(size_t bytes, void **out)
{
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!memory)
        return lsi_fail(LS_ERR_NOMEM, "use a smaller batch or model", "device memory",
                        "%zu bytes could not be allocated", bytes);
    *out = memory;
    return LS_OK;
}

static ls_status host_copy(void *to, const void *from, size_t bytes)
{
    if (bytes)
        memcpy(to, from, bytes);
    return LS_OK;
}

static const lsi_kernels *cpu_kernels(void)
{
    return lsi_isa_kernels(lsi_isa_chosen());
}

static const lsi_device_ops known[] = {
    {"cpu", always, cpu_kernels, host_alloc, free, host_copy},
    {"ref", always, lsi_ref_kernels, host_alloc, free, host_copy},
};

const lsi_device_ops *lsi_device_known(int i)
{
    return i >= 0 && i < (int)(sizeof known / sizeof *known) ? &known[i] : NULL;
}

ls_status lsi_device_open(const char *name, lsi_device **out)
{
    LSI_TRY(lsi_isa_check());
    for (int i = 0; lsi_device_known(i); i++) {
        const lsi_device_ops *ops = lsi_device_known(i);
        if (name && *name ? strcmp(name, ops->name) != 0 : ops->why_unusable() != NULL)
            continue;
        if (ops->why_unusable())
            return lsi_fail(LS_ERR_UNSUPPORTED, NULL, "device", "%s cannot be used here: %s",
                            ops->name, ops->why_unusable());
        lsi_device *device = calloc(1, sizeof *device);
        if (!device)
            return lsi_fail(LS_ERR_NOMEM, NULL, "device", "no memory for its description");
        device->ops = ops;
        device->k = ops->kernels();
        *out = device;
        return LS_OK;
    }
    return lsi_fail(LS_ERR_CONFIG, "known: cpu, ref", "device", "there is none named '%s'",
                    name ? name : "");
}

void lsi_device_close(lsi_device *device)
{
    if (!device)
        return;
    device->ops->free(device->scratch);
    lsi_device_forget(device);
    free(device);
}

ls_status lsi_device_scratch(lsi_device *device, size_t bytes, void **out)
{
    if (bytes > device->scratch_bytes) {
        device->ops->free(device->scratch);
        device->scratch = NULL;
        device->scratch_bytes = 0;
        LSI_TRY(device->ops->alloc(bytes, &device->scratch));
        device->scratch_bytes = bytes;
    }
    *out = device->scratch;
    return LS_OK;
}
