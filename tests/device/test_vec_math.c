/* The vector functions of the cpu kernels: accuracy against libm in double over a dense sample of
 * all floats, special values, the same bits on every instruction set; Philox against
 * base/philox.h; choices among NaN and zeros, the order of sums, the ends of partial moves. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/philox.h"
#include "vec_table.h"

#define CHUNK 4096

static const vec_table *const tables[] = {
    &lsi_plain_vec_table,
#if defined(__x86_64__)
    &lsi_avx2_vec_table,
    &lsi_avx512_vec_table,
#elif defined(__aarch64__)
    &lsi_neon_vec_table,
#endif
};
#define SETS ((int)(sizeof tables / sizeof *tables))

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Errors allowed, in units of the last place of the result, for x in [low, high]. */
static const struct {
    const char *name;
    double (*exact)(double);
    float low, high;
    double allowed;
} functions[] = {
    [VEC_EXP] = {"exp", exp, -86.9f, INFINITY, 1.0},
    [VEC_EXPM1] = {"expm1", expm1, -INFINITY, 0, 1.5},
    [VEC_LOG] = {"log", log, -INFINITY, INFINITY, 1.0},
    [VEC_LOG1P] = {"log1p", log1p, 0, 1, 1.5},
    [VEC_TANH] = {"tanh", tanh, -INFINITY, INFINITY, 2.5},
    [VEC_SIGMOID] = {"sigmoid", sigmoid, -87, INFINITY, 2.5},
    [VEC_ERF] = {"erf", erf, -INFINITY, INFINITY, 1.1},
};

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The distance in units of the last place of a float of that size. */
static double ulps(float got, double exact)
{
    int exponent;
    if (isnan(exact) || isinf((float)exact) || isinf(got))
        return isnan(exact) ? (isnan(got) ? 0 : INFINITY) : got == (float)exact ? 0 : INFINITY;
    frexp(exact, &exponent);
    return fabs((double)got - exact) / ldexp(1, (exponent > -125 ? exponent : -125) - 24);
}

/* One chunk of inputs through one function, of the fastest set, and of the others if so asked;
 * returns the largest error. */
static double check(vec_function f, const float x[CHUNK], int others)
{
    static float y[CHUNK], first[CHUNK];
    double worst = 0;
    int fastest = SETS - 1;
    while (!lsi_isa_usable(fastest))
        fastest--;
    tables[fastest]->apply(f, CHUNK, x, first);
    for (int set = 0; others && set < fastest; set++) {
        tables[set]->apply(f, CHUNK, x, y);
        for (int i = 0; i < CHUNK; i++)
            if (memcmp(&y[i], &first[i], sizeof *y) && !(isnan(y[i]) && isnan(first[i])))
                fail_msg("%s(%a) is %a with %s, %a with %s", functions[f].name, (double)x[i],
                         (double)y[i], lsi_isa_name(set), (double)first[i], lsi_isa_name(fastest));
    }
    for (int i = 0; i < CHUNK; i++) {
        if (isnan(x[i]) ? isnan(first[i]) : x[i] < functions[f].low || x[i] > functions[f].high)
            continue;
        const double error = ulps(first[i], functions[f].exact((double)x[i]));
        if (error > functions[f].allowed)
            fail_msg("%s(%a) is %a: %.2f units off", functions[f].name, (double)x[i],
                     (double)first[i], error);
        worst = error > worst ? error : worst;
    }
    return worst;
}

/* Every 2053rd of all floats (a prime, so that all low bits occur), and all of a piece around each
 * place where a function changes its method or leaves its range. Sets are compared on some of them:
 * plain code is slow, above all under a sanitizer. */
static void test_functions(void **state)
{
    (void)state;
    static float x[CHUNK];
    static const float places[] = {0.0f,  0.34657359f, 0.92773437f, 1.0f,  0.70710677f, 10.0f,
                                   20.0f, 40.0f,       86.9f,       88.0f, 88.722839f,  INFINITY};
    for (int f = 0; f < VEC_FUNCTIONS; f++) {
        double worst = 0;
        unsigned chunk = 0;
        for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += UINT64_C(2053) * CHUNK, chunk++) {
            for (uint64_t i = 0; i < CHUNK; i++)
                x[i] = from_bits((uint32_t)(bits + 2053 * i));
            worst = fmax(worst, check((vec_function)f, x, chunk % 16 == 0));
        }
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            for (int sign = 0; sign < 2; sign++) {
                uint32_t start;
                memcpy(&start, &places[p], sizeof start);
                for (uint32_t i = 0; i < CHUNK; i++)
                    x[i] = from_bits((start + i - CHUNK / 2) ^ (uint32_t)sign << 31);
                worst = fmax(worst, check((vec_function)f, x, 1));
            }
        }
        printf("  %s: at most %.2f units off\n", functions[f].name, worst);
    }
}

