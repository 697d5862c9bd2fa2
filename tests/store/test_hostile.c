/* Connections that mean ill, or are ill, while a good client works on. Every test ends by showing
 * that the server still serves, quickly. */
#include "fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#define ANSWER_BYTES (LSI_AUTH_NONCE_BYTES + LSI_AUTH_MAC_BYTES)

/* The first message of a client that has the key, and the handshake that goes with it. */
static void make_hello(lsi_auth *auth, int fd, const lsi_key *key)
{
    static const uint8_t nobody[LSI_AUTH_IDENTITY_BYTES];
    assert_int_equal(lsi_auth_client(auth, fd, key, LSI_AUTH_STORE, nobody), LS_OK);
}

static void wrong_key_is_refused_on_both_sides(void **state)
{
    (void)state;
    lsi_store *good = open_client(5), *bad = NULL;
    double began = lsi_now();
    assert_int_equal(lsi_store_open(fixture.url, &wrong_key, 5, &bad), LS_ERR_AUTH);
    assert_true(lsi_now() - began < 1); /* told at once */
    assert_error_has("key");
    assert_error_has(fixture.address);
    assert_null(bad);

    /* a client that does not mind the server's proof, and shows one of its own making */
    int fd = raw_connect();
    lsi_auth auth;
    uint8_t answer[ANSWER_BYTES], proof[LSI_AUTH_MAC_BYTES] = {0};
    size_t said = 99;
    make_hello(&auth, fd, &wrong_key);
    send_raw(fd, auth.hello, sizeof auth.hello);
    assert_int_equal(lsi_net_recv_all(fd, answer, sizeof answer, lsi_now() + 5, "it"), LS_OK);
    send_raw(fd, proof, sizeof proof);
    lsi_buffer out = {0};
    lsi_store_message m = {.id = 1, .op = LSI_STORE_PUT, .key = "stolen"};
    assert_int_equal(lsi_store_encode(&m, &out), LS_OK);
    send(fd, lsi_buffer_front(&out), out.used, MSG_NOSIGNAL);
    lsi_buffer_free(&out);
    assert_true(is_dropped_within(fd, 2, &said));
    assert_int_equal(said, 0); /* without a word */
    close(fd);
    assert_absent(good, "stolen");
    work(good);
    lsi_store_close(good);
}

static atomic_int impostor_stop;

static void *run_impostor(void *arg)
{
    while (!atomic_load(&impostor_stop)) {
        struct pollfd p = {.fd = lsi_store_server_fd(arg), .events = POLLIN};
        poll(&p, 1, 20);
        lsi_store_server_step(arg);
    }
    return NULL;
}

/* An impostor in the server's place: the client notices, and says nothing more. */
static void impostor_server_is_refused(void **state)
{
    (void)state;
    lsi_store_server *impostor = NULL;
    lsi_store *store = NULL;
    pthread_t thread;
    char url[LSI_ADDR_MAX + 8];
    assert_int_equal(lsi_store_server_create(NULL, 0, &wrong_key, &impostor), LS_OK);
    snprintf(url, sizeof url, "tcp://%s", lsi_store_server_address(impostor));
    assert_int_equal(pthread_create(&thread, NULL, run_impostor, impostor), 0);
    assert_int_equal(lsi_store_open(url, &right_key, 5, &store), LS_ERR_AUTH);
    atomic_store(&impostor_stop, 1);
    pthread_join(thread, NULL);
    lsi_store_server_destroy(impostor);
}

static void requests_without_handshake_are_not_read(void **state)
{
    (void)state;
    lsi_store *good = open_client(5);
    put_text(good, "secret", "value", 0);
    int fd = raw_connect();
    size_t said = 99;
    raw_ask(fd, (lsi_store_message){.id = 1, .op = LSI_STORE_GET, .key = "secret"});
    assert_true(is_dropped_within(fd, 2, &said));
    assert_int_equal(said, 0);
    close(fd);
    work(good);
    lsi_store_close(good);
}

