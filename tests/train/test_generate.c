/* What generated text is made of: exponentials, letters, draws, a graph for short texts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "train/generate.h"
#include "train/predict.h"
#include "train/softmax.h"
#include "train/spelling.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != LS_OK)                                                                       \
            fail_msg("%s: %s", #call, ls_last_error());                                            \
    } while (0)

/* ---- exponentials --------------------------------------------------------------------------- */

static void test_exp(void **ignored)
{
    (void)ignored;
    for (int i = -70000; i <= 70000; i++) {
        const double x = i * 0.0101, wanted = exp(x), found = lsi_exp(x);
        if (x > -708 && x < 709 && fabs(found - wanted) > 2.3e-16 * wanted)
            fail_msg("e^%.17g is %.17g, not %.17g", x, found, wanted);
    }
    assert_true(lsi_exp(0) == 1);
    assert_true(lsi_exp(-1000) == 0 && lsi_exp(-INFINITY) == 0);
    assert_true(isinf(lsi_exp(1000)) && isnan(lsi_exp(NAN)));
    assert_true(lsi_sigmoid(0) == 0.5 && lsi_sigmoid(1000) == 1 && lsi_sigmoid(-1000) == 0);
    /* Bits that every machine must have: what is drawn depends on them. */
    assert_true(lsi_exp(-0.3) == 0x1.7b4c869c37c05p-1);
    assert_true(lsi_exp(-5.75) == 0x1.a12c66dcd95d0p-9);
}

static void test_softmax(void **ignored)
{
    (void)ignored;
    const float logits[4] = {1, 3, -INFINITY, 3}, good[3] = {1000, 1001, 998};
    double p[4];
    assert_true(isnan(lsi_softmax_weights(logits, 4, 1, p)));
    const double sum = lsi_softmax_weights(good, 3, 0.5, p);
    assert_true(p[1] == 1 && p[0] == lsi_exp(-2) && p[2] == lsi_exp(-6));
    assert_true(sum == p[0] + p[1] + p[2]);
}

/* ---- letters -------------------------------------------------------------------------------- */

static lsi_train_config *text_config(const char *letters)
{
    lsi_train_config *config = calloc(1, sizeof *config);
    assert_non_null(config);
    OK(lsi_train_config_init(config, "gpt:nano"));
    OK(lsi_train_config_put_data(config, "text:x"));
    if (letters)
        OK(lsi_train_config_letters(config, letters));
    else
        OK(lsi_train_config_put(config, "data.letters", "bytes"));
    OK(lsi_train_config_settle(config));
    return config;
}

static void open_spelling(const char *letters, size_t vocab, lsi_spelling *out)
{
    lsi_train_config *config = text_config(letters);
    OK(lsi_spelling_open(config, vocab, out));
    free(config);
}

/* What all of these tokens look like, and how much of it appears with each. */
static void expect(lsi_spelling *s, const char *tokens, const char *wanted, const char *lengths)
{
    char text[256] = "";
    size_t used = 0;
    const size_t n = strlen(lengths) - 1;
    for (size_t i = 0; i <= n; i++) {
        const size_t more = i < n ? lsi_spelling_write(s, (uint8_t)tokens[i], text + used)
                                  : lsi_spelling_end(s, text + used);
        assert_int_equal(more, lengths[i] - '0');
        used += more;
    }
    text[used] = 0;
    assert_string_equal(text, wanted);
}

