/* libcurl, loaded when the first store that needs it is opened.
 *
 * libcurl brings some thirty libraries with it, which cost every process of a run 10 ms at its
 * start; most runs never speak HTTP. So it is not linked: this table holds the functions we call.
 *
 * Any thread.
 */
#ifndef LSI_STORE_CURL_H
#define LSI_STORE_CURL_H

#include <curl/curl.h>

#include <lockstep/status.h>

#define LSI_CURL_FUNCTIONS(X)                                                                      \
    X(easy_init)                                                                                   \
    X(easy_cleanup)                                                                                \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_strerror)                                                                               \
    X(multi_init)                                                                                  \
    X(multi_cleanup)                                                                               \
    X(multi_setopt)                                                                                \
    X(multi_add_handle)                                                                            \
    X(multi_remove_handle)                                                                         \
    X(multi_socket_action)                                                                         \
    X(multi_info_read)                                                                             \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(global_init)

typedef struct lsi_curl {
#define X(name) __typeof__(&curl_##name) name;
    LSI_CURL_FUNCTIONS(X)
#undef X
} lsi_curl;

/* The functions, valid as long as the process lives; the first call loads them. LS_ERR_UNSUPPORTED
 * when there is no libcurl. */
ls_status lsi_curl_load(const lsi_curl **out);

#endif
