/* Generated tasks: who knows how they are made reaches the best loss and nobody can do better; what
 * is asked for can be learned; bits never change. */
#include <math.h>
#include <stdlib.h>

#include "cases.h"

static ls_dataset *open_task(const char *model, uint64_t seed, int validation,
                             const ls_data_field *fields, int count)
{
    ls_data_config config = LS_DATA_CONFIG_INIT;
    config.model = model;
    config.seed = seed;
    config.validation = validation;
    return open_data(config, fields, count);
}

static double best_of(const ls_dataset *dataset)
{
    double loss = -1;
    OK(ls_dataset_best_loss(dataset, &loss));
    return loss;
}

static void test_counts(void **state)
{
    (void)state;
    static const uint64_t given[] = {0, 1, 5, 77, 1000}, train[] = {50000, 1, 5, 77, 1000},
                          held[] = {5000, 1, 1, 7, 100};
    for (int i = 0; i < 5; i++)
        for (int validation = 0; validation < 2; validation++) {
            ls_data_config config = LS_DATA_CONFIG_INIT;
            config.model = "mlp";
            config.samples = given[i];
            config.validation = validation;
            ls_dataset *d = open_data(config, mlp_fields, 2);
            assert_int_equal(ls_dataset_count(d), validation ? held[i] : train[i]);
            ls_dataset_close(d);
        }
}

/* ---- classification ------------------------------------------------------------------------- */

/* Means of the signs of each class (as far as labels tell), from the part to train on; then the
 * nearest of them for samples of the held-out part. Patterns of one class differ, so the nearest
 * of a set of prototypes is taken: those seen first that are far from the others. */
enum { INPUTS = 784, KNOWN_MAX = 64 };

typedef struct prototype {
    float sign[INPUTS];
    int votes[10];
} prototype;

static int distance(const float *a, const float *b)
{
    int n = 0;
    for (int i = 0; i < INPUTS; i++)
        n += (a[i] > 0) != (b[i] > 0);
    return n;
}

static int nearest(const prototype *known, int count, const float *x, int *far)
{
    int best = 0;
    *far = INPUTS + 1;
    for (int i = 0; i < count; i++) {
        const int far_i = distance(known[i].sign, x);
        if (far_i < *far) {
            *far = far_i;
            best = i;
        }
    }
    return best;
}

static int class_of(const prototype *p)
{
    int best = 0;
    for (int c = 1; c < 10; c++)
        best = p->votes[c] > p->votes[best] ? c : best;
    return best;
}

static void test_mlp(void **state)
{
    (void)state;
    ls_dataset *train = open_task("mlp", 3, 0, mlp_fields, 2);
    ls_dataset *held = open_task("mlp", 3, 1, mlp_fields, 2);
    prototype *known = calloc(KNOWN_MAX, sizeof *known);
    assert_non_null(known);
    float x[INPUTS];
    int32_t label;
    void *fields[2] = {x, &label};
    int count = 0, far;
    for (uint64_t i = 0; i < 2000; i++) {
        OK(ls_dataset_read(train, i, 0, fields));
        assert_in_range(label, 0, 9);
        for (int k = 0; k < INPUTS; k++)
            assert_true(fabsf(x[k]) > 0.04f && fabsf(x[k]) < 1.96f);
        int n = nearest(known, count, x, &far);
        if (far > 0) { /* noise does not change a sign: another pattern */
            assert_true(count < KNOWN_MAX);
            n = count++;
            memcpy(known[n].sign, x, sizeof x);
        }
        known[n].votes[label]++;
    }
    assert_int_equal(count, 40);

    /* The best predictor: 15/16 on the class of the pattern, 1/16 on all alike. */
    double loss = 0;
    int right = 0;
    const double other = 1.0 / 160, own = 15.0 / 16 + other;
    for (uint64_t i = 0; i < 5000; i++) {
        OK(ls_dataset_read(held, i, 0, fields));
        const int n = nearest(known, count, x, &far);
        assert_int_equal(far, 0);
        const int good = class_of(&known[n]) == label;
        right += good;
        loss -= log(good ? own : other);
    }
    const double best = best_of(train);
    assert_true(fabs(best - 0.3401) < 1e-4);
    assert_true(best == best_of(held));
    assert_true(fabs(loss / 5000 - best) < 0.05); /* four deviations: 1.2 of one sample */
    assert_in_range(right, 4650, 4790);           /* 0.94375 of them */
    free(known);
    ls_dataset_close(train);
    ls_dataset_close(held);
}

