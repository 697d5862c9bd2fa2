/* Numbers and sizes from text: what is accepted, what is refused, and the words of refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/status.h"

static void ints(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        long value;
    } good[] = {{"1", 1}, {"-5", -5}, {"007", 7}, {"100", 100}};
    long out;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(lsi_parse_int("-n", good[i].text, -5, 100, &out), LS_OK);
        assert_int_equal(out, good[i].value);
    }

    static const char *const bad[] = {"",
                                      " 1",
                                      "1 ",
                                      "1x",
                                      "x",
                                      "+1",
                                      "-6",
                                      "101",
                                      "--1",
                                      "-",
                                      "1.0",
                                      "0x10",
                                      "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        out = 42;
        assert_int_equal(lsi_parse_int("-n", bad[i], -5, 100, &out), LS_ERR_CONFIG);
        assert_int_equal(out, 42);
    }
    assert_int_equal(lsi_parse_int("-n", NULL, -5, 100, &out), LS_ERR_CONFIG);
    assert_int_equal(lsi_parse_int("-n", "200", 1, 100, &out), LS_ERR_CONFIG);
    assert_string_equal(ls_last_error(), "-n: '200' is not a whole number from 1 to 100");
    assert_int_equal(lsi_parse_int("-n", "9223372036854775807", LONG_MIN, LONG_MAX, &out), LS_OK);
    assert_true(out == LONG_MAX);
}

static void seconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"1", 1}, {"0.5", 0.5}, {".25", 0.25}, {"3e2", 300}, {"1e9", 1e9}};
    double out;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(lsi_parse_seconds("--wait", good[i].text, &out), LS_OK);
        assert_true(out == good[i].value);
    }
    static const char *const bad[] = {"", "0", "-1", "nan", "inf", "1e400", "2e9", "1s", " 1", "."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        out = 42;
        assert_int_equal(lsi_parse_seconds("--wait", bad[i], &out), LS_ERR_CONFIG);
        assert_true(out == 42);
        assert_non_null(strstr(ls_last_error(), "--wait: '"));
    }
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t value;
    } good[] = {{"0", 0},
                {"1", 1},
                {"4k", 4096},
                {"4K", 4096},
                {"64M", (size_t)64 << 20},
                {"64m", (size_t)64 << 20},
                {"3G", (size_t)3 << 30},
                {"18446744073709551615", SIZE_MAX},
                {"17179869183G", (size_t)17179869183u << 30}};
    size_t out;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(lsi_parse_size("LOCKSTEP_HEAP", good[i].text, &out), LS_OK);
        assert_true(out == good[i].value);
    }
    static const char *const bad[] = {
        "",   "k", "-1", "1T", "1kk", "1 k", " 1", "1.5M", "18446744073709551616", "17179869184G",
        "1kB"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        out = 42;
        assert_int_equal(lsi_parse_size("LOCKSTEP_HEAP", bad[i], &out), LS_ERR_CONFIG);
        assert_int_equal(out, 42);
        assert_non_null(strstr(ls_last_error(), "LOCKSTEP_HEAP: '"));
    }
}

static void environment(void **state)
{
    (void)state;
    long i = 7;
    double d = 7;
    size_t s = 7;
    unsetenv("LST_X");
    assert_int_equal(lsi_env_int("LST_X", 0, 9, &i), LS_OK);
    setenv("LST_X", "", 1);
    assert_int_equal(lsi_env_seconds("LST_X", &d), LS_OK);
    assert_int_equal(lsi_env_size("LST_X", &s), LS_OK);
    assert_true(i == 7 && d == 7 && s == 7);

    setenv("LST_X", "3", 1);
    assert_int_equal(lsi_env_int("LST_X", 0, 9, &i), LS_OK);
    assert_int_equal(lsi_env_seconds("LST_X", &d), LS_OK);
    assert_int_equal(lsi_env_size("LST_X", &s), LS_OK);
    assert_true(i == 3 && d == 3 && s == 3);

    setenv("LST_X", "three", 1);
    assert_int_equal(lsi_env_int("LST_X", 0, 9, &i), LS_ERR_CONFIG);
    assert_int_equal(lsi_env_seconds("LST_X", &d), LS_ERR_CONFIG);
    assert_int_equal(lsi_env_size("LST_X", &s), LS_ERR_CONFIG);
    assert_true(i == 3 && d == 3 && s == 3);
    assert_non_null(strstr(ls_last_error(), "LST_X"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ints),
        cmocka_unit_test(seconds),
        cmocka_unit_test(sizes),
        cmocka_unit_test(environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
