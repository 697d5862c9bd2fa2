/* Every allocation of building, compiling and running fails once: an error comes back, nothing
 * crashes, and everything is given back. Under a sanitizer, which has malloc for itself, nothing
 * fails and the test is one plain build. */
#include "ops.h"

static volatile int live, made, fail_at = -1;

#if !UNDER_SANITIZER
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void __libc_free(void *memory);

static int fails(void)
{
    return fail_at >= 0 && made++ == fail_at;
}

void *malloc(size_t bytes)
{
    void *memory = fails() ? NULL : __libc_malloc(bytes);
    live += memory != NULL;
    return memory;
}

void *calloc(size_t n, size_t bytes)
{
    void *memory = fails() ? NULL : __libc_calloc(n, bytes);
    live += memory != NULL;
    return memory;
}

void *realloc(void *old, size_t bytes)
{
    void *memory = fails() ? NULL : __libc_realloc(old, bytes);
    live += memory != NULL && old == NULL;
    return memory;
}

void *aligned_alloc(size_t align, size_t bytes)
{
    void *memory = fails() ? NULL : __libc_memalign(align, bytes);
    live += memory != NULL;
    return memory;
}

void free(void *memory)
{
    live -= memory != NULL;
    __libc_free(memory);
}
#endif

/* Large enough for second chunks and grown lists; with buffers, sparse tables and a checkpoint. */
static ls_status build(ls_graph **out)
{
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    config.batch = 3;
    LSI_TRY(ls_graph_create(&config, out));
    ls_graph *g = *out;
    ls_tensor *ids = ls_input(g, "ids", LS_I32, 1, (size_t[]){2});
    ls_tensor *x = t_add(g, t_input(g, 8), t_bag(g, ids, 9, 8));
    x = t_add(g, x, t_bag_tied(g, ids, t_table));
    for (int i = 0; i < 20; i++) {
        ls_checkpoint_begin(g);
        x = t_relu(g, t_affine(g, t_square(g, t_affine(g, x))));
        ls_checkpoint_end(g);
    }
    return ls_graph_compile(g, t_loss(g, x), NULL);
}

static ls_status everything(void)
{
    ls_graph *g = NULL;
    ls_status status = build(&g);
    ls_run_config config = LS_RUN_CONFIG_INIT;
    config.training = config.backward = config.accumulate = 1;
    if (status == LS_OK)
        status = ls_graph_run(g, &config, NULL);
    ls_graph_destroy(g);
    return status;
}

static void test_torture(void **state)
{
    (void)state;
    OK(everything()); /* and what the process sets up once */
    if (UNDER_SANITIZER)
        return;
    int failed = 0;
    for (int i = 0;; i++) {
        const int before = live;
        made = 0;
        fail_at = i;
        const ls_status status = everything();
        fail_at = -1;
        /* OpenSSL keeps the texts of its own errors until the thread ends. */
        if (status != LS_ERR_SYSTEM)
            assert_true(live <= before);
        if (made <= i) { /* it did not get that far: all went well */
            assert_int_equal(status, LS_OK);
            break;
        }
        if (status != LS_OK) {
            failed++;
            assert_true(status == LS_ERR_NOMEM || status == LS_ERR_SYSTEM);
            assert_int_not_equal(strlen(ls_last_error()), 0);
        }
    }
    assert_true(failed > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_torture)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