/* An image repeats its tile: signs 8 pixels apart agree, whatever the phase; the tile at its phase,
 * seen as a set of shifted ones, tells the class. */
static void test_resnet(void **state)
{
    (void)state;
    ls_dataset *d = open_task("resnet:20", 3, 0, image_fields, 2);
    static float x[32][32][3];
    int32_t label;
    void *fields[2] = {x, &label};
    enum { TRIES = 3000 };
    static uint64_t tile[TRIES];
    static int32_t labels[TRIES];
    for (uint64_t i = 0; i < TRIES; i++) {
        OK(ls_dataset_read(d, i, 0, fields));
        for (int r = 0; r < 32; r++)
            for (int c = 0; c < 32; c++)
                for (int k = 0; k < 3; k++)
                    assert_true((x[r][c][k] > 0) == (x[r % 8][c % 8][k] > 0));
        uint64_t least = UINT64_MAX; /* over all phases, of the first channel */
        for (int phase = 0; phase < 64; phase++) {
            uint64_t bits = 0;
            for (int r = 0; r < 8; r++)
                for (int c = 0; c < 8; c++)
                    bits = bits << 1 | (x[(r + phase / 8) % 8][(c + phase) % 8][0] > 0);
            least = bits < least ? bits : least;
        }
        tile[i] = least;
        labels[i] = label;
    }
    int pairs = 0, same = 0;
    for (int i = 0; i < TRIES; i++)
        for (int j = 0; j < i; j++)
            if (tile[i] == tile[j]) {
                pairs++;
                same += labels[i] == labels[j];
            }
    assert_in_range(pairs, TRIES * (TRIES / 2) / 48, TRIES * (TRIES / 2) / 33); /* 40 patterns */
    assert_true(same > pairs * 0.87 && same < pairs * 0.91); /* 0.89 = own^2 + … */
    assert_true(fabs(best_of(d) - 0.3401) < 1e-4);
    ls_dataset_close(d);
}

