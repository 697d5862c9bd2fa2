/* Loading libcurl, once. It is never unloaded: others may use it too. */
#include "store/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

#define LIBRARY "libcurl.so.4"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static lsi_curl table;
static char failure[200]; /* empty: loaded */

static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(failure, sizeof failure, "%s", dlerror());
        return;
    }
    void *function;
#define X(name)                                                                                    \
    if (!(function = dlsym(library, "curl_" #name))) {                                             \
        snprintf(failure, sizeof failure, "%s has no curl_%s", LIBRARY, #name);                    \
        return;                                                                                    \
    }                                                                                              \
    memcpy(&table.name, &function, sizeof function);
    LSI_CURL_FUNCTIONS(X)
#undef X
    if (table.global_init(CURL_GLOBAL_NOTHING) != CURLE_OK) /* no TLS */
        snprintf(failure, sizeof failure, "%s does not start", LIBRARY);
}

ls_status lsi_curl_load(const lsi_curl **out)
{
    pthread_once(&once, load);
    if (*failure)
        return lsi_fail(LS_ERR_UNSUPPORTED, "install libcurl (Debian: libcurl4)", "store", "%s",
                        failure);
    *out = &table;
    return LS_OK;
}