static void replayed_handshake_is_refused(void **state)
{
    (void)state;
    lsi_store *good = open_client(5);
    int fd = raw_connect();
    lsi_auth recorded;
    make_hello(&recorded, fd, &right_key);
    assert_int_equal(lsi_auth_run(&recorded, lsi_now() + 5, "the server"), LS_OK);
    raw_be_welcome(fd);
    raw_ask(fd, (lsi_store_message){.id = 1, .op = LSI_STORE_PUT, .key = "mine"});
    uint8_t answer[LSI_STORE_HEAD_BYTES];
    assert_int_equal(lsi_net_recv_all(fd, answer, sizeof answer, lsi_now() + 5, "it"), LS_OK);
    assert_text(good, "mine", "");

    int again = raw_connect();
    size_t said = 0;
    send_raw(again, recorded.hello, sizeof recorded.hello);
    send_raw(again, recorded.proof, sizeof recorded.proof);
    assert_true(is_dropped_within(again, 2, &said));
    assert_int_equal(said, ANSWER_BYTES); /* the server's proof, and then nothing */
    close(fd);
    close(again);
    work(good);
    lsi_store_close(good);
}

static void garbage_is_dropped(void **state)
{
    (void)state;
    lsi_store *good = open_client(5);
    srand(5);
    for (int i = 0; i < 40; i++) {
        uint8_t junk[4096];
        int fd = raw_connect();
        for (size_t k = 0; k < sizeof junk; k++)
            junk[k] = (uint8_t)rand();
        if (i % 4 == 0)
            memcpy(junk, "GET / HTTP/1.1\r\n", 16);
        if (i % 4 == 1)
            memcpy(junk, "LSTP", 4); /* nearly one of ours */
        send(fd, junk, 1 + (size_t)rand() % sizeof junk, MSG_NOSIGNAL);
        if (i % 2 == 0)
            assert_true(is_dropped_within(fd, 2, NULL));
        close(fd);
        if (i % 10 == 0)
            work(good);
    }
    work(good);
    lsi_store_close(good);
}

/* Closed after every number of bytes of a good conversation: nothing of it is kept, nothing of a
 * half request is done. */
static void closed_in_the_middle(void **state)
{
    (void)state;
    lsi_store *good = open_client(5);
    for (size_t n = 0; n < LSI_AUTH_HELLO_BYTES; n += 5) {
        int fd = raw_connect();
        lsi_auth auth;
        make_hello(&auth, fd, &right_key);
        send_raw(fd, auth.hello, n);
        close(fd);
    }
    lsi_buffer out = {0};
    lsi_store_message m = {.id = 1, .op = LSI_STORE_PUT, .key = "half", .bytes = 4};
    m.value = (const uint8_t *)"half";
    assert_int_equal(lsi_store_encode(&m, &out), LS_OK);
    for (size_t n = 0; n < out.used; n++) {
        int fd = raw_join();
        send_raw(fd, lsi_buffer_front(&out), n);
        close(fd);
        if (n % 8 == 0)
            work(good);
    }
    lsi_buffer_free(&out);
    work(good);
    assert_absent(good, "half");
    lsi_store_close(good);
}

/* Silent, half a handshake, and a drip of correct bytes: all are gone after the deadline. */
static void the_slow_are_dropped_at_the_deadline(void **state)
{
    (void)state;
    lsi_store *good = open_client(5);
    double began = lsi_now();
    int silent = raw_connect(), half = raw_connect(), drip = raw_connect(), last = raw_connect();
    int slow_member = raw_join();
    lsi_auth auth, drip_auth, last_auth;
    make_hello(&auth, half, &right_key);
    send_raw(half, auth.hello, 20);
    make_hello(&drip_auth, drip, &right_key);
    make_hello(&last_auth, last, &right_key); /* all but the proof */
    send_raw(last, last_auth.hello, sizeof last_auth.hello);
    const uint8_t beginning[] = {0x40, 0, 0, 0, 1, 0};
    size_t sent = 0, sent_slowly = 0;
    while (lsi_now() - began < LSI_AUTH_DEADLINE_S - 0.3) {
        if (sent < LSI_AUTH_HELLO_BYTES)
            send(drip, drip_auth.hello + sent++, 1, MSG_NOSIGNAL);
        if (sent_slowly < sizeof beginning) /* a member may take its time */
            send_raw(slow_member, beginning + sent_slowly++, 1);
        work(good);
        poll(NULL, 0, 120);
    }
    assert_false(is_dropped_within(silent, 0, NULL));
    assert_true(sent < LSI_AUTH_HELLO_BYTES);
    assert_true(is_dropped_within(silent, 2, NULL));
    assert_true(is_dropped_within(half, 1, NULL));
    assert_true(is_dropped_within(drip, 1, NULL));
    assert_true(is_dropped_within(last, 1, NULL));
    double took = lsi_now() - began;
    assert_true(took >= LSI_AUTH_DEADLINE_S && took < LSI_AUTH_DEADLINE_S + 2);
    assert_false(is_dropped_within(slow_member, 0, NULL));
    work(good);
    close(silent);
    close(half);
    close(drip);
    close(last);
    close(slow_member);
    lsi_store_close(good);
}