/* Shapes of all kinds; no more classes than the inputs can tell apart. */
static void test_small(void **state)
{
    (void)state;
    static const size_t dims[][3] = {{1, 1, 1}, {2, 1, 1}, {3, 2, 1},   {8, 8, 1},
                                     {7, 9, 2}, {9, 8, 3}, {1, 200, 1}, {200, 1, 1}};
    static float x[9 * 200 * 3];
    for (size_t s = 0; s < sizeof dims / sizeof *dims; s++) {
        ls_data_field fields[2] = {image_fields[0], {"label", LS_I32, 0, {0}, 5000}};
        memcpy(fields[0].dims, dims[s], sizeof dims[s]);
        ls_dataset *d = open_task("resnet", 1, 0, fields, 2);
        const size_t size = dims[s][0] * dims[s][1] * dims[s][2];
        const size_t high = dims[s][0] < 8 ? dims[s][0] : 8, wide = dims[s][1] < 8 ? dims[s][1] : 8;
        const size_t tile = high * wide * dims[s][2];
        const int most = tile < 10 ? 1 << tile : 1024;
        int32_t label;
        void *out[2] = {x, &label};
        int largest = 0;
        for (uint64_t i = 0; i < 3000; i++) {
            x[size] = 123;
            OK(ls_dataset_read(d, i, 0, out));
            assert_true(x[size] == 123);
            assert_in_range(label, 0, most - 1);
            largest = label > largest ? label : largest;
        }
        assert_true(largest > most * 0.9 - 2);
        assert_true(best_of(d) >= 0);
        ls_dataset_close(d);
    }
    const ls_data_field wide[2] = {{"image", LS_F32, 3, {8, 8, 16384}, 0}, image_fields[1]};
    ls_dataset *w = open_task("resnet", 1, 0, wide, 2); /* patterns as large as there may be */
    float *large = malloc(8 * 8 * 16384 * sizeof *large);
    int32_t one;
    for (uint64_t i = 0; i < 4; i++)
        OK(ls_dataset_read(w, i, 0, (void *[]){large, &one}));
    assert_in_range(one, 0, 1);
    free(large);
    ls_dataset_close(w);
    static const size_t inputs[] = {1, 2, 63, 64, 65, 100, 1000};
    for (size_t s = 0; s < sizeof inputs / sizeof *inputs; s++) {
        ls_data_field fields[2] = {{"input", LS_F32, 1, {inputs[s]}, 0},
                                   {"label", LS_I32, 0, {0}, 0}};
        ls_dataset *d = open_task(NULL, 1, 0, fields, 2);
        int32_t label;
        for (uint64_t i = 0; i < 100; i++) {
            x[inputs[s]] = 123;
            OK(ls_dataset_read(d, i, 0, (void *[]){x, &label}));
            assert_true(x[inputs[s]] == 123);
            assert_in_range(label, 0, 9);
        }
        ls_dataset_close(d);
    }
}

/* ---- sequences ------------------------------------------------------------------------------ */

/* Count who follows whom: each symbol has 8 successors of 1/2, 1/4, …, and who predicts these
 * reaches the best loss on the held-out part. */
static void test_gpt(void **state)
{
    (void)state;
    ls_dataset *train = open_task("gpt:nano", 5, 0, gpt_fields, 2);
    ls_dataset *held = open_task("gpt:nano", 5, 1, gpt_fields, 2);
    static int follows[65][65], all[65];
    int32_t tokens[65], targets[65];
    void *fields[2] = {tokens, targets};
    tokens[64] = targets[64] = -7;
    for (uint64_t i = 0; i < 8000; i++) {
        OK(ls_dataset_read(train, i, 0, fields));
        for (int k = 0; k < 64; k++) {
            assert_in_range(targets[k], 0, 64);
            assert_true(k == 63 || targets[k] == tokens[k + 1]);
            follows[tokens[k]][targets[k]]++;
            all[tokens[k]]++;
        }
    }
    assert_true(tokens[64] == -7 && targets[64] == -7);
    for (int s = 0; s < 65; s++) {
        int successors = 0, half = 0;
        for (int t = 0; t < 65; t++) {
            successors += follows[s][t] > 0;
            half += abs(follows[s][t] - all[s] / 2) < all[s] / 20;
        }
        assert_int_equal(successors, 8);
        assert_int_equal(half, 1);
        assert_in_range(all[s], 7200, 8600); /* all symbols alike: 7877 each */
    }
    double loss = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        OK(ls_dataset_read(held, i, 0, fields));
        for (int k = 0; k < 64; k++) {
            const double share = (double)follows[tokens[k]][targets[k]] / all[tokens[k]];
            loss -= log(exp2(nearbyint(log2(share)))); /* the chance is a power of two */
        }
    }
    const double best = best_of(train);
    assert_true(fabs(best - 1.984375 * log(2)) < 1e-12);
    assert_true(fabs(loss / (2000 * 64) - best) < 0.012); /* four deviations: 0.94 of one token */
    ls_dataset_close(train);
    ls_dataset_close(held);
}

