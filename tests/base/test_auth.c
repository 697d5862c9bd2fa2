/* The handshake over socket pairs, and key files. A relay between the two sides delivers bytes one
 * by one, changes them, keeps them for a replay, or stops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auth.h"
#include "base/clock.h"
#include "base/status.h"

#define ANSWER_BYTES (LSI_AUTH_NONCE_BYTES + LSI_AUTH_MAC_BYTES)
#define TOTAL_BYTES (LSI_AUTH_HELLO_BYTES + ANSWER_BYTES + LSI_AUTH_MAC_BYTES)

static const uint8_t identity[LSI_AUTH_IDENTITY_BYTES] = "rank 7 of host 2";
static const lsi_key right = {"the right key, thirty-two bytes."};
static const lsi_key wrong = {"the wrong key, thirty-two bytes."};

static void make_pair(int fd[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
}

/* Client and server, with a relay between them: client - near[1], far[0] - server. */
typedef struct wire {
    int near[2], far[2];
    lsi_auth client, server;
    ls_status client_status, server_status;
    size_t moved;               /* bytes relayed, in both directions */
    size_t flip;                /* index of the byte to change, TOTAL_BYTES: none */
    uint8_t bytes[TOTAL_BYTES]; /* as relayed */
} wire;

static void wire_open(wire *w, const lsi_key *client_key, const lsi_key *server_key)
{
    memset(w, 0, sizeof *w);
    make_pair(w->near);
    make_pair(w->far);
    w->flip = TOTAL_BYTES;
    w->client_status = w->server_status = LS_IN_PROGRESS;
    assert_int_equal(lsi_auth_client(&w->client, w->near[0], client_key, LSI_AUTH_RANK, identity),
                     LS_OK);
    assert_int_equal(lsi_auth_server(&w->server, w->far[1], server_key, LSI_AUTH_RANK), LS_OK);
}

static void wire_close(wire *w)
{
    for (int i = 0; i < 2; i++) {
        if (w->near[i] >= 0)
            close(w->near[i]);
        if (w->far[i] >= 0)
            close(w->far[i]);
    }
}

static int relay(wire *w, int from, int to)
{
    uint8_t byte;
    if (recv(from, &byte, 1, 0) != 1)
        return 0;
    assert_true(w->moved < TOTAL_BYTES); /* no more is ever said */
    if (w->moved == w->flip)
        byte ^= 0x10;
    w->bytes[w->moved++] = byte;
    return send(to, &byte, 1, MSG_NOSIGNAL) == 1;
}

/* Step both sides once and relay one byte; 0 when nothing moves any more. */
static int wire_step(wire *w)
{
    if (w->client_status == LS_IN_PROGRESS)
        w->client_status = lsi_auth_step(&w->client);
    if (w->server_status == LS_IN_PROGRESS)
        w->server_status = lsi_auth_step(&w->server);
    return relay(w, w->near[1], w->far[0]) || relay(w, w->far[0], w->near[1]);
}

static void wire_run(wire *w)
{
    while (wire_step(w))
        ;
}

static void byte_by_byte(void **state)
{
    (void)state;
    wire w;
    wire_open(&w, &right, &right);
    wire_run(&w);
    assert_int_equal(w.client_status, LS_OK);
    assert_int_equal(w.server_status, LS_OK);
    assert_int_equal(w.moved, TOTAL_BYTES);
    assert_memory_equal(lsi_auth_identity(&w.server), identity, sizeof identity);
    assert_int_equal(lsi_auth_step(&w.client), LS_OK); /* stays so */
    wire_close(&w);
}