static void two_hundred_idle_strangers(void **state)
{
    (void)state;
    enum { IDLE = 200 };
    lsi_store *good = open_client(5);
    int idle[IDLE];
    for (int i = 0; i < IDLE; i++) {
        idle[i] = raw_connect();
        if (i % 50 == 0)
            work(good);
    }
    double began = lsi_now();
    lsi_store *newcomer = open_client(5);
    assert_true(lsi_now() - began < 1);
    work(newcomer);
    work(good);
    int kept = 0;
    for (int i = 0; i < IDLE; i++)
        kept += !is_dropped_within(idle[i], 0, NULL);
    assert_true(kept > 0 && kept < IDLE);
    assert_true(is_dropped_within(idle[0], 0, NULL));         /* the oldest went, */
    assert_false(is_dropped_within(idle[IDLE - 1], 0, NULL)); /* the youngest did not */
    for (int i = 0; i < IDLE; i++)
        close(idle[i]);
    work(good);
    lsi_store_close(newcomer);
    lsi_store_close(good);
}

/* In one batch of events come the newcomers who push the oldest strangers out, and then words of
 * those very strangers. */
static void words_of_the_dropped_are_not_heard(void **state)
{
    (void)state;
    enum { OLD = 120, NEW = 60 };
    int old[OLD], new[NEW];
    for (int i = 0; i < OLD; i++)
        old[i] = raw_connect();
    poll(NULL, 0, 100);
    freeze();
    for (int i = 0; i < NEW; i++)
        new[i] = raw_connect();
    for (int i = 0; i < OLD; i++)
        send_raw(old[i], "L", 1);
    poll(NULL, 0, 50);
    for (int i = 0; i < 5; i++)
        lsi_store_server_step(fixture.server);
    atomic_store(&fixture.freeze, 0);
    assert_true(is_dropped_within(old[0], 1, NULL));
    assert_false(is_dropped_within(old[OLD - 1], 0, NULL));
    assert_false(is_dropped_within(new[NEW - 1], 0, NULL));
    for (int i = 0; i < OLD; i++)
        close(old[i]);
    for (int i = 0; i < NEW; i++)
        close(new[i]);
    lsi_store *good = open_client(5);
    work(good);
    lsi_store_close(good);
}

/* A child that was just forked holds copies of all descriptors: closing is not the end of them. */
static void dropped_although_a_child_holds_a_copy(void **state)
{
    (void)state;
    lsi_store *good = open_client(5);
    int fd = raw_join(), stranger = raw_connect();
    poll(NULL, 0, 100);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    send_raw(fd, "\xff\xff\xff\xff", 4);
    send_raw(stranger, "GET /", 5);
    assert_true(is_dropped_within(fd, 2, NULL));
    assert_true(is_dropped_within(stranger, 2, NULL));
    for (int i = 0; i < 5; i++) {
        poll(NULL, 0, 30);
        work(good);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(fd);
    close(stranger);
    lsi_store_close(good);
}

/* What the socket did not take at once goes on as soon as it does: the descriptor tells. */
static void the_rest_of_an_answer_follows(void **state)
{
    (void)state;
    lsi_store *good = open_client(5);
    uint8_t *big = calloc(1, LSI_STORE_VALUE_MAX);
    assert_int_equal(good->ops->put(good, "big", big, LSI_STORE_VALUE_MAX, 0, NULL), LS_OK);
    free(big);
    int fd = raw_join();
    poll(NULL, 0, 100);
    freeze();
    enum { GETS = 40 };
    for (uint32_t i = 1; i <= GETS; i++)
        raw_ask(fd, (lsi_store_message){.id = i, .op = LSI_STORE_GET, .key = "big"});
    size_t wanted = GETS * (LSI_STORE_HEAD_BYTES + LSI_STORE_VALUE_MAX), got = 0;
    struct pollfd ready[2] = {{.fd = fd, .events = POLLIN},
                              {.fd = lsi_store_server_fd(fixture.server), .events = POLLIN}};
    while (got < wanted) {
        static char sink[65536];
        if (poll(ready, 2, 3000) == 0)
            fail_msg("%zu of %zu bytes came, then nothing", got, wanted);
        if (ready[1].revents)
            lsi_store_server_step(fixture.server);
        ssize_t n = recv(fd, sink, sizeof sink, 0);
        got += n > 0 ? (size_t)n : 0;
    }
    atomic_store(&fixture.freeze, 0);
    close(fd);
    work(good);
    lsi_store_close(good);
}

static void bad_frames_end_their_member_only(void **state)
{
    (void)state;
    static const uint8_t bad[][12] = {
        {0xff, 0xff, 0xff, 0xff}, /* 4 GiB */
        {0xe1, 0, 0x10, 0},       /* one byte over the limit */
        {0, 0, 0, 0},             /* shorter than its head */
        {0x18, 0, 0, 0, 1, 0, 0, 0, LSI_STORE_ANSWER},
        {0x18, 0, 0, 0, 1, 0, 0, 0, LSI_STORE_EVENT},
        {0x18, 0, 0, 0, 1, 0, 0, 0, 200},
    };
    lsi_store *good = open_client(5);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int fd = raw_join();
        size_t said = 99;
        send_raw(fd, bad[i], sizeof bad[i]);
        assert_true(is_dropped_within(fd, 2, &said));
        assert_int_equal(said, 0);
        close(fd);
        work(good);
    }
    lsi_store_close(good);
}