static void test_gpt_sizes(void **state)
{
    (void)state;
    static const size_t vocab[] = {1, 2, 3, 7, 8, 9, 50257},
                        context[] = {1, 3, 511, 512, 513, 1100};
    static int32_t tokens[1101], targets[1101];
    for (size_t v = 0; v < 7; v++)
        for (size_t c = 0; c < 6; c++) {
            const ls_data_field fields[2] = {{"tokens", LS_I32, 1, {context[c]}, vocab[v]},
                                             {"targets", LS_I32, 1, {context[c]}, vocab[v]}};
            ls_dataset *d = open_task("gpt", 5, 0, fields, 2);
            tokens[context[c]] = -7;
            OK(ls_dataset_read(d, 17, 0, (void *[]){tokens, targets}));
            assert_int_equal(tokens[context[c]], -7);
            for (size_t k = 0; k < context[c]; k++)
                assert_in_range(targets[k], 0, (vocab[v] < 1024 ? vocab[v] : 1024) - 1);
            assert_true(vocab[v] > 1 ? best_of(d) > 0.69 : best_of(d) == 0);
            ls_dataset_close(d);
        }
}

/* ---- clicks --------------------------------------------------------------------------------- */

/* A logistic regression on the dense values and on which half a row belongs to (its mean target in
 * the part to train on) gets most of the way from the base rate to the best loss; targets are as
 * uncertain as the best loss says. */
static void test_dlrm(void **state)
{
    (void)state;
    ls_data_field wanted[3];
    memcpy(wanted, dlrm_fields, sizeof wanted);
    wanted[1].bound = 50; /* few rows, so that each is seen often */
    ls_dataset *d = open_task("dlrm", 8, 0, wanted, 3), *held = open_task("dlrm", 8, 1, wanted, 3);
    enum { TRAIN = 50000, PASSES = 4 };
    static double weight[13 + 26 * 50 + 1];
    float dense[13], target;
    int32_t ids[26];
    void *fields[3] = {dense, ids, &target};
    double first[2] = {0}, loss = 0, mean = 0;
    for (int pass = 0; pass < PASSES; pass++)
        for (uint64_t i = 0; i < TRAIN; i++) {
            OK(ls_dataset_read(d, ls_data_order(1, (uint64_t)pass, TRAIN, i), 0, fields));
            double z = weight[13 + 26 * 50];
            for (int k = 0; k < 13; k++)
                z += weight[k] * (double)dense[k];
            for (int k = 0; k < 26; k++)
                z += weight[13 + 50 * k + ids[k]];
            const double step = 0.02 / (1 + pass) * ((double)target - 1 / (1 + exp(-z)));
            weight[13 + 26 * 50] += step;
            for (int k = 0; k < 13; k++)
                weight[k] += step * (double)dense[k];
            for (int k = 0; k < 26; k++)
                weight[13 + 50 * k + ids[k]] += step;
            if (pass == 0) {
                first[0] += ids[0] < 25;
                mean += (double)target;
            }
        }
    for (uint64_t i = 0; i < 5000; i++) {
        OK(ls_dataset_read(held, i, 0, fields));
        double z = weight[13 + 26 * 50];
        for (int k = 0; k < 13; k++)
            z += weight[k] * (double)dense[k];
        for (int k = 0; k < 26; k++) {
            assert_in_range(ids[k], 0, 49);
            z += weight[13 + 50 * k + ids[k]];
        }
        assert_true(target == 0 || target == 1);
        loss -= log(1 / (1 + exp(target == 1 ? -z : z)));
    }
    mean /= TRAIN;
    loss /= 5000;
    const double base = -mean * log(mean) - (1 - mean) * log(1 - mean), best = best_of(held);
    assert_true(mean > 0.2 && mean < 0.4);
    assert_true(first[0] / TRAIN > 0.75); /* the lower half of the rows: u^3 < 1/2, 0.79 */
    assert_true(best > 0.4 && best < base - 0.08);
    assert_true(loss > best - 0.02 && loss < best + 0.03);
    assert_true(fabs(best_of(d) - best) < 0.01);
    ls_dataset_close(d);
    ls_dataset_close(held);
}