static void reads_only_its_own_bytes(void **state)
{
    (void)state;
    int fd[2];
    lsi_auth client, server;
    char rest[16];
    make_pair(fd);
    assert_int_equal(lsi_auth_client(&client, fd[0], &right, LSI_AUTH_STORE, identity), LS_OK);
    assert_int_equal(lsi_auth_server(&server, fd[1], &right, LSI_AUTH_STORE), LS_OK);
    assert_true(lsi_auth_wants_write(&client));
    assert_false(lsi_auth_wants_write(&server));
    assert_int_equal(lsi_auth_step(&client), LS_IN_PROGRESS);
    assert_false(lsi_auth_wants_write(&client));
    assert_int_equal(lsi_auth_step(&server), LS_IN_PROGRESS);
    assert_int_equal(lsi_auth_step(&client), LS_OK);
    assert_int_equal(send(fd[0], "request", 7, 0), 7); /* at once after the proof */
    assert_int_equal(lsi_auth_step(&server), LS_OK);
    assert_int_equal(recv(fd[1], rest, sizeof rest, 0), 7);
    assert_memory_equal(rest, "request", 7);
    close(fd[0]);
    close(fd[1]);
}

static void wrong_key(void **state)
{
    (void)state;
    wire w;
    wire_open(&w, &wrong, &right);
    wire_run(&w);
    assert_int_equal(w.client_status, LS_ERR_AUTH);
    assert_non_null(strstr(ls_last_error(), "same key"));
    assert_int_equal(w.moved, LSI_AUTH_HELLO_BYTES + ANSWER_BYTES); /* the client shows no MAC */
    assert_int_equal(lsi_auth_step(&w.client), LS_ERR_AUTH);        /* failed stays failed */
    close(w.near[0]);
    close(w.far[0]);
    w.near[0] = w.far[0] = -1;
    assert_int_equal(lsi_auth_step(&w.server), LS_ERR_PEER_DEAD);
    assert_int_equal(lsi_auth_step(&w.server), LS_ERR_AUTH);
    wire_close(&w);
}

/* No byte of the conversation can change: not both sides come to believe it. */
static void every_changed_byte_is_noticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < TOTAL_BYTES; i++) {
        wire w;
        wire_open(&w, &right, &right);
        w.flip = i;
        wire_run(&w);
        if (w.server_status == LS_OK)
            fail_msg("the server believes although byte %zu changed", i);
        if (i < LSI_AUTH_HELLO_BYTES + ANSWER_BYTES)
            assert_int_not_equal(w.client_status, LS_OK);
        if (i < 8)
            assert_int_equal(w.server_status, LS_ERR_PROTOCOL);
        else if (i < LSI_AUTH_HELLO_BYTES + ANSWER_BYTES)
            assert_int_equal(w.client_status, LS_ERR_AUTH);
        else
            assert_int_equal(w.server_status, LS_ERR_AUTH);
        wire_close(&w);
    }
}

/* Send the client's messages by hand: hello, then a proof. */
static ls_status forge(const uint8_t *hello, const uint8_t *proof, int reflect)
{
    int fd[2];
    lsi_auth server;
    uint8_t answer[ANSWER_BYTES];
    make_pair(fd);
    assert_int_equal(lsi_auth_server(&server, fd[1], &right, LSI_AUTH_RANK), LS_OK);
    assert_int_equal(send(fd[0], hello, LSI_AUTH_HELLO_BYTES, 0), LSI_AUTH_HELLO_BYTES);
    assert_int_equal(lsi_auth_step(&server), LS_IN_PROGRESS);
    assert_int_equal(recv(fd[0], answer, sizeof answer, 0), sizeof answer);
    if (reflect)
        proof = answer + LSI_AUTH_NONCE_BYTES;
    assert_int_equal(send(fd[0], proof, LSI_AUTH_MAC_BYTES, 0), LSI_AUTH_MAC_BYTES);
    ls_status status = lsi_auth_step(&server);
    assert_int_equal(recv(fd[0], answer, sizeof answer, 0), -1); /* not a word more */
    close(fd[0]);
    close(fd[1]);
    return status;
}

