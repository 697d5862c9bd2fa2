/* Words on stderr, only as many as were asked for.
 *
 * LOCKSTEP_LOG=error|warn|info|debug (default warn). One write(2) a line, so that lines of
 * several ranks do not mix. The prefix is "lockstep[rank]: ".
 */
#ifndef LSI_BASE_LOG_H
#define LSI_BASE_LOG_H

typedef enum lsi_log_level {
    LSI_LOG_ERROR,
    LSI_LOG_WARN,
    LSI_LOG_INFO,
    LSI_LOG_DEBUG
} lsi_log_level;

/* The rank shown in the prefix by this thread; negative for none (the launcher). */
void lsi_log_set_rank(int rank);
int lsi_log_enabled(lsi_log_level level);
void lsi_log(lsi_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
