/* Status names and the per-thread last error. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <lockstep/version.h>

#define STRINGIFY_(x) #x
#define STRINGIFY(x) STRINGIFY_(x)

static _Thread_local char last_error[LSI_ERROR_MAX];

const char *ls_version(void)
{
    return STRINGIFY(LS_VERSION_MAJOR) "." STRINGIFY(LS_VERSION_MINOR) "." STRINGIFY(
        LS_VERSION_PATCH);
}

const char *ls_last_error(void)
{
    return last_error;
}

ls_status_reach ls_status_get_reach(ls_status status)
{
    if (status >= 0)
        return LS_STATUS_FINE;
    if (status > -20)
        return LS_STATUS_OPERATION;
    if (status > -40)
        return LS_STATUS_PEER;
    if (status > -60)
        return LS_STATUS_GROUP;
    return LS_STATUS_PROCESS;
}

const char *ls_status_name(ls_status status)
{
    switch (status) {
    case LS_OK: return "LS_OK";
    case LS_IN_PROGRESS: return "LS_IN_PROGRESS";
    case LS_ERR_INVALID: return "LS_ERR_INVALID";
    case LS_ERR_UNSUPPORTED: return "LS_ERR_UNSUPPORTED";
    case LS_ERR_NOT_FOUND: return "LS_ERR_NOT_FOUND";
    case LS_ERR_CONFLICT: return "LS_ERR_CONFLICT";
    case LS_ERR_PEER_DEAD: return "LS_ERR_PEER_DEAD";
    case LS_ERR_TIMEOUT: return "LS_ERR_TIMEOUT";
    case LS_ERR_PROTOCOL: return "LS_ERR_PROTOCOL";
    case LS_ERR_AUTH: return "LS_ERR_AUTH";
    case LS_ERR_MISMATCH: return "LS_ERR_MISMATCH";
    case LS_ERR_ABORTED: return "LS_ERR_ABORTED";
    case LS_ERR_NOMEM: return "LS_ERR_NOMEM";
    case LS_ERR_SYSTEM: return "LS_ERR_SYSTEM";
    case LS_ERR_CONFIG: return "LS_ERR_CONFIG";
    }
    return "LS_ERR_UNKNOWN";
}

/* Append to the error text; what does not fit is cut. */
static void append(size_t *used, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append_v(size_t *used, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

static void append_v(size_t *used, const char *format, va_list args)
{
    if (*used >= LSI_ERROR_MAX - 1)
        return;
    int n = vsnprintf(last_error + *used, LSI_ERROR_MAX - *used, format, args);
    if (n > 0)
        *used += (size_t)n;
}

static void append(size_t *used, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    append_v(used, format, args);
    va_end(args);
}

ls_status lsi_fail(ls_status status, const char *hint, const char *what, const char *detail, ...)
{
    size_t used = 0;
    append(&used, "%s: ", what);
    va_list args;
    va_start(args, detail);
    append_v(&used, detail, args);
    va_end(args);
    if (hint)
        append(&used, " (%s)", hint);
    return status;
}

ls_status lsi_fail_errno(const char *what, const char *detail, ...)
{
    int code = errno;
    size_t used = 0;
    append(&used, "%s: ", what);
    va_list args;
    va_start(args, detail);
    append_v(&used, detail, args);
    va_end(args);
    append(&used, ": %s", strerror(code));
    return code == ENOMEM ? LS_ERR_NOMEM : LS_ERR_SYSTEM;
}

ls_status lsi_fail_text(ls_status status, const char *text)
{
    size_t used = 0;
    if (text != last_error) /* re-recording the current text is a no-op */
        append(&used, "%s", text);
    return status;
}