static void replay_and_reflection_fail(void **state)
{
    (void)state;
    wire w;
    wire_open(&w, &right, &right);
    wire_run(&w);
    assert_int_equal(w.server_status, LS_OK);
    const uint8_t *proof = w.bytes + LSI_AUTH_HELLO_BYTES + ANSWER_BYTES;
    assert_int_equal(forge(w.bytes, proof, 0), LS_ERR_AUTH);
    assert_int_equal(forge(w.bytes, proof, 1), LS_ERR_AUTH);

    /* and a recorded server does not convince a client */
    int fd[2];
    lsi_auth client;
    make_pair(fd);
    assert_int_equal(lsi_auth_client(&client, fd[0], &right, LSI_AUTH_RANK, identity), LS_OK);
    assert_int_equal(send(fd[1], w.bytes + LSI_AUTH_HELLO_BYTES, ANSWER_BYTES, 0), ANSWER_BYTES);
    assert_int_equal(lsi_auth_step(&client), LS_ERR_AUTH);
    close(fd[0]);
    close(fd[1]);
    wire_close(&w);
}

static void other_purpose_and_garbage_are_refused_at_once(void **state)
{
    (void)state;
    int fd[2];
    lsi_auth client, server;
    make_pair(fd);
    assert_int_equal(lsi_auth_client(&client, fd[0], &right, LSI_AUTH_STORE, identity), LS_OK);
    assert_int_equal(lsi_auth_server(&server, fd[1], &right, LSI_AUTH_RANK), LS_OK);
    assert_int_equal(lsi_auth_step(&client), LS_IN_PROGRESS);
    assert_int_equal(lsi_auth_step(&server), LS_ERR_PROTOCOL);
    close(fd[0]);
    close(fd[1]);

    make_pair(fd);
    assert_int_equal(lsi_auth_server(&server, fd[1], &right, LSI_AUTH_RANK), LS_OK);
    assert_int_equal(send(fd[0], "G", 1, 0), 1); /* of "GET / HTTP/1.1" */
    assert_int_equal(lsi_auth_step(&server), LS_ERR_PROTOCOL);
    close(fd[0]);
    close(fd[1]);
}

/* The connection ends after each possible number of bytes. */
static void closed_in_the_middle(void **state)
{
    (void)state;
    for (size_t stop = 0; stop < TOTAL_BYTES; stop++) {
        wire w;
        wire_open(&w, &right, &right);
        while (w.moved < stop)
            assert_true(wire_step(&w));
        close(w.near[1]);
        close(w.far[0]);
        w.near[1] = w.far[0] = -1;
        wire_run(&w);
        assert_int_equal(w.server_status, LS_ERR_PEER_DEAD);
        /* having sent its proof the client cannot know; before, it must */
        if (stop < LSI_AUTH_HELLO_BYTES + ANSWER_BYTES)
            assert_int_equal(w.client_status, LS_ERR_PEER_DEAD);
        wire_close(&w);
    }
}

static void *run_server(void *arg)
{
    lsi_auth *server = arg;
    return (void *)(intptr_t)lsi_auth_run(server, lsi_now() + 5, "the client");
}

static void run_waits_and_keeps_its_deadline(void **state)
{
    (void)state;
    int fd[2];
    lsi_auth client, server;
    pthread_t thread;
    void *status;
    make_pair(fd);
    assert_int_equal(lsi_auth_client(&client, fd[0], &right, LSI_AUTH_RANK, identity), LS_OK);
    assert_int_equal(lsi_auth_server(&server, fd[1], &right, LSI_AUTH_RANK), LS_OK);
    assert_int_equal(pthread_create(&thread, NULL, run_server, &server), 0);
    assert_int_equal(lsi_auth_run(&client, lsi_now() + 5, "the server"), LS_OK);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, LS_OK);

    assert_int_equal(lsi_auth_client(&client, fd[0], &right, LSI_AUTH_RANK, identity), LS_OK);
    double began = lsi_now();
    assert_int_equal(lsi_auth_run(&client, began + 0.1, "the store at X"), LS_ERR_TIMEOUT);
    assert_true(lsi_now() - began >= 0.1 && lsi_now() - began < 1);
    assert_non_null(strstr(ls_last_error(), "the store at X"));
    assert_int_equal(lsi_auth_step(&client), LS_ERR_AUTH);
    close(fd[0]);
    close(fd[1]);
}

