/* The table of the reference device; ref.h says what it is for. */
#include "device/ref.h"

#define ONE(name) +1
_Static_assert(sizeof(lsi_kernels) ==
                   sizeof(const char *) + (0 LSI_REF_KERNELS(ONE)) * sizeof(void (*)(void)),
               "LSI_REF_KERNELS lists every member of lsi_kernels");

#define ENTRY(name) .name = lsi_ref_##name,
static const lsi_kernels kernels = {.isa = "ref", LSI_REF_KERNELS(ENTRY)};

const lsi_kernels *lsi_ref_kernels(void)
{
    return &kernels;
}
