/* Convolutions of 3 x 3 by minimal filtering, number by number, for every instruction set.
 *
 * What kernels.h says of their bits, as the plainest code there is: one output, one tile and one
 * channel at a time.
 */
#include <math.h>

#include "exact.h"

/* ---- the four transforms of one dimension ---------------------------------------------------- */

static void see(const float *d, float *v)
{
    v[0] = d[0] - d[2];
    v[1] = d[1] + d[2];
    v[2] = d[2] - d[1];
    v[3] = d[3] - d[1];
}

static void gather(const float *m, float *y)
{
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] + m[3];
}

static void halve(const float *g, float *u)
{
    u[0] = g[0];
    u[1] = 0.5f * (g[0] + g[2]) + 0.5f * g[1];
    u[2] = 0.5f * (g[0] + g[2]) - 0.5f * g[1];
    u[3] = g[2];
}

static void unhalve(const float *m, float *g)
{
    g[0] = m[0] + 0.5f * (m[1] + m[2]);
    g[1] = 0.5f * (m[1] - m[2]);
    g[2] = m[3] + 0.5f * (m[1] + m[2]);
}

static void spread(const float *y, float *z)
{
    z[0] = y[0];
    z[1] = y[0] + y[1];
    z[2] = y[0] - y[1];
    z[3] = y[1];
}