static float value(int set, vec_function f, float x)
{
    float in[16], out[16];
    for (int i = 0; i < 16; i++)
        in[i] = i == 5 ? x : NAN; /* the neighbours have no influence */
    tables[set]->apply(f, 16, in, out);
    return out[5];
}

static void test_special_values(void **state)
{
    (void)state;
    for (int set = 0; set < SETS; set++) {
        if (!lsi_isa_usable(set))
            continue;
        assert_true(value(set, VEC_EXP, 0) == 1);
        assert_true(value(set, VEC_EXP, INFINITY) == INFINITY);
        assert_true(value(set, VEC_EXP, -INFINITY) == 0);
        assert_true(value(set, VEC_EXP, -87.5f) == 0);
        assert_true(value(set, VEC_EXP, -1e30f) == 0);
        assert_true(value(set, VEC_EXP, 88.7f) < INFINITY);
        assert_true(value(set, VEC_LOG, 1) == 0);
        assert_true(value(set, VEC_LOG, 0) == -INFINITY);
        assert_true(value(set, VEC_LOG, -0.0f) == -INFINITY);
        assert_true(value(set, VEC_LOG, INFINITY) == INFINITY);
        assert_true(isnan(value(set, VEC_LOG, -1)));
        assert_true(value(set, VEC_SIGMOID, -INFINITY) == 0);
        assert_true(value(set, VEC_SIGMOID, INFINITY) == 1);
        assert_true(value(set, VEC_SIGMOID, 0) == 0.5f);
        assert_true(value(set, VEC_TANH, -INFINITY) == -1);
        assert_true(value(set, VEC_ERF, INFINITY) == 1);
        for (float x = 0x1p-20f; x < 30; x *= 1.37f) { /* odd to the bit */
            assert_true(value(set, VEC_TANH, -x) == -value(set, VEC_TANH, x));
            assert_true(value(set, VEC_ERF, -x) == -value(set, VEC_ERF, x));
        }
        for (int f = 0; f < VEC_FUNCTIONS; f++)
            assert_true(isnan(value(set, (vec_function)f, NAN)));
    }
}

static void test_philox(void **state)
{
    (void)state;
    const lsi_dropout d = {.seed = 0x123456789abcdef0,
                           .step = 0xffffffff00000007,
                           .node = 0xffffffff,
                           .first_position = 0xfffffffe};
    const uint32_t key[2] = {(uint32_t)d.seed, (uint32_t)(d.seed >> 32)};
    const uint64_t blocks[] = {0, 1, 7, 0xfffffffb, 0xffffffff};
    for (int set = 0; set < SETS; set++) {
        for (size_t sample = 0; lsi_isa_usable(set) && sample < 4; sample++) {
            for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
                const uint32_t counter[4] = {0, d.node, (uint32_t)(d.first_position + sample),
                                             (uint32_t)d.step};
                uint32_t got[32], expected[32];
                tables[set]->philox(&d, sample, blocks[b], got);
                lsi_philox_fill(counter, key, 4 * blocks[b], expected, 32);
                assert_memory_equal(got, expected, sizeof got);
            }
        }
    }
}

static void test_moves(void **state)
{
    (void)state;
    float x[16][16], y[16][16], out[16];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            x[i][j] = (float)(16 * i + j);
    for (int set = 0; set < SETS; set++) {
        if (!lsi_isa_usable(set))
            continue;
        tables[set]->transpose((const float(*)[16])x, y);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++)
                assert_true(y[j][i] == x[i][j]);
        for (size_t n = 0; n <= 16; n++) {
            tables[set]->first(n, x[3], x[5], out);
            for (size_t i = 0; i < 16; i++)
                assert_true(out[i] == x[i < n ? 3 : 5][i]);
        }
    }
}