/* A member that asks, or watches, and never reads: it goes at the limit, its lease with it. */
static void those_who_do_not_read_are_dropped(void **state)
{
    (void)state;
    lsi_store *good = open_client(20);
    uint8_t *big = calloc(1, LSI_STORE_VALUE_MAX);
    assert_int_equal(good->ops->watch(good, "mark/"), LS_OK);
    int deaf = raw_join(), greedy = raw_join();
    raw_ask(deaf, (lsi_store_message){.id = 1, .op = LSI_STORE_LEASE, .number = 1000000});
    raw_ask(deaf,
            (lsi_store_message){.id = 2, .op = LSI_STORE_PUT, .key = "mark/deaf", .number = 1});
    raw_ask(deaf, (lsi_store_message){.id = 3, .op = LSI_STORE_WATCH, .key = "big"});
    assert_event(good, "mark/deaf", "");
    int puts = 0;
    lsi_store_event event;
    for (; puts < 200 && good->ops->next(good, 0, &event) == LS_IN_PROGRESS; puts++)
        assert_int_equal(good->ops->put(good, "big", big, LSI_STORE_VALUE_MAX, 0, NULL), LS_OK);
    assert_true(puts > 60 && puts < 100); /* 64 MiB of events, and what the kernel holds */
    assert_string_equal(event.key, "mark/deaf");
    assert_true(event.deleted);
    assert_true(is_dropped_within(deaf, 5, NULL));

    lsi_buffer gets = {0};
    for (uint32_t i = 1; i <= 2000; i++) {
        lsi_store_message m = {.id = i, .op = LSI_STORE_GET, .key = "big"};
        assert_int_equal(lsi_store_encode(&m, &gets), LS_OK);
    }
    send_raw(greedy, lsi_buffer_front(&gets), gets.used);
    poll(NULL, 0, 300);
    assert_true(is_dropped_within(greedy, 5, NULL));
    lsi_buffer_free(&gets);
    work(good);
    close(deaf);
    close(greedy);
    free(big);
    lsi_store_close(good);
}

#define BOTH(test) cmocka_unit_test_setup_teardown(test, fixture_start, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(wrong_key_is_refused_on_both_sides),
        BOTH(impostor_server_is_refused),
        BOTH(requests_without_handshake_are_not_read),
        BOTH(replayed_handshake_is_refused),
        BOTH(garbage_is_dropped),
        BOTH(closed_in_the_middle),
        BOTH(the_slow_are_dropped_at_the_deadline),
        BOTH(two_hundred_idle_strangers),
        BOTH(words_of_the_dropped_are_not_heard),
        BOTH(dropped_although_a_child_holds_a_copy),
        BOTH(the_rest_of_an_answer_follows),
        BOTH(bad_frames_end_their_member_only),
        BOTH(those_who_do_not_read_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
