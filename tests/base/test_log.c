/* The log: levels from the environment, the prefix, one write a line, errno untouched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

static char said[8192];
static int writes; /* packets, and so write(2) calls */

/* Run `body` in a child with LOCKSTEP_LOG set (NULL: unset) and collect its stderr. */
static void collect(const char *level, void (*body)(void))
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (level)
            setenv("LOCKSTEP_LOG", level, 1);
        else
            unsetenv("LOCKSTEP_LOG");
        dup2(ends[1], STDERR_FILENO);
        body();
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t n;
    writes = 0;
    while ((n = read(ends[0], said + used, sizeof said - 1 - used)) > 0) {
        used += (size_t)n;
        writes++;
    }
    said[used] = 0;
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void say_all(void)
{
    lsi_log(LSI_LOG_ERROR, "e%d", 1);
    lsi_log(LSI_LOG_WARN, "w");
    lsi_log(LSI_LOG_INFO, "i");
    lsi_log(LSI_LOG_DEBUG, "d");
}

static void levels(void **state)
{
    (void)state;
    collect(NULL, say_all);
    assert_string_equal(said, "lockstep: e1\nlockstep: w\n");
    assert_int_equal(writes, 2);
    collect("", say_all);
    assert_string_equal(said, "lockstep: e1\nlockstep: w\n");
    collect("error", say_all);
    assert_string_equal(said, "lockstep: e1\n");
    collect("debug", say_all);
    assert_string_equal(said, "lockstep: e1\nlockstep: w\nlockstep: i\nlockstep: d\n");
}

static void unknown_level_is_said_once(void **state)
{
    (void)state;
    collect("loud", say_all);
    assert_non_null(strstr(said, "LOCKSTEP_LOG is 'loud', expected error, warn, info or debug"));
    assert_non_null(strstr(said, "lockstep: w\n"));
    assert_null(strstr(said, "lockstep: i\n"));
    assert_int_equal(writes, 3);
}

static void say_ranks(void)
{
    lsi_log_set_rank(17);
    lsi_log(LSI_LOG_WARN, "with a newline\n");
    lsi_log_set_rank(-1);
    lsi_log(LSI_LOG_WARN, "%s", "");
}

static void prefix(void **state)
{
    (void)state;
    collect(NULL, say_ranks);
    assert_string_equal(said, "lockstep[17]: with a newline\nlockstep: \n");
}

static void say_much(void)
{
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    lsi_log(LSI_LOG_WARN, "%s", text);
}

static void long_lines_are_cut(void **state)
{
    (void)state;
    collect(NULL, say_much);
    assert_int_equal(writes, 1);
    assert_in_range(strlen(said), 1000, 4096);
    assert_int_equal(said[strlen(said) - 1], '\n');
}

static void say_without_stderr(void)
{
    close(STDERR_FILENO);
    errno = EDOM;
    lsi_log(LSI_LOG_ERROR, "into the void");
    if (errno != EDOM)
        _exit(1);
}

static void errno_stays(void **state)
{
    (void)state;
    collect(NULL, say_without_stderr);
    assert_string_equal(said, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),      cmocka_unit_test(unknown_level_is_said_once),
        cmocka_unit_test(prefix),      cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(errno_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
