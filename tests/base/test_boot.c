/* The boot record: round trip, seals, and everything that a rank must refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/boot.h"
#include "base/status.h"

static lsi_boot sample(void)
{
    lsi_boot b = {.magic = LSI_BOOT_MAGIC,
                  .version = LSI_BOOT_VERSION,
                  .rank = 3,
                  .size = 6,
                  .host = 1,
                  .hosts = 3,
                  .host_size = {2, 3, 1},
                  .segment_fd = STDOUT_FILENO,
                  .store = "127.0.0.1:4000",
                  .bind = "127.0.0.1"};
    memset(b.key.bytes, 0xab, sizeof b.key.bytes);
    return b;
}

static void set_fd(int fd)
{
    char text[16];
    snprintf(text, sizeof text, "%d", fd);
    setenv(LSI_BOOT_ENV, text, 1);
}

static void round_trip(void **state)
{
    (void)state;
    lsi_boot in = sample(), out;
    int fd;
    in.segment_fd = memfd_create("segment", 0);
    assert_int_equal(lsi_boot_write(&in, &fd), LS_OK);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0); /* inheritable */
    assert_int_equal(pwrite(fd, &in, 1, 0), -1);          /* sealed */
    assert_int_equal(ftruncate(fd, 0), -1);

    set_fd(fd);
    assert_int_equal(lsi_boot_read(&out), LS_OK);
    assert_memory_equal(&in, &out, sizeof in);
    assert_null(getenv(LSI_BOOT_ENV));
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* closed: it leads to the key */
    assert_int_equal(fcntl(in.segment_fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(lsi_boot_read(&out), LS_ERR_NOT_FOUND);
    close(in.segment_fd);
}

static void refuse_record(const lsi_boot *bad, const char *words)
{
    lsi_boot out = {.rank = 77};
    int fd;
    assert_int_equal(lsi_boot_write(bad, &fd), LS_OK);
    set_fd(fd);
    assert_int_equal(lsi_boot_read(&out), LS_ERR_CONFIG);
    assert_int_equal(out.rank, 77);
    if (!strstr(ls_last_error(), words))
        fail_msg("'%s' lacks '%s'", ls_last_error(), words);
    assert_non_null(strstr(ls_last_error(), LSI_BOOT_ENV));
    close(fd);
    unsetenv(LSI_BOOT_ENV);
}

#define REFUSE(words, ...)                                                                         \
    do {                                                                                           \
        lsi_boot b = sample();                                                                     \
        __VA_ARGS__;                                                                               \
        refuse_record(&b, words);                                                                  \
    } while (0)

static void refuses_bad_records(void **state)
{
    (void)state;
    REFUSE("not a boot record", b.magic++);
    REFUSE("another version", b.version++);
    REFUSE("rank and size", b.rank = -1);
    REFUSE("rank and size", b.rank = 6);
    REFUSE("rank and size", b.size = 0);
    REFUSE("rank and size", b.size = LSI_MAX_RANKS + 1);
    REFUSE("host and hosts", b.hosts = 0);
    REFUSE("host and hosts", b.hosts = LSI_MAX_HOSTS + 1);
    REFUSE("host and hosts", b.host = 3);
    REFUSE("host and hosts", b.host = -1);
    REFUSE("has no ranks", b.host_size[0] = 0);
    REFUSE("has no ranks", b.host_size[0] = INT32_MAX);
    REFUSE("do not add up", b.host_size[2] = 2);
    REFUSE("belongs to another host", b.rank = 1);
    REFUSE("belongs to another host", b.rank = 5);
    REFUSE("no end", memset(b.store, 'x', sizeof b.store));
    REFUSE("no end", memset(b.bind, 'x', sizeof b.bind));
    REFUSE("not open", b.segment_fd = 9999);
    REFUSE("not open", b.segment_fd = -1);
}

static void refuses_bad_descriptors(void **state)
{
    (void)state;
    lsi_boot out, in = sample();
    static const char *const bad[] = {"x", "-1", "99999999999", "9999", "0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv(LSI_BOOT_ENV, bad[i], 1);
        assert_int_equal(lsi_boot_read(&out), LS_ERR_CONFIG);
    }
    /* The right bytes, but whoever holds the file could still change them. */
    int fd = memfd_create("open", MFD_ALLOW_SEALING);
    assert_int_equal(write(fd, &in, sizeof in), sizeof in);
    set_fd(fd);
    assert_int_equal(lsi_boot_read(&out), LS_ERR_CONFIG);
    assert_int_equal(ftruncate(fd, 10), 0); /* sealed, but too short */
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    assert_int_equal(lsi_boot_read(&out), LS_ERR_CONFIG);
    assert_non_null(strstr(ls_last_error(), "another size"));
    close(fd);
    setenv(LSI_BOOT_ENV, "", 1);
    assert_int_equal(lsi_boot_read(&out), LS_ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(refuses_bad_records),
        cmocka_unit_test(refuses_bad_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
