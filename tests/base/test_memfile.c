/* Memory files: for their owner alone, never executed, sealed when wanted. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memfile.h"

static void test_create(void **unused)
{
    (void)unused;
    static const unsigned flags[] = {0, MFD_CLOEXEC};
    const mode_t before = umask(0);
    for (int i = 0; i < 2; i++) {
        struct stat info;
        int fd = lsi_memfile_create("test", flags[i]);
        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &info), 0);
        assert_int_equal(info.st_mode, S_IFREG | 0600);
        assert_int_equal(info.st_size, 0);
        assert_int_equal(fcntl(fd, F_GETFD), i ? FD_CLOEXEC : 0);
        assert_int_equal(ftruncate(fd, 4096), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
        assert_int_equal(ftruncate(fd, 0), -1);
        close(fd);
    }
    umask(before);
}

/* The name does not matter: one that the kernel refuses is an error, and leaves nothing open. */
static void test_refused(void **unused)
{
    (void)unused;
    char name[300];
    for (size_t i = 0; i < sizeof name; i++)
        name[i] = i + 1 < sizeof name ? 'x' : 0;
    const int next = dup(0);
    close(next);
    assert_int_equal(lsi_memfile_create(name, 0), -1);
    const int same = dup(0);
    close(same);
    assert_int_equal(same, next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
