/* What is kept of weights from run to run (device/keep.c): the same bits as without, and never of
 * weights as they were before. */
#include "exact.h"

/* Runs with other numbers of rows: strips of all heights meet panels that others have packed. */
static const size_t rows_of_run[] = {13, 13, 1, 6, 29};
enum { RUNS = sizeof rows_of_run / sizeof *rows_of_run, ROWS = 29 };

static void run(lsi_device *device, const lsi_linear *p, const float *x, const float *w, float *y,
                float *dx)
{
    assert_int_equal(device->k->linear(device, p, x, w, NULL, NULL, NULL, y), LS_OK);
    assert_int_equal(device->k->linear_dx(device, p, y, w, dx, 0), LS_OK);
}

static void compare_runs(lsi_device *device, size_t in, size_t out, int transposed)
{
    lsi_device *fresh;
    assert_int_equal(lsi_device_open("cpu", &fresh), LS_OK);
    fresh->k = device->k;
    float *x = numbers(ROWS * in, 1), *w = numbers(in * out, 2);
    float *y = numbers(ROWS * out, 3), *dx = numbers(ROWS * in, 4);
    float *e = numbers(ROWS * out, 5), *edx = numbers(ROWS * in, 6);
    for (int step = 0; step < 3; step++) {
        for (int r = 0; r < RUNS; r++) {
            const lsi_linear p = {.rows = rows_of_run[r],
                                  .in = in,
                                  .out = out,
                                  .transposed = transposed};
            lsi_device_weights(device, r > 0);
            run(device, &p, x, w, y, dx);
            run(fresh, &p, x, w, e, edx);
            expect_bits("linear", device->k->isa, y, e, p.rows * out);
            expect_bits("linear_dx", device->k->isa, dx, edx, p.rows * in);
        }
        for (size_t i = 0; i < in * out; i++) /* the same memory, other weights */
            w[i] = 0.75f * w[i] - 0.01f;
    }
    free(x), free(w), free(y), free(dx), free(e), free(edx);
    lsi_device_close(fresh);
}

static void same_bits(lsi_device *device)
{
    /* also beyond the blocks of a product: 768 columns, 384 in depth */
    static const size_t shapes[][2] = {{1, 1}, {7, 5}, {64, 96}, {400, 33}, {33, 800}, {390, 1030}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int transposed = 0; transposed < 2; transposed++)
            compare_runs(device, shapes[s][0], shapes[s][1], transposed);
    lsi_device_forget(device);
}

static void test_same_bits(void **state)
{
    (void)state;
    each_set(same_bits);
}

/* Written once, found while the weights stay, asked for again when they have changed. */
static void test_when(void **state)
{
    (void)state;
    lsi_device *device;
    const float weights[2] = {0};
    void *room, *other;
    assert_int_equal(lsi_device_open("cpu", &device), LS_OK);
    lsi_device_weights(device, 0);
    assert_int_equal(lsi_device_keep(device, weights, LSI_KEPT_FORWARD, 64, &room), 0);
    assert_null(room); /* nobody has said that there are runs with the same weights */
    lsi_device_weights(device, 1);
    assert_int_equal(lsi_device_keep(device, weights, LSI_KEPT_FORWARD, 64, &room), 0);
    assert_non_null(room);
    assert_int_equal(lsi_device_keep(device, weights, LSI_KEPT_BACKWARD, 64, &other), 0);
    assert_non_null(other);
    assert_ptr_not_equal(room, other);
    assert_int_equal(lsi_device_keep(device, weights, LSI_KEPT_FORWARD, 64, &other), 1);
    assert_ptr_equal(room, other);
    lsi_device_weights(device, 1);
    assert_int_equal(lsi_device_keep(device, weights, LSI_KEPT_FORWARD, 64, &other), 1);
    lsi_device_weights(device, 0);
    assert_int_equal(lsi_device_keep(device, weights, LSI_KEPT_FORWARD, 64, &other), 0);
    assert_ptr_equal(room, other);
    lsi_device_close(device);
}

/* What would take too much memory is not kept, and the rest still is. */
static void test_bound(void **state)
{
    (void)state;
    lsi_device *device;
    const float weights[3] = {0};
    void *room;
    assert_int_equal(lsi_device_open("cpu", &device), LS_OK);
    lsi_device_weights(device, 1);
    assert_int_equal(lsi_device_keep(device, weights, LSI_KEPT_FORWARD, (size_t)1 << 40, &room), 0);
    assert_null(room);
    assert_int_equal(lsi_device_keep(device, weights + 1, LSI_KEPT_FORWARD, 64, &room), 0);
    assert_non_null(room);
    lsi_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_when),
        cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
