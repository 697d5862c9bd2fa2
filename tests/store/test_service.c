/* Sessions without sockets, under a made-up clock: answers, waits, watches, failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/protocol.h"
#include "store/service.h"

static lsi_service *service;
static lsi_session *a, *b;
static double now;

static int open_two(void **state)
{
    (void)state;
    now = 1000;
    return lsi_service_create(&service) != LS_OK || lsi_session_open(service, &a) != LS_OK ||
           lsi_session_open(service, &b) != LS_OK;
}

static int close_all(void **state)
{
    (void)state;
    lsi_service_destroy(service); /* and the sessions that are still open */
    return 0;
}

static ls_status ask(lsi_session *s, lsi_store_message m)
{
    lsi_buffer out = {0};
    assert_int_equal(lsi_store_encode(&m, &out), LS_OK);
    ls_status status = lsi_session_input(s, lsi_buffer_front(&out), out.used, now);
    lsi_buffer_free(&out);
    return status;
}

static ls_status put(lsi_session *s, uint32_t id, const char *key, const char *value,
                     uint64_t lease)
{
    lsi_store_message m = {.id = id, .op = LSI_STORE_PUT, .number = lease, .bytes = strlen(value)};
    m.value = (const uint8_t *)value;
    snprintf(m.key, sizeof m.key, "%s", key);
    return ask(s, m);
}

/* All that a session has to say, as words: "id:status=value" or "+key=value", "-key". */
static const char *heard(lsi_session *s)
{
    static char words[65536];
    lsi_buffer *out = lsi_session_output(s);
    size_t used = 0;
    words[0] = '\0';
    while (out->used > 0) {
        lsi_store_message m;
        size_t frame;
        assert_int_equal(lsi_store_decode(LSI_STORE_SERVER, lsi_buffer_front(out), out->used, &m,
                                          &frame),
                         LS_OK);
        char *at = words + used;
        size_t left = sizeof words - used;
        int n;
        if (m.op == LSI_STORE_ANSWER)
            n = snprintf(at, left, "%u:%d=%.*s ", m.id, m.status, (int)m.bytes,
                         (const char *)m.value);
        else if (m.number)
            n = snprintf(at, left, "-%s ", m.key);
        else
            n = snprintf(at, left, "+%s=%.*s ", m.key, (int)m.bytes, (const char *)m.value);
        used += (size_t)n;
        assert_true(used < sizeof words);
        lsi_buffer_drop(out, frame);
    }
    return words;
}

static void answers_in_order(void **state)
{
    (void)state;
    put(a, 1, "k", "v", 0);
    ask(a, (lsi_store_message){.id = 2, .op = LSI_STORE_GET, .key = "k"});
    ask(a, (lsi_store_message){.id = 3, .op = LSI_STORE_GET, .key = "x"});
    ask(a, (lsi_store_message){.id = 4, .op = LSI_STORE_CAS, .key = "k", .version = 9});
    ask(a, (lsi_store_message){.id = 5, .op = LSI_STORE_REMOVE, .key = "k"});
    ask(a, (lsi_store_message){.id = 6, .op = LSI_STORE_REMOVE, .key = "k"});
    ask(a, (lsi_store_message){.id = 7, .op = LSI_STORE_KEEP, .number = 1});
    put(a, 8, "k", "", 5);
    assert_string_equal(heard(a), "1:0= 2:0=v 3:-3= 4:-4= 5:0= 6:-3= 7:-3= 8:-3= ");
    assert_string_equal(heard(b), "");
}

/* The same requests, cut at every place. */
static void requests_may_come_in_pieces(void **state)
{
    (void)state;
    lsi_buffer all = {0};
    lsi_store_message m = {.id = 1, .op = LSI_STORE_PUT, .key = "k", .bytes = 2};
    m.value = (const uint8_t *)"hi";
    assert_int_equal(lsi_store_encode(&m, &all), LS_OK);
    m = (lsi_store_message){.id = 2, .op = LSI_STORE_GET, .key = "k"};
    assert_int_equal(lsi_store_encode(&m, &all), LS_OK);
    const uint8_t *data = lsi_buffer_front(&all);
    for (size_t cut = 1; cut < all.used; cut++) {
        assert_int_equal(lsi_session_input(a, data, cut, now), LS_OK);
        assert_int_equal(lsi_session_input(a, data + cut, all.used - cut, now), LS_OK);
        assert_string_equal(heard(a), "1:0= 2:0=hi ");
    }
    for (size_t i = 0; i < all.used; i++)
        assert_int_equal(lsi_session_input(a, data + i, 1, now), LS_OK);
    assert_string_equal(heard(a), "1:0= 2:0=hi ");
    lsi_buffer_free(&all);
}

