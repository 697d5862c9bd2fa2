/* Names that nobody else has. */
#include "base/id.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/status.h"

ls_status lsi_id_make(char id[LSI_ID_BYTES])
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return lsi_fail_errno("getrandom", "%zu bytes", sizeof random);
    snprintf(id, LSI_ID_BYTES, "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    return LS_OK;
}
