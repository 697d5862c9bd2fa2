/* Recording errors: what, detail, hint.
 *
 * 1. Only the first detector of an error records it; callers pass the code on with LSI_TRY.
 * 2. The text is per thread and of fixed size: recording never allocates and never fails.
 */
#ifndef LSI_BASE_STATUS_H
#define LSI_BASE_STATUS_H

#include <lockstep/status.h>

#define LSI_ERROR_MAX 1024

/* Record an error and return `status`. `hint` may be NULL; `detail` is a printf format. */
ls_status lsi_fail(ls_status status, const char *hint, const char *what, const char *detail, ...)
    __attribute__((format(printf, 4, 5)));

/* As lsi_fail with errno's text appended to the detail. */
ls_status lsi_fail_errno(const char *what, const char *detail, ...)
    __attribute__((format(printf, 2, 3)));

/* Record a text that is complete already, e.g. one received from another rank. */
ls_status lsi_fail_text(ls_status status, const char *text);

#define LSI_TRY(call)                                                                              \
    do {                                                                                           \
        ls_status lsi_try_status = (call);                                                         \
        if (lsi_try_status != LS_OK)                                                               \
            return lsi_try_status;                                                                 \
    } while (0)

#endif