static char folder[] = "/tmp/lockstep-auth-XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/key", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void key_files(void **state)
{
    (void)state;
    lsi_key key, other, loaded;
    struct stat info;
    assert_int_equal(lsi_key_generate(&key), LS_OK);
    assert_int_equal(lsi_key_generate(&other), LS_OK);
    assert_memory_not_equal(&key, &other, sizeof key);

    assert_int_equal(lsi_key_load(path, &loaded), LS_ERR_NOT_FOUND);
    mode_t mask = umask(0);
    assert_int_equal(lsi_key_save(&key, path), LS_OK);
    umask(mask);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    assert_int_equal(info.st_size, 65);
    assert_int_equal(lsi_key_load(path, &loaded), LS_OK);
    assert_memory_equal(&key, &loaded, sizeof key);
    assert_int_equal(lsi_key_save(&other, path), LS_ERR_CONFIG); /* exists */
    assert_int_equal(lsi_key_load(path, &loaded), LS_OK);
    assert_memory_equal(&key, &loaded, sizeof key);

    static const mode_t open_modes[] = {0640, 0604, 0620, 0602, 0644, 0666};
    for (size_t i = 0; i < sizeof open_modes / sizeof open_modes[0]; i++) {
        assert_int_equal(chmod(path, open_modes[i]), 0);
        memset(&loaded, 7, sizeof loaded);
        assert_int_equal(lsi_key_load(path, &loaded), LS_ERR_CONFIG);
        assert_non_null(strstr(ls_last_error(), "chmod 600"));
        assert_int_equal(loaded.bytes[0], 7);
    }
    assert_int_equal(chmod(path, 0600), 0);
}

static void write_key(const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

#define DIGITS "00112233445566778899aabbccddeeffFFEEDDCCBBAA99887766554433221100"

static void malformed_keys(void **state)
{
    (void)state;
    lsi_key key;
    static const char *const good[] = {DIGITS, DIGITS "\n", DIGITS " \r\n\n"};
    static const char *const bad[] = {"",           "\n",       DIGITS "0",
                                      DIGITS "\nx", " " DIGITS, DIGITS "\n" DIGITS,
                                      "0x" DIGITS};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        write_key(good[i]);
        assert_int_equal(lsi_key_load(path, &key), LS_OK);
        assert_int_equal(key.bytes[1], 0x11);
        assert_int_equal(key.bytes[16], 0xff);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_key(bad[i]);
        if (lsi_key_load(path, &key) != LS_ERR_CONFIG)
            fail_msg("accepted '%s'", bad[i]);
    }
    char text[] = DIGITS;
    text[63] = 'g';
    write_key(text);
    assert_int_equal(lsi_key_load(path, &key), LS_ERR_CONFIG);
    text[63] = '\0';
    write_key(text);
    assert_int_equal(lsi_key_load(path, &key), LS_ERR_CONFIG);
    assert_int_equal(chmod(folder, 0700), 0);
    assert_int_not_equal(lsi_key_load(folder, &key), LS_OK);
}

static void key_from_standard_input(void **state)
{
    (void)state;
    int fd[2], saved = dup(STDIN_FILENO);
    lsi_key key;
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(write(fd[1], DIGITS "\n", 65), 65);
    close(fd[1]);
    assert_true(dup2(fd[0], STDIN_FILENO) >= 0);
    ls_status status = lsi_key_load("-", &key);
    dup2(saved, STDIN_FILENO);
    close(fd[0]);
    close(saved);
    assert_int_equal(status, LS_OK);
    assert_int_equal(key.bytes[2], 0x22);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_by_byte),
        cmocka_unit_test(reads_only_its_own_bytes),
        cmocka_unit_test(wrong_key),
        cmocka_unit_test(every_changed_byte_is_noticed),
        cmocka_unit_test(replay_and_reflection_fail),
        cmocka_unit_test(other_purpose_and_garbage_are_refused_at_once),
        cmocka_unit_test(closed_in_the_middle),
        cmocka_unit_test(run_waits_and_keeps_its_deadline),
        cmocka_unit_test(key_files),
        cmocka_unit_test(malformed_keys),
        cmocka_unit_test(key_from_standard_input),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
