/* Numbers and sizes from text: flags and environment variables.
 *
 * Each parser takes the whole string or fails with LS_ERR_CONFIG naming `name`, the text and
 * what would be accepted.
 */
#ifndef LSI_BASE_ENV_H
#define LSI_BASE_ENV_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

ls_status lsi_parse_int(const char *name, const char *text, long min, long max, long *out);
ls_status lsi_parse_seconds(const char *name, const char *text, double *out); /* > 0, finite */
/* Bytes with an optional suffix k, M or G (powers of 1024), upper or lower case. */
ls_status lsi_parse_size(const char *name, const char *text, size_t *out);

/* As above from the environment; *out keeps its value when the variable is unset or empty. */
ls_status lsi_env_int(const char *name, long min, long max, long *out);
ls_status lsi_env_seconds(const char *name, double *out);
ls_status lsi_env_size(const char *name, size_t *out);

#endif