static void waits_are_answered(void **state)
{
    (void)state;
    ask(a, (lsi_store_message){.id = 1, .op = LSI_STORE_WAIT, .key = "k", .number = 5000});
    put(b, 1, "kk", "no", 0);
    assert_string_equal(heard(a), "");
    put(b, 2, "k", "yes", 0);
    assert_string_equal(heard(a), "1:0=yes ");
    put(b, 3, "k", "again", 0);
    assert_string_equal(heard(a), ""); /* once */
    ask(a, (lsi_store_message){.id = 2, .op = LSI_STORE_WAIT, .key = "k", .number = 0});
    assert_string_equal(heard(a), "2:0=again "); /* there already */

    ask(a, (lsi_store_message){.id = 3, .op = LSI_STORE_WAIT, .key = "z", .number = 5000});
    lsi_service_expire(service, now + 4.999);
    assert_string_equal(heard(a), "");
    lsi_service_expire(service, now + 5);
    assert_string_equal(heard(a), "3:-21= ");
    put(b, 4, "z", "late", 0);
    assert_string_equal(heard(a), "");

    ask(a, (lsi_store_message){.id = 4, .op = LSI_STORE_WAIT, .key = "y", .number = 5000});
    ask(a, (lsi_store_message){.id = 5, .op = LSI_STORE_WAIT, .key = "x", .number = 5000});
    put(b, 5, "y", "", 0);
    put(b, 6, "x", "", 0);
    assert_string_equal(heard(a), "4:-41= 5:0= "); /* one at a time */
}

static void watches_tell_existing_keys_first(void **state)
{
    (void)state;
    put(b, 1, "r/2", "two", 0);
    put(b, 2, "r/1", "one", 0);
    put(b, 3, "s/1", "other", 0);
    ask(a, (lsi_store_message){.id = 1, .op = LSI_STORE_WATCH, .key = "r/"});
    put(b, 4, "r/3", "three", 0);
    put(b, 5, "s/2", "other", 0);
    ask(b, (lsi_store_message){.id = 6, .op = LSI_STORE_REMOVE, .key = "r/1"});
    assert_string_equal(heard(a), "+r/1=one +r/2=two 1:0= +r/3=three -r/1 ");
}

static void overlapping_watches_tell_once(void **state)
{
    (void)state;
    put(b, 1, "a/b/c", "1", 0);
    put(b, 2, "a/x", "2", 0);
    put(b, 3, "z", "3", 0);
    ask(a, (lsi_store_message){.id = 1, .op = LSI_STORE_WATCH, .key = "a/b/"});
    assert_string_equal(heard(a), "+a/b/c=1 1:0= ");
    ask(a, (lsi_store_message){.id = 2, .op = LSI_STORE_WATCH, .key = "a/"});
    assert_string_equal(heard(a), "+a/x=2 2:0= ");
    ask(a, (lsi_store_message){.id = 3, .op = LSI_STORE_WATCH, .key = "a/b/c"});
    ask(a, (lsi_store_message){.id = 4, .op = LSI_STORE_WATCH, .key = "a/"});
    assert_string_equal(heard(a), "3:0= 4:0= ");
    put(b, 4, "a/b/c", "4", 0);
    assert_string_equal(heard(a), "+a/b/c=4 ");
    ask(a, (lsi_store_message){.id = 5, .op = LSI_STORE_WATCH, .key = ""});
    put(b, 5, "a/b/d", "5", 0);
    assert_string_equal(heard(a), "+z=3 5:0= +a/b/d=5 ");
}

