/* Every kernel of `cpu` against `ref`: see trial.h for what is compared, ops_*.c for the shapes.
 *
 * An argument names one group; without one, all run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/ref.h"
#include "trial.h"

#if defined(__SANITIZE_ADDRESS__)
#define SHARE 5 /* fewer cases: each takes that much longer */
#else
#define SHARE 1
#endif

static const struct {
    const char *name;
    const trial_op *ops;
    size_t limit; /* cases of one operation */
} groups[] = {
    {"products", trial_products, 700}, {"convolutions", trial_convolutions, 500},
    {"norms", trial_norms, 2000},      {"elementwise", trial_elementwise, 2000},
    {"moves", trial_moves, 2000},      {"pools", trial_pools, 1500},
    {"losses", trial_losses, 2000},    {"optimizers", trial_optimizers, 2000},
};
#define GROUPS (sizeof groups / sizeof *groups)

static void run_op(void **state)
{
    const trial_op *op = *state;
    size_t limit = 0;
    for (size_t g = 0; g < GROUPS; g++)
        for (const trial_op *o = groups[g].ops; o->name; o++)
            if (o == op)
                limit = groups[g].limit / SHARE;
    trial_matrix(op, limit);
}

#define NAME(member) #member,
static const char *const members[] = {LSI_REF_KERNELS(NAME)};
#define MEMBERS (sizeof members / sizeof *members)

/* Every member of the table is here, under its own offset; no table of a usable set has holes. */
static void test_complete(void **state)
{
    (void)state;
    for (size_t m = 0; m < MEMBERS; m++) {
        const size_t entry = offsetof(lsi_kernels, linear) + m * sizeof(void (*)(void));
        const trial_op *found = NULL;
        for (size_t g = 0; g < GROUPS; g++)
            for (const trial_op *op = groups[g].ops; op->name; op++)
                if (!strcmp(op->name, members[m]))
                    found = op;
        if (!found)
            fail_msg("no test of %s", members[m]);
        assert_int_equal(found->entry, entry);
        for (int i = 0; i < lsi_isa_count(); i++) {
            void (*kernel)(void);
            if (!lsi_isa_usable(i))
                continue;
            memcpy(&kernel, (const char *)lsi_isa_kernels(i) + entry, sizeof kernel);
            if (!kernel)
                fail_msg("%s has no %s", lsi_isa_name(i), members[m]);
        }
    }
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[MEMBERS + 1];
    size_t count = 0;
    for (size_t g = 0; g < GROUPS; g++) {
        if (argc > 1 && strcmp(argv[1], groups[g].name))
            continue;
        for (const trial_op *op = groups[g].ops; op->name; op++)
            tests[count++] = (struct CMUnitTest){op->name, run_op, NULL, NULL, (void *)op};
    }
    if (argc == 1 || !strcmp(argv[1], "complete"))
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_complete);
    return count ? _cmocka_run_group_tests("kernels", tests, count, NULL, NULL) : 2;
}
