/* What the end of a rank means, for every way to end in every state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "launch/verdict.h"

#define EXIT(code) ((code) << 8)

static const struct {
    int wait_status;
    uint32_t state;
    int exec_errno;
    int failed, dead, status;
    const char *cause;
} cases[] = {
    {EXIT(0), LSI_RANK_ABSENT, 0, 0, 0, 0, ""},
    {EXIT(0), LSI_RANK_LEFT, 0, 0, 0, 0, ""},
    {EXIT(0), LSI_RANK_JOINED, 0, 1, 1, 1, "exited without ls_finalize"},
    {EXIT(3), LSI_RANK_ABSENT, 0, 1, 1, 3, "exited with status 3"},
    {EXIT(3), LSI_RANK_JOINED, 0, 1, 1, 3, "exited with status 3 before ls_finalize"},
    {EXIT(3), LSI_RANK_LEFT, 0, 1, 0, 3, "exited with status 3 after ls_finalize"},
    {EXIT(255), LSI_RANK_JOINED, 0, 1, 1, 255, "exited with status 255 before ls_finalize"},
    {SIGKILL, LSI_RANK_JOINED, 0, 1, 1, 137, "killed by signal 9 (SIGKILL)"},
    {SIGKILL, LSI_RANK_ABSENT, 0, 1, 1, 137, "killed by signal 9 (SIGKILL)"},
    {SIGSEGV | 0x80, LSI_RANK_JOINED, 0, 1, 1, 139, "killed by signal 11 (SIGSEGV)"},
    {SIGTERM, LSI_RANK_LEFT, 0, 1, 0, 143, "killed by signal 15 (SIGTERM) after ls_finalize"},
    {40, LSI_RANK_JOINED, 0, 1, 1, 168, "killed by signal 40"},
    {EXIT(127), LSI_RANK_ABSENT, ENOENT, 1, 1, 127, "cannot run 'prog': No such file or directory"},
    {EXIT(126), LSI_RANK_ABSENT, EACCES, 1, 1, 126, "cannot run 'prog': Permission denied"},
    {EXIT(127), LSI_RANK_ABSENT, 0, 1, 1, 127, "exited with status 127"},
};

static void all_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lsi_verdict v;
        lsi_verdict_judge(cases[i].wait_status, cases[i].state, cases[i].exec_errno, "prog", &v);
        assert_string_equal(v.cause, cases[i].cause);
        assert_int_equal(v.failed, cases[i].failed);
        assert_int_equal(v.dead, cases[i].dead);
        assert_int_equal(v.status, cases[i].status);
    }
}

static void a_long_name_is_cut(void **state)
{
    (void)state;
    char name[5000];
    lsi_verdict v;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    lsi_verdict_judge(EXIT(127), LSI_RANK_ABSENT, ENOENT, name, &v);
    assert_non_null(strstr(v.cause, "': No such file or directory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cases),
        cmocka_unit_test(a_long_name_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