/* Down the columns of x (in, in), then along the rows: y (out, out). */
static void twice(void (*one)(const float *, float *), int in, int out, const float *x, float *y)
{
    float t[4][4], column[4], changed[4];
    for (int s = 0; s < in; s++) {
        for (int r = 0; r < in; r++)
            column[r] = x[r * in + s];
        one(column, changed);
        for (int r = 0; r < out; r++)
            t[r][s] = changed[r];
    }
    for (int r = 0; r < out; r++)
        one(t[r], y + r * out);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* side x side pixels of channel c, from (y, x) of an image (h, w, channels) with a border. */
static void cut(const float *image, size_t h, size_t w, size_t channels, size_t top, size_t left,
                size_t y, size_t x, size_t c, int side, float *to)
{
    for (size_t i = 0; i < (size_t)(side * side); i++) {
        const size_t r = y + i / (size_t)side - top, s = x + i % (size_t)side - left;
        to[i] = r < h && s < w ? image[(r * w + s) * channels + c] : 0;
    }
}

static void weights_of(const lsi_conv *p, const float *w, size_t c, size_t o, float *g)
{
    for (size_t t = 0; t < 9; t++)
        g[t] = w[(t * p->c + c) * p->o + o];
}

static float result(const lsi_conv *p, const float *x, const float *w, size_t at)
{
    const size_t o = at % p->o, ow = at / p->o % p->ow, oh = at / p->o / p->ow % p->oh;
    const float *image = x + at / p->o / p->ow / p->oh * p->h * p->w * p->c;
    float m[16] = {0}, d[16], v[16], g[9], u[16], y[4];
    for (size_t c = 0; c < p->c; c++) {
        cut(image, p->h, p->w, p->c, p->pad_h, p->pad_w, oh / 2 * 2, ow / 2 * 2, c, 4, d);
        twice(see, 4, 4, d, v);
        weights_of(p, w, c, o, g);
        twice(halve, 3, 4, g, u);
        for (int i = 0; i < 16; i++)
            m[i] = fmaf(v[i], u[i], m[i]);
    }
    twice(gather, 4, 2, m, y);
    return y[oh % 2 * 2 + ow % 2];
}

static void weight_gradient(const lsi_conv *p, const float *x, const float *dy, size_t c, size_t o,
                            float *g)
{
    float m[16] = {0}, d[16], v[16], e[4], z[16];
    for (size_t n = 0; n < p->n; n++)
        for (size_t i = 0; i < p->oh; i += 2)
            for (size_t j = 0; j < p->ow; j += 2) {
                cut(x + n * p->h * p->w * p->c, p->h, p->w, p->c, p->pad_h, p->pad_w, i, j, c, 4,
                    d);
                cut(dy + n * p->oh * p->ow * p->o, p->oh, p->ow, p->o, 0, 0, i, j, o, 2, e);
                twice(see, 4, 4, d, v);
                twice(spread, 2, 4, e, z);
                for (int q = 0; q < 16; q++)
                    m[q] = fmaf(v[q], z[q], m[q]);
            }
    twice(unhalve, 4, 3, m, g);
}

/* The convolution that dx is: of dy, with the window turned about and channels exchanged. */
static lsi_conv turned(const lsi_conv *p, const float *w, float *to)
{
    for (size_t t = 0; t < 9; t++)
        for (size_t c = 0; c < p->c; c++)
            for (size_t o = 0; o < p->o; o++)
                to[(t * p->o + o) * p->c + c] = w[((8 - t) * p->c + c) * p->o + o];
    return (lsi_conv){p->n, p->oh, p->ow, p->o, p->h,         p->w,         p->c,
                      3,    3,     1,     1,    2 - p->pad_h, 2 - p->pad_w, 1};
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void expect_winograd(lsi_device *device, const lsi_conv *p)
{
    const lsi_kernels *k = device->k;
    const size_t in = p->n * p->h * p->w * p->c, out = p->n * p->oh * p->ow * p->o;
    const size_t each = p->c * p->o, weights = 9 * each;
    float *x = numbers(in, 1), *w = numbers(weights, 2), *bias = numbers(p->o, 3);
    float *y = numbers(out, 4), *e = numbers(out, 5), *dx = numbers(in, 6), *ex = copied(dx, in);
    float *dw = numbers(weights, 7), *ew = copied(dw, weights), *back = numbers(weights, 8), g[9];

    for (size_t i = 0; i < out; i++)
        e[i] = result(p, x, w, i) + bias[i % p->o];
    assert_int_equal(k->conv2d(device, p, x, w, bias, y), LS_OK);
    expect_bits("conv2d", k->isa, y, e, out);

    const lsi_conv q = turned(p, w, back);
    for (size_t i = 0; i < in; i++)
        ex[i] += result(&q, y, back, i);
    assert_int_equal(k->conv2d_dx(device, p, y, w, dx, 1), LS_OK);
    expect_bits("conv2d_dx", k->isa, dx, ex, in);

    for (size_t i = 0; i < each; i++) {
        weight_gradient(p, x, y, i / p->o, i % p->o, g);
        for (size_t t = 0; t < 9; t++)
            ew[t * each + i] += g[t];
    }
    assert_int_equal(k->conv2d_dw(device, p, x, y, dw, NULL, 1), LS_OK);
    expect_bits("conv2d_dw", k->isa, dw, ew, weights);
    free(x), free(w), free(bias), free(y), free(e), free(dx), free(ex), free(dw), free(ew);
    free(back);
}

static void all_shapes(lsi_device *device)
{
    /* Even and odd sizes, no border to a wide one, more tiles than are taken at a time. */
    static const lsi_conv shapes[] = {
        {2, 8, 8, 16, 8, 8, 16, 3, 3, 1, 1, 1, 1, 1}, {3, 7, 5, 32, 7, 5, 48, 3, 3, 1, 1, 1, 1, 1},
        {1, 3, 4, 16, 1, 2, 32, 3, 3, 1, 1, 0, 0, 1}, {2, 3, 9, 48, 5, 9, 16, 3, 3, 1, 1, 2, 1, 1},
        {5, 9, 9, 16, 9, 9, 64, 3, 3, 1, 1, 1, 1, 1}, {1, 1, 1, 64, 1, 1, 16, 3, 3, 1, 1, 1, 1, 1},
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        expect_winograd(device, &shapes[s]);
}

static void test_bits(void **state)
{
    (void)state;
    each_set(all_shapes);
}

/* Sixteen images, one at a time and all at once: a sample does not notice its neighbours. */
static void images_alone(lsi_device *device)
{
    enum { IMAGES = 16, HW = 7, C = 32, O = 16 };
    const size_t in = HW * HW * C, out = HW * HW * O;
    float *x = numbers(IMAGES * in, 1), *w = numbers(9 * C * O, 2), *y = numbers(IMAGES * out, 3);
    float *alone = numbers(out, 4);
    lsi_conv p = {IMAGES, HW, HW, C, HW, HW, O, 3, 3, 1, 1, 1, 1, 1};
    assert_int_equal(device->k->conv2d(device, &p, x, w, NULL, y), LS_OK);
    p.n = 1;
    for (size_t i = 0; i < IMAGES; i++) {
        assert_int_equal(device->k->conv2d(device, &p, x + i * in, w, NULL, alone), LS_OK);
        expect_bits("conv2d of one image", device->k->isa, alone, y + i * out, out);
    }
    free(x), free(w), free(y), free(alone);
}

static void test_images_alone(void **state)
{
    (void)state;
    each_set(images_alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_images_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
