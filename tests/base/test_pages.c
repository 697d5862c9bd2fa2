/* Pages of a memory file: large ones asked for or not, the contents stay, for all who map it; and
 * those that were taken are there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/pages.h"

#define PAGE LSI_LARGE_PAGE
#define BYTES (6 * PAGE)

static unsigned char *map(int fd)
{
    void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

/* Ranges that begin and end anywhere, over memory that was touched in part. */
static void contents_stay(void **state)
{
    (void)state;
    static const struct {
        size_t from, bytes;
    } ranges[] = {{0, BYTES},       {1, BYTES - 1}, {4096, 3 * PAGE}, {PAGE, PAGE},
                  {PAGE - 64, 128}, {100, 0},       {0, PAGE - 1},    {BYTES, 0}};
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        const int fd = memfd_create("pages", MFD_CLOEXEC);
        assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0);
        unsigned char *mine = map(fd), *other = map(fd);
        for (size_t i = 5000; i < BYTES; i += 3 * 4096 + 1)
            mine[i] = (unsigned char)(i % 251 + 1);
        lsi_pages_enlarge(mine + ranges[r].from, ranges[r].bytes);
        mine[BYTES - 1] = 7;
        size_t marks = 0;
        for (size_t i = 0; i < BYTES; i++)
            marks += other[i] != 0;
        for (size_t i = 5000; i < BYTES; i += 3 * 4096 + 1, marks--)
            assert_int_equal(other[i], i % 251 + 1);
        assert_int_equal(other[BYTES - 1], 7);
        assert_int_equal(marks, 1);
        munmap(mine, BYTES);
        munmap(other, BYTES);
        close(fd);
    }
}

/* More than there is: not done, and no harm. */
static void no_more_than_is_free(void **state)
{
    (void)state;
    const size_t bytes = (size_t)1 << 44;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        skip(); /* a limit of the address space */
    lsi_pages_enlarge(p, bytes);
    unsigned char touched;
    assert_int_equal(mincore(p, 4096, &touched), 0);
    assert_int_equal(touched & 1, 0);
    munmap(p, bytes);
}

static long faults(void)
{
    struct rusage use;
    assert_int_equal(getrusage(RUSAGE_THREAD, &use), 0);
    return use.ru_minflt;
}

/* What was taken is there: writing to it does not wait for the system. */
static void taken_are_there(void **state)
{
    (void)state;
    const int fd = memfd_create("pages", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0);
    unsigned char *mine = map(fd);
    mine[5000] = 3;
    lsi_pages_take(mine + 100, PAGE);
    const long before = faults();
    for (size_t i = 100; i < PAGE + 100; i += 4096)
        mine[i] = 1;
    assert_in_range(faults() - before, 0, 2);
    assert_int_equal(mine[5000], 3);
    munmap(mine, BYTES);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_stay),
        cmocka_unit_test(no_more_than_is_free),
        cmocka_unit_test(taken_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
