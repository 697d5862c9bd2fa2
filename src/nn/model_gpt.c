/* GPT-2: a causal transformer with learned positions, norms before each part, a tied head.
 *
 * A. Radford et al., "Language models are unsupervised multitask learners", 2019. Names are those
 * of Hugging Face's GPT2LMHeadModel; initial values too: 0.02, with residual projections divided by
 * the square root of their number.
 *
 * 1. Without dropout the residual additions are the last step of the projections before them, which
 *    costs nothing. With dropout they are part of the norms after them (ls_add_layer_norm), but at
 *    the end of a checkpoint, which keeps one value then, not two.
 */
#include <math.h>

#include "base/status.h"
#include "nn/model.h"

enum { VOCAB, CONTEXT, LAYERS, HEADS, DIM, DROPOUT, CHECKPOINT, SETTINGS };

static const lsi_setting settings[SETTINGS] = {
    [VOCAB] = {"vocab", LSI_SETTING_WHOLE, 1, 1 << 24},
    [CONTEXT] = {"context", LSI_SETTING_WHOLE, 1, 1 << 20},
    [LAYERS] = {"layers", LSI_SETTING_WHOLE, 1, 1000},
    [HEADS] = {"heads", LSI_SETTING_WHOLE, 1, 1 << 16},
    [DIM] = {"dim", LSI_SETTING_WHOLE, 1, 1 << 16},
    [DROPOUT] = {"dropout", LSI_SETTING_REAL, 0, 1},
    [CHECKPOINT] = {"checkpoint", LSI_SETTING_WHOLE, 0, 1}, /* blocks are computed again */
};

static const lsi_preset presets[] = {
    {"nano", "vocab=65 context=64 layers=4 heads=4 dim=128 dropout=0 checkpoint=0"},
    {"char", "vocab=65 context=256 layers=6 heads=6 dim=384"},
    {"124m", "vocab=50257 context=1024 layers=12 heads=12 dim=768"},
};

static ls_status check(const ls_model *model)
{
    const size_t dim = lsi_whole(model, DIM), heads = lsi_whole(model, HEADS);
    if (dim % heads)
        return lsi_fail(LS_ERR_CONFIG, "choose a dim that is a multiple of heads", "model gpt",
                        "dim=%zu is not divisible by heads=%zu", dim, heads);
    return LS_OK;
}

/* What runs through the blocks: the value x, and what is still to be added to it, or NULL. */
typedef struct stream {
    ls_tensor *x, *more;
} stream;

static ls_linear_config projection(size_t out)
{
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    config.out = out;
    config.conv1d = 1;
    config.init = LS_INIT_NORMAL;
    config.init_scale = 0.02f;
    return config;
}

static ls_tensor *norm(ls_graph *graph, stream *s, const char *name)
{
    ls_name(graph, "%s", name);
    if (!s->more)
        return ls_layer_norm(graph, s->x);
    ls_tensor *y = ls_add_layer_norm(graph, s->more, s->x, &s->x);
    s->more = NULL;
    return y;
}

/* The projection back to the stream. */
static void project(const ls_model *model, ls_graph *graph, ls_tensor *y, stream *s)
{
    const float dropout = lsi_real(model, DROPOUT);
    ls_linear_config config = projection(lsi_whole(model, DIM));
    config.init_scale /= sqrtf(2.0f * (float)lsi_whole(model, LAYERS));
    config.residual = dropout > 0 ? NULL : s->x;
    ls_name(graph, "c_proj");
    y = ls_linear_with(graph, y, &config);
    if (dropout > 0)
        s->more = ls_dropout(graph, y, dropout);
    else
        s->x = y;
}

static void add_block(const ls_model *model, ls_graph *graph, stream *s)
{
    const size_t dim = lsi_whole(model, DIM);
    ls_linear_config qkv = projection(3 * dim), wide = projection(4 * dim);
    ls_tensor *y = norm(graph, s, "ln_1");
    ls_scope_push(graph, "attn");
    ls_name(graph, "c_attn");
    y = ls_linear_with(graph, y, &qkv);
    y = ls_attention(graph, y, lsi_whole(model, HEADS), 1, lsi_real(model, DROPOUT));
    project(model, graph, y, s);
    ls_scope_pop(graph);

    y = norm(graph, s, "ln_2");
    ls_scope_push(graph, "mlp");
    wide.activation = LS_GELU;
    ls_name(graph, "c_fc");
    y = ls_linear_with(graph, y, &wide);
    project(model, graph, y, s);
    if (s->more && lsi_whole(model, CHECKPOINT)) {
        s->x = ls_add(graph, s->more, s->x);
        s->more = NULL;
    }
    ls_scope_pop(graph);
}

static ls_tensor *build(const ls_model *model, ls_graph *graph, ls_tensor **output)
{
    const size_t context = lsi_whole(model, CONTEXT), vocab = lsi_whole(model, VOCAB);
    const int again = lsi_whole(model, CHECKPOINT) != 0;
    ls_tensor *tokens = ls_input(graph, "tokens", LS_I32, 1, &context);
    ls_tensor *targets = ls_input(graph, "targets", LS_I32, 1, &context);
    ls_tensor *table = NULL;

    ls_scope_push(graph, "transformer");
    ls_name(graph, "wte");
    ls_tensor *x = ls_embedding(graph, tokens, vocab, lsi_whole(model, DIM), 0.02f, &table);
    ls_name(graph, "wpe");
    x = ls_positions(graph, x, 0.02f);
    x = ls_dropout(graph, x, lsi_real(model, DROPOUT));
    stream s = {x, NULL};
    for (size_t i = 0; i < lsi_whole(model, LAYERS); i++) {
        ls_scope_push(graph, "h.%zu", i);
        if (again)
            ls_checkpoint_begin(graph);
        add_block(model, graph, &s);
        if (again)
            ls_checkpoint_end(graph);
        ls_scope_pop(graph);
    }
    x = norm(graph, &s, "ln_f");
    ls_scope_pop(graph);

    ls_linear_config head = LS_LINEAR_CONFIG_INIT;
    head.out = vocab;
    head.tied = table;
    ls_name(graph, "lm_head");
    *output = table ? ls_linear_with(graph, x, &head) : NULL;
    return ls_cross_entropy(graph, *output, targets, 0, -100);
}

const lsi_model_kind lsi_model_gpt = {
    "gpt", settings, SETTINGS, presets, sizeof presets / sizeof *presets, check, build};