static void test_bytes(void **ignored)
{
    (void)ignored;
    lsi_spelling s;
    open_spelling(NULL, 256, &s);
    assert_int_equal(s.count, 256);
    expect(&s, "a\xc3\xb6z", "a\xc3\xb6z", "10210");
    expect(&s, "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80", "00040");
    expect(&s, "\xc3", "\xef\xbf\xbd", "03");    /* cut at the end */
    expect(&s, "\xc3z", "\xef\xbf\xbdz", "040"); /* and before z */
    expect(&s, "\xe2\x80z", "\xef\xbf\xbd\xef\xbf\xbdz", "0070");
    expect(&s, "\xff", "\xef\xbf\xbd", "30");
    expect(&s, "\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd", "330"); /* over-long */
    expect(&s, "\xf4\xbf\xbf\xbf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "000<0");
    lsi_spelling_close(&s);
}

static void refuse(const lsi_spelling *s, const char *text, const char *said)
{
    int32_t *tokens;
    size_t count;
    assert_int_equal(lsi_spelling_read(s, "it", text, strlen(text), &tokens, &count),
                     LS_ERR_CONFIG);
    if (!strstr(ls_last_error(), said))
        fail_msg("'%s' does not say '%s'", ls_last_error(), said);
}

static void read_back(const lsi_spelling *s, const char *text, const int32_t *wanted, size_t n)
{
    int32_t *tokens;
    size_t count;
    OK(lsi_spelling_read(s, "it", text, strlen(text), &tokens, &count));
    assert_int_equal(count, n);
    assert_memory_equal(tokens, wanted, n * sizeof *wanted);
    free(tokens);
}

static void test_letters(void **ignored)
{
    (void)ignored;
    lsi_spelling s;
    char out[LSI_SPELL_ROOM];
    open_spelling("b\xc3\xb6 a", 65, &s); /* in an order of their own */
    assert_int_equal(s.count, 4);
    read_back(&s, "ab\xc3\xb6", (int32_t[]){3, 0, 1}, 3);
    assert_int_equal(lsi_spelling_write(&s, 1, out), 2);
    assert_memory_equal(out, "\xc3\xb6", 2);
    refuse(&s, "abc", "'c' (U+0063), it is at offset 2");
    refuse(&s, "a\n", "character (U+000A)");
    refuse(&s, "a\xff", "not UTF-8 at offset 1");
    refuse(&s, "", "empty");
    lsi_spelling_close(&s);
    open_spelling("abcd", 2, &s); /* a model that knows fewer */
    refuse(&s, "abc", "'c'");
    lsi_spelling_close(&s);
}

static void test_numbers(void **ignored)
{
    (void)ignored;
    lsi_spelling s = {.kind = LSI_SPELL_NUMBERS, .count = 50257};
    char out[LSI_SPELL_ROOM];
    read_back(&s, " 17,4\n50256 ", (int32_t[]){17, 4, 50256}, 3);
    refuse(&s, "50257", "below 50257");
    refuse(&s, "1 99999999999999999999999999", "below 50257");
    refuse(&s, "1 2x", "no number at offset 2");
    refuse(&s, "-1", "no number at offset 0");
    refuse(&s, " , ", "empty");
    assert_int_equal(lsi_spelling_write(&s, 17, out), 2);
    assert_int_equal(lsi_spelling_write(&s, 4, out), 2);
    assert_memory_equal(out, " 4", 2);
}

/* ---- text ----------------------------------------------------------------------------------- */

#define VOCAB 65
#define CONTEXT 40

static lsi_saved *make_saved(void)
{
    lsi_saved *s = calloc(1, sizeof *s);
    ls_model *model;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    assert_non_null(s);
    OK(lsi_train_config_init(&s->config, "gpt:nano"));
    OK(lsi_train_config_set(&s->config, "model.context=40"));
    OK(lsi_train_config_set(&s->config, "model.dim=32"));
    OK(lsi_train_config_set(&s->config, "model.heads=2"));
    OK(lsi_train_config_set(&s->config, "model.dropout=0.1")); /* is not seen outside of training */
    OK(lsi_train_config_settle(&s->config));
    OK(lsi_train_config_model(&s->config, &model));
    snprintf(s->model, sizeof s->model, "%s", ls_model_name(model));
    config.batch = 1;
    OK(ls_model_build(model, &config, &s->graph));
    ls_model_destroy(model);
    OK(lsi_fields_of(s->graph, &s->fields));
    float *weights = ls_graph_params(s->graph);
    for (size_t i = 0; i < ls_graph_param_elements(s->graph); i++)
        weights[i] *= 6; /* so that it has preferences */
    return s;
}

typedef struct heard {
    int32_t tokens[3 * CONTEXT];
    int n, stop;
} heard;

static ls_status hear(void *arg, int32_t token)
{
    heard *h = arg;
    if (h->stop && h->n == h->stop)
        return lsi_fail(LS_ERR_SYSTEM, NULL, "listener", "enough");
    h->tokens[h->n++] = token;
    return LS_OK;
}

static void generate(const lsi_saved *s, const lsi_generate_config *c, size_t prompt, heard *h)
{
    const int32_t words[5] = {1, 2, 3, 5, 8};
    h->n = h->stop = 0;
    OK(lsi_generate(s, c, words, prompt, hear, h));
    assert_int_equal(h->n, c->tokens);
}

static void test_generate(void **ignored)
{
    (void)ignored;
    lsi_saved *s = make_saved();
    static heard a, b;
    lsi_generate_config c = {.tokens = 3 * CONTEXT, .temperature = 1, .seed = 7};
    generate(s, &c, 5, &a);
    generate(s, &c, 5, &b);
    assert_memory_equal(a.tokens, b.tokens, sizeof a.tokens);
    /* A shorter text has a graph of its own, and is the beginning of the longer one. */
    for (c.tokens = 0; c.tokens < CONTEXT; c.tokens += 11) {
        generate(s, &c, 5, &b);
        assert_memory_equal(a.tokens, b.tokens, c.tokens * sizeof *b.tokens);
    }
    c.seed = 8;
    generate(s, &c, 5, &b);
    assert_memory_not_equal(a.tokens, b.tokens, 30 * sizeof *b.tokens);
    c.temperature = 100; /* about evenly: one of five cannot be missed for long */
    c.top = 5;
    c.tokens = 3 * CONTEXT;
    generate(s, &c, 5, &b);
    c.known = 3;
    generate(s, &c, 2, &b);
    int seen[3] = {0};
    for (int i = 0; i < b.n; i++)
        seen[b.tokens[i]]++; /* none is above */
    assert_true(seen[0] > 10 && seen[1] > 10 && seen[2] > 10);
    b = (heard){.stop = 4}; /* the listener's error is ours */
    assert_int_equal(lsi_generate(s, &c, (int32_t[]){1}, 1, hear, &b), LS_ERR_SYSTEM);
    assert_int_equal(b.n, 4);
    ls_graph_params(s->graph)[0] = NAN;
    c.known = 0;
    assert_int_not_equal(lsi_generate(s, &c, (int32_t[]){1}, 1, hear, &b), LS_OK);
    lsi_saved_close(s);
}

/* Of the k likeliest, equal ones are taken in their order. */
static void test_top(void **ignored)
{
    (void)ignored;
    lsi_saved *s = make_saved();
    static heard h;
    float *weights = ls_graph_params(s->graph);
    memset(weights, 0, ls_graph_param_elements(s->graph) * sizeof *weights); /* all logits are 0 */
    lsi_generate_config c = {.tokens = CONTEXT, .temperature = 1, .top = 3, .seed = 1};
    int seen[VOCAB] = {0};
    generate(s, &c, 5, &h);
    for (int i = 0; i < h.n; i++)
        seen[h.tokens[i]]++;
    assert_int_equal(seen[0] + seen[1] + seen[2], CONTEXT);
    assert_true(seen[0] && seen[1] && seen[2]);
    c.temperature = 0;
    generate(s, &c, 5, &h);
    for (int i = 0; i < h.n; i++)
        assert_int_equal(h.tokens[i], 0);
    lsi_saved_close(s);
}

/* The logits of a place do not depend on how far the context reaches beyond it, to the last bit. */
static void test_shorter_context(void **ignored)
{
    (void)ignored;
    lsi_saved *s = make_saved();
    ls_run_config run = LS_RUN_CONFIG_INIT;
    run.batch = 1;
    int32_t *tokens = s->fields.memory[0], *targets = s->fields.memory[1];
    for (int i = 0; i < CONTEXT; i++) {
        tokens[i] = i * i % VOCAB;
        targets[i] = -100;
    }
    OK(ls_graph_run(s->graph, &run, NULL));
    for (size_t length = 1; length < CONTEXT; length += 1 + length / 4) {
        ls_model *model;
        ls_graph *graph;
        ls_graph_config config = LS_GRAPH_CONFIG_INIT;
        char setting[32];
        snprintf(setting, sizeof setting, "context=%zu", length);
        config.batch = 1;
        OK(lsi_train_config_model(&s->config, &model));
        OK(ls_model_set(model, setting));
        OK(ls_model_build(model, &config, &graph));
        ls_model_destroy(model);
        for (int i = 0; i < ls_graph_param_count(graph); i++) {
            ls_param_info a, b;
            OK(ls_graph_param(s->graph, i, &a));
            OK(ls_graph_param(graph, i, &b));
            memcpy(ls_graph_params(graph) + b.offset, ls_graph_params(s->graph) + a.offset,
                   b.count * sizeof(float));
        }
        memcpy(ls_input_data(graph, ls_graph_input(graph, 0)), tokens, length * sizeof *tokens);
        memcpy(ls_input_data(graph, ls_graph_input(graph, 1)), targets, length * sizeof *targets);
        OK(ls_graph_run(graph, &run, NULL));
        assert_memory_equal(ls_output_data(graph), ls_output_data(s->graph),
                            length * VOCAB * sizeof(float));
        ls_graph_destroy(graph);
    }
    lsi_saved_close(s);
}

static void test_text_loss(void **ignored)
{
    (void)ignored;
    lsi_saved *s = make_saved();
    int32_t text[2 * CONTEXT + 7];
    double loss = 0, one = 0, sum = 0;
    uint64_t judged = 0, some = 0, all = 0;
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        text[i] = (int32_t)(i * 7 % VOCAB);
    OK(lsi_predict_text(s, text, sizeof text / sizeof *text, &loss, &judged));
    assert_int_equal(judged, 2 * CONTEXT + 6);
    for (size_t at = 0; at < 2 * CONTEXT + 6; at += CONTEXT) {
        const size_t n = at + CONTEXT < 2 * CONTEXT + 6 ? CONTEXT + 1 : 2 * CONTEXT + 7 - at;
        OK(lsi_predict_text(s, text + at, n, &one, &some));
        sum += one * (double)some;
        all += some;
    }
    assert_int_equal(all, judged);
    assert_true(fabs(sum / (double)all - loss) < 1e-12);
    assert_int_equal(lsi_predict_text(s, text, 1, &loss, &judged), LS_ERR_CONFIG);
    lsi_saved_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),       cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_bytes),     cmocka_unit_test(test_letters),
        cmocka_unit_test(test_numbers),   cmocka_unit_test(test_generate),
        cmocka_unit_test(test_top),       cmocka_unit_test(test_shorter_context),
        cmocka_unit_test(test_text_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