static void watches_are_limited(void **state)
{
    (void)state;
    put(b, 1, "last", "1", 0);
    for (uint32_t i = 0; i < LSI_SESSION_WATCHES_MAX; i++) {
        lsi_store_message m = {.id = i + 1, .op = LSI_STORE_WATCH};
        snprintf(m.key, sizeof m.key, "w%02u/", i);
        ask(a, m);
    }
    assert_null(strstr(heard(a), ":-"));
    ask(a, (lsi_store_message){.id = 100, .op = LSI_STORE_WATCH, .key = "last"});
    assert_string_equal(heard(a), "100:-2= "); /* refused, and no event of it */
    ask(a, (lsi_store_message){.id = 101, .op = LSI_STORE_WATCH, .key = "w"}); /* covers all */
    ask(a, (lsi_store_message){.id = 102, .op = LSI_STORE_WATCH, .key = "last"});
    assert_string_equal(heard(a), "101:0= +last=1 102:0= ");
}

static void leases_end_with_their_session(void **state)
{
    (void)state;
    ask(a, (lsi_store_message){.id = 1, .op = LSI_STORE_LEASE, .number = 1000000});
    put(a, 2, "rank/0", "here", 1);
    put(b, 1, "rank/1", "also under it", 1);
    ask(b, (lsi_store_message){.id = 2, .op = LSI_STORE_WATCH, .key = "rank/"});
    heard(b);
    lsi_session_close(a);
    a = NULL;
    assert_string_equal(heard(b), "-rank/0 -rank/1 ");
    lsi_session_close(NULL);
}

static void bad_input_fails_only_its_session(void **state)
{
    (void)state;
    const uint8_t junk[16] = {0xff, 0xff, 0xff, 0x7f};
    ask(a, (lsi_store_message){.id = 1, .op = LSI_STORE_WATCH, .key = ""});
    heard(a);
    assert_int_equal(lsi_session_input(a, junk, sizeof junk, now), LS_ERR_PROTOCOL);
    assert_int_equal(lsi_session_health(a), LS_ERR_PROTOCOL);
    assert_int_equal(put(a, 2, "k", "v", 0), LS_ERR_PROTOCOL); /* not executed any more */
    assert_null(lsi_map_find(lsi_service_map(service), "k"));
    assert_int_equal(put(b, 1, "k", "v", 0), LS_OK);
    assert_string_equal(heard(a), "");
    assert_string_equal(heard(b), "1:0= ");
}

/* A session that is not emptied fails at its limit; the others notice nothing. */
static void unread_output_is_bounded(void **state)
{
    (void)state;
    uint8_t *big = calloc(1, LSI_STORE_VALUE_MAX);
    uint64_t version;
    ask(a, (lsi_store_message){.id = 1, .op = LSI_STORE_WATCH, .key = ""});
    size_t puts = 0;
    while (lsi_session_health(a) == LS_OK && puts < 1000) {
        assert_int_equal(lsi_map_put(lsi_service_map(service), "k", big, LSI_STORE_VALUE_MAX, 0,
                                     &version),
                         LS_OK);
        puts++;
    }
    assert_int_equal(puts, LSI_SESSION_OUTPUT_MAX / LSI_STORE_VALUE_MAX);
    assert_true(lsi_session_output(a)->used < LSI_SESSION_OUTPUT_MAX + LSI_STORE_FRAME_MAX);
    assert_int_equal(lsi_session_health(b), LS_OK);
    for (uint32_t i = 1; i < 1000 && lsi_session_health(b) == LS_OK; i++)
        ask(b, (lsi_store_message){.id = i, .op = LSI_STORE_GET, .key = "k"});
    assert_int_not_equal(lsi_session_health(b), LS_OK);
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers_in_order, open_two, close_all),
        cmocka_unit_test_setup_teardown(requests_may_come_in_pieces, open_two, close_all),
        cmocka_unit_test_setup_teardown(waits_are_answered, open_two, close_all),
        cmocka_unit_test_setup_teardown(watches_tell_existing_keys_first, open_two, close_all),
        cmocka_unit_test_setup_teardown(overlapping_watches_tell_once, open_two, close_all),
        cmocka_unit_test_setup_teardown(watches_are_limited, open_two, close_all),
        cmocka_unit_test_setup_teardown(leases_end_with_their_session, open_two, close_all),
        cmocka_unit_test_setup_teardown(bad_input_fails_only_its_session, open_two, close_all),
        cmocka_unit_test_setup_teardown(unread_output_is_bounded, open_two, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
