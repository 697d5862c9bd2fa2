/* Who gives up has its buffers back at once: nobody writes into them after its call has returned,
 * and nobody takes what it puts there then for its input. Who gives the group up is the only one
 * to speak of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"

#define COUNT ((size_t)300000)
#define TRIALS (UNDER_SANITIZER ? 10 : 60)

typedef struct trial {
    int in_segment;
    double patience_s; /* of rank 0 */
} trial;

static void take(rank *self, float **memory)
{
    const trial *t = self->arg;
    void *m = t->in_segment ? NULL : malloc(COUNT * sizeof(float));
    if (!m)
        OK(self, ls_alloc(self->comm, COUNT * sizeof(float), &m));
    *memory = m;
}

static void give_up(rank *self)
{
    const trial *t = self->arg;
    float *in, *out;
    ls_request *request;
    rank_case(self, "patience of %.0f us, %s memory", t->patience_s * 1e6,
              t->in_segment ? "shared" : "private");
    take(self, &in);
    take(self, &out);
    for (size_t i = 0; i < COUNT; i++)
        in[i] = (float)(self->rank + 1);
    float sum = (float)(self->size * (self->size + 1) / 2);
    OK(self, ls_allreduce_start(self->comm, in, out, COUNT, LS_F32, LS_SUM, &request));
    rank_meet(self); /* all have entered: the rest is work */
    ls_status status = ls_request_wait(&request, self->rank ? 0 : t->patience_s);
    if (self->rank == 0 && status != LS_OK) {
        memset(in, 0x5a, COUNT * sizeof *in);
        memset(out, 0x5a, COUNT * sizeof *out);
    }
    rank_meet(self); /* now all others have returned, too */
    const char *bytes = (const char *)out;
    if (status == LS_OK)
        for (size_t i = 0; i < COUNT; i++)
            CHECK(self, out[i] == sum, "element %zu is %g, not %g", i, out[i], sum);
    else if (self->rank == 0)
        CHECK(self, *bytes == 0x5a && !memcmp(bytes, bytes + 1, COUNT * sizeof *out - 1),
              "somebody wrote into it");
    if (!t->in_segment) {
        free(in);
        free(out);
    }
}

static void test_give_up(void **unused)
{
    (void)unused;
    ranks_layout layouts[] = {ranks_shm(2), ranks_shm(3), ranks_hosts("3+1")};
    for (int i = 0; i < TRIALS; i++)
        for (int k = 0; k < 3; k++) {
            trial t = {i & 1, 20e-6 * (1 + i)};
            ranks_run(&layouts[k], give_up, &t);
        }
}

/* Rank 0 gives the group up while the others are leaving it already. */
static void abandon(rank *self)
{
    if (self->rank)
        return;
    sleep_ms(50);
    lsi_comm_fail(self->comm, LS_ERR_ABORTED, "");
}

static void test_quiet(void **unused)
{
    (void)unused;
    ranks_layout layouts[] = {ranks_shm(3), ranks_tcp(3), ranks_hosts("2+1")};
    FILE *heard = tmpfile();
    const int stderr_before = dup(STDERR_FILENO);
    assert_non_null(heard);
    assert_int_not_equal(dup2(fileno(heard), STDERR_FILENO), -1);
    for (int k = 0; k < 3; k++)
        ranks_run(&layouts[k], abandon, NULL);
    assert_int_not_equal(dup2(stderr_before, STDERR_FILENO), -1);
    close(stderr_before);
    char line[200] = "";
    rewind(heard);
    assert_null(fgets(line, sizeof line, heard));
    assert_string_equal(line, "");
    fclose(heard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_give_up),
        cmocka_unit_test(test_quiet),
    };
    setenv("LOCKSTEP_LOG", "warn", 1); /* as users have it; the fixture says only errors */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
