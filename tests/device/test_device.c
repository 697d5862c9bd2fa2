/* Devices and instruction sets: the registry, opening, scratch memory, the choice of a set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "device/kernels.h"
#include "device/ref.h"

static void test_known(void **state)
{
    (void)state;
    assert_string_equal(lsi_device_known(0)->name, "cpu");
    assert_string_equal(lsi_device_known(1)->name, "ref");
    assert_null(lsi_device_known(2));
    assert_null(lsi_device_known(-1));
}

static void test_open(void **state)
{
    (void)state;
    static const char *const defaults[] = {NULL, "", "cpu"};
    lsi_device *device;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(lsi_device_open(defaults[i], &device), LS_OK);
        assert_string_equal(device->ops->name, "cpu");
        assert_ptr_equal(device->k, lsi_isa_kernels(lsi_isa_chosen()));
        lsi_device_close(device);
    }
    assert_int_equal(lsi_device_open("ref", &device), LS_OK);
    assert_ptr_equal(device->k, lsi_ref_kernels());
    assert_string_equal(device->k->isa, "ref");
    lsi_device_close(device);
    lsi_device_close(NULL);
}

/* What is not known is named, and what is known listed; the output is left alone. */
static void test_unknown(void **state)
{
    (void)state;
    static const char *const names[] = {"cp", "cpux", "CPU", " ref", "cuda"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lsi_device *device = (lsi_device *)&names;
        char text[100];
        assert_int_equal(lsi_device_open(names[i], &device), LS_ERR_CONFIG);
        assert_ptr_equal(device, &names);
        snprintf(text, sizeof text, "device: there is none named '%s' (known: cpu, ref)", names[i]);
        assert_string_equal(ls_last_error(), text);
    }
}

static void test_memory(void **state)
{
    (void)state;
    for (int i = 0; lsi_device_known(i); i++) {
        const lsi_device_ops *ops = lsi_device_known(i);
        const char from[] = "moved there and back again";
        char to[sizeof from] = "";
        static const size_t sizes[] = {0, 1, 63, 64, 65, 100000};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            void *memory = NULL;
            assert_int_equal(ops->alloc(sizes[s], &memory), LS_OK);
            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % 64, 0);
            memset(memory, 1, sizes[s]);
            ops->free(memory);
        }
        void *memory;
        assert_int_equal(ops->alloc(sizeof from, &memory), LS_OK);
        assert_int_equal(ops->copy(memory, from, sizeof from), LS_OK);
        assert_int_equal(ops->copy(to, memory, sizeof from), LS_OK);
        assert_int_equal(ops->copy(NULL, NULL, 0), LS_OK);
        assert_string_equal(to, from);
        ops->free(memory);
        ops->free(NULL);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    lsi_device *device;
    void *memory = device = NULL;
    assert_int_equal(lsi_device_open("cpu", &device), LS_OK);
    const size_t huge = SIZE_MAX / 4;
    assert_int_equal(device->ops->alloc(huge, &memory), LS_ERR_NOMEM);
    assert_non_null(strstr(ls_last_error(), "could not be allocated"));
    assert_null(memory);
    /* Scratch that could not grow is usable afterwards. */
    assert_int_equal(lsi_device_scratch(device, 100, &memory), LS_OK);
    assert_int_equal(lsi_device_scratch(device, huge, &memory), LS_ERR_NOMEM);
    assert_int_equal(lsi_device_scratch(device, 100, &memory), LS_OK);
    memset(memory, 1, 100);
    lsi_device_close(device);
}

/* Grows to the most that was asked for, and then stays where it is: a step that repeats does not
 * allocate. */
static void test_scratch(void **state)
{
    (void)state;
    static const size_t step[] = {10, 5000, 1, 70000, 64, 69999};
    lsi_device *device;
    void *memory, *settled = NULL;
    assert_int_equal(lsi_device_open("ref", &device), LS_OK);
    assert_null(device->scratch);
    for (int round = 0; round < 3; round++) {
        size_t most = round ? 70000 : 0;
        for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
            most = step[i] > most ? step[i] : most;
            assert_int_equal(lsi_device_scratch(device, step[i], &memory), LS_OK);
            assert_int_equal((uintptr_t)memory % 64, 0);
            assert_true(device->scratch_bytes >= most);
            memset(memory, 1, step[i]);
            if (round)
                assert_ptr_equal(memory, settled);
        }
        settled = memory;
        assert_int_equal(device->scratch_bytes, 70000);
    }
    lsi_device_close(device);
}

static void test_sets(void **state)
{
    (void)state;
    assert_true(lsi_isa_count() >= 1);
    assert_true(lsi_isa_usable(0));
    assert_false(lsi_isa_usable(-1));
    assert_false(lsi_isa_usable(lsi_isa_count()));
    assert_null(lsi_isa_name(-1));
    assert_null(lsi_isa_name(lsi_isa_count()));
    assert_null(lsi_isa_kernels(-1));
    assert_null(lsi_isa_kernels(lsi_isa_count()));
    for (int i = 0; i < lsi_isa_count(); i++) {
        assert_int_equal(lsi_isa_kernels(i) != NULL, lsi_isa_usable(i) != 0);
        if (lsi_isa_usable(i))
            assert_string_equal(lsi_isa_kernels(i)->isa, lsi_isa_name(i));
    }
}

/* The choice is made once a process: ask a child, under this value of LOCKSTEP_ISA. Its exit code
 * is the set. */
static int chosen_by_child(const char *value)
{
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (value)
            setenv("LOCKSTEP_ISA", value, 1);
        else
            unsetenv("LOCKSTEP_ISA");
        _exit(lsi_isa_chosen());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_chosen(void **state)
{
    (void)state;
    int best = 0;
    for (int i = 0; i < lsi_isa_count(); i++)
        best = lsi_isa_usable(i) ? i : best;
    assert_int_equal(chosen_by_child(NULL), best);
    assert_int_equal(chosen_by_child(""), best);
    for (int i = 0; i < lsi_isa_count(); i++)
        assert_int_equal(chosen_by_child(lsi_isa_name(i)), lsi_isa_usable(i) ? i : 0);
}

/* A set that is not there is refused when a device is opened, with the ones that are. */
static void test_unknown_set(void **state)
{
    (void)state;
    lsi_device *device;
    setenv("LOCKSTEP_ISA", "mmx", 1);
    assert_int_equal(lsi_device_open(NULL, &device), LS_ERR_CONFIG);
    unsetenv("LOCKSTEP_ISA");
    assert_non_null(strstr(ls_last_error(), "LOCKSTEP_ISA: 'mmx' is none of"));
    assert_non_null(strstr(ls_last_error(), lsi_isa_name(0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chosen), /* first: the children inherit a choice that was made */
        cmocka_unit_test(test_known),     cmocka_unit_test(test_open),
        cmocka_unit_test(test_unknown),   cmocka_unit_test(test_memory),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_sets),      cmocka_unit_test(test_unknown_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