/* Numbers that f32 would lose, and whose order matters in double. */
static void test_sum(void **state)
{
    (void)state;
    float x[64];
    double lanes[16] = {0};
    for (int i = 0; i < 64; i++) {
        x[i] = (i % 3 ? 1.0f : -1.0f) * ldexpf(1.0f + (float)i / 64, i * 5 % 60 - 30);
        lanes[i % 16] += (double)x[i];
    }
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    for (int set = 0; set < SETS; set++)
        if (lsi_isa_usable(set))
            assert_true(tables[set]->sum(64, x) == lanes[0]);
}

/* Of a NaN and a number, and of two zeros, max and min are the second: in every lane, each pair of
 * these values. */
static void test_choices(void **state)
{
    (void)state;
    static const float values[] = {0.0f, -0.0f, 1.0f, -1.0f, 0x1p-149f, INFINITY, -INFINITY, NAN};
    enum { VALUES = sizeof values / sizeof *values };
    for (int set = 0; set < SETS; set++) {
        for (int turn = 0; lsi_isa_usable(set) && turn < VALUES * VALUES; turn++) {
            float x[16], y[16], max[16], min[16], greater[16];
            for (int i = 0; i < 16; i++) {
                const int pair = (turn + 5 * i) % (VALUES * VALUES);
                x[i] = values[pair / VALUES];
                y[i] = values[pair % VALUES];
            }
            tables[set]->choose(x, y, max, min, greater);
            for (int i = 0; i < 16; i++) {
                const float *larger = x[i] > y[i] ? x : y, *smaller = x[i] < y[i] ? x : y;
                assert_memory_equal(&max[i], &larger[i], sizeof *max);
                assert_memory_equal(&min[i], &smaller[i], sizeof *min);
                assert_memory_equal(&greater[i], &larger[i], sizeof *greater);
            }
        }
    }
}

/* Lanes are folded 8, 4, 2, 1. */
static void test_folds(void **state)
{
    (void)state;
    float x[16][16], expected[16], sums[16];
    for (int i = 0; i < 16; i++) {
        float lanes[16];
        for (int j = 0; j < 16; j++) {
            const int k = (16 * i + j) * 37 % 256;
            lanes[j] = x[i][j] = (k % 3 ? 1.0f : -1.0f) * ldexpf(1.0f + (float)k / 256, k % 24);
        }
        for (int half = 8; half; half /= 2)
            for (int j = 0; j < half; j++)
                lanes[j] += lanes[j + half];
        expected[i] = lanes[0];
    }
    for (int set = 0; set < SETS; set++) {
        if (!lsi_isa_usable(set))
            continue;
        tables[set]->row_sums((const float(*)[16])x, sums);
        assert_memory_equal(sums, expected, sizeof sums);
        for (int i = 0; i < 16; i++) {
            float y[16];
            for (int j = 0; j < 16; j++)
                y[j] = (float)((j * 7 + i) % 16);
            assert_true(tables[set]->largest(y) == 15);
        }
    }
}

/* n floats at the beginning and at the end of memory that may be touched. */
static void test_partial_moves(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), floats = page / sizeof(float);
    float *memory = mmap(NULL, 5 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    float *from = memory + floats, *to = memory + 3 * floats;
    assert_int_equal(mprotect(from, page, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(mprotect(to, page, PROT_READ | PROT_WRITE), 0);
    for (size_t i = 0; i < floats; i++)
        from[i] = (float)(i + 1);
    for (int set = 0; set < SETS; set++) {
        for (size_t n = 0; lsi_isa_usable(set) && n <= 16; n++) {
            for (int end = 0; end < 2; end++) {
                const size_t at = end ? floats - n : 0;
                float out[16];
                memset(to, 0, page);
                tables[set]->copy(n, from + at, to + at, out);
                for (size_t i = 0; i < floats; i++)
                    assert_true(to[i] == (i >= at && i < at + n ? from[i] : 0));
                for (size_t i = 0; i < 16; i++)
                    assert_true(out[i] == (i < n ? from[at + i] : 0));
            }
        }
    }
    munmap(memory, 5 * page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions), cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_philox),    cmocka_unit_test(test_moves),
        cmocka_unit_test(test_sum),       cmocka_unit_test(test_choices),
        cmocka_unit_test(test_folds),     cmocka_unit_test(test_partial_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