/* ---- what must not change ------------------------------------------------------------------- */

static uint64_t hash_samples(const char *model, uint64_t seed, int validation,
                             const ls_data_field *fields, int count)
{
    static float memory[3][32 * 32 * 3];
    ls_dataset *d = open_task(model, seed, validation, fields, count);
    uint64_t hash = HASH_START;
    for (uint64_t i = 0; i < 100; i++) {
        memset(memory, 0, sizeof memory);
        OK(ls_dataset_read(d, i * 49, i, (void *[]){memory[0], memory[1], memory[2]}));
        for (int f = 0; f < count; f++)
            hash = hash_of(hash, memory[f], sizeof memory[f]);
    }
    ls_dataset_close(d);
    return hash;
}

static void test_golden(void **state)
{
    (void)state;
    assert_int_equal(hash_samples("mlp", 1, 0, mlp_fields, 2), 0x295c6fedaa4d4616u);
    assert_int_equal(hash_samples("resnet", 1, 0, image_fields, 2), 0xede0872341c9f3fdu);
    assert_int_equal(hash_samples("gpt", 1, 0, gpt_fields, 2), 0x430c4acbadebfcd3u);
    assert_int_equal(hash_samples("dlrm", 1, 0, dlrm_fields, 3), 0x8cba6cee77b9fe9fu);
    assert_int_equal(hash_samples("dlrm", 2, 1, dlrm_fields, 3), 0x14b347e7aa0971c3u);
    assert_int_equal(hash_samples("mlp", 2, 1, mlp_fields, 2), 0x835843dcfb269089u);
    ls_dataset *d = open_task("mlp", 1, 0, mlp_fields, 2);
    float x[784];
    int32_t label;
    OK(ls_dataset_read(d, 0, 0, (void *[]){x, &label}));
    assert_true(x[0] == -1.68363166f && x[783] == 1.18859351f);
    assert_int_equal(label, 0);
    ls_dataset_close(d);
}

static void test_refused(void **state)
{
    (void)state;
    ls_data_config config = LS_DATA_CONFIG_INIT;
    ls_dataset *d = NULL;
    config.model = "vgg";
    FAILS(LS_ERR_CONFIG, "no task for the model 'vgg'", ls_dataset_open(&config, &d));
    config.model = NULL;
    config.path = "/tmp";
    FAILS(LS_ERR_CONFIG, "takes no path", ls_dataset_open(&config, &d));
    config.path = NULL;
    config.samples = (uint64_t)1 << 41;
    FAILS(LS_ERR_CONFIG, "more than 2^40", ls_dataset_open(&config, &d));
    config.samples = 0;
    OK(ls_dataset_open(&config, &d));
    const ls_data_field odd = {"sound", LS_F32, 1, {3}, 0};
    FAILS(LS_ERR_CONFIG, "no task with a field 'sound'", ls_dataset_bind(d, &odd, 1));
    const ls_data_field mixed[2] = {mlp_fields[0], gpt_fields[1]};
    FAILS(LS_ERR_CONFIG, "wants 'targets', the data has image, label",
          ls_dataset_bind(d, mixed, 2));
    OK(ls_dataset_bind(d, gpt_fields, 2)); /* a failed call leaves nothing behind */
    ls_dataset_close(d);
    config.model = "gpt";
    OK(ls_dataset_open(&config, &d));
    FAILS(LS_ERR_CONFIG, "wants 'image'", ls_dataset_bind(d, mlp_fields, 2));
    char text[8];
    FAILS(LS_ERR_NOT_FOUND, "no setting", ls_dataset_setting(d, 0, text, sizeof text));
    assert_null(ls_dataset_letters(d));
    ls_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),  cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_resnet),  cmocka_unit_test(test_small),
        cmocka_unit_test(test_gpt),     cmocka_unit_test(test_gpt_sizes),
        cmocka_unit_test(test_dlrm),    cmocka_unit_test(test_golden),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
