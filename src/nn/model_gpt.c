/* GPT-2: a causal transformer with learned positions, norms before each part, a tied head.
 *
 * A. Radford et al., "Language models are unsupervised multitask learners", 2019. Names are those
 * of Hugging Face's GPT2LMHeadModel; initial values too: 0.02, with residual projections divided by
 * the square root of their number.
 *
 * 1. Without dropout the residual additions are the last step of the projections before them; with
 *    dropout they are nodes of their own.
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

/* One linear layer; with a residual to be added, after dropout if there is any. */
static ls_tensor *project(const ls_model *model, ls_graph *graph, ls_tensor *x, const char *name,
                          size_t out, ls_activation activation, ls_tensor *residual)
{
    const float dropout = lsi_real(model, DROPOUT);
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    config.out = out;
    config.activation = activation;
    config.residual = dropout > 0 ? NULL : residual;
    config.conv1d = 1;
    config.init = LS_INIT_NORMAL;
    config.init_scale = 0.02f;
    if (residual)
        config.init_scale /= sqrtf(2.0f * (float)lsi_whole(model, LAYERS));
    ls_name(graph, "%s", name);
    x = ls_linear_with(graph, x, &config);
    return residual && dropout > 0 ? ls_add(graph, residual, ls_dropout(graph, x, dropout)) : x;
}

static ls_tensor *add_block(const ls_model *model, ls_graph *graph, ls_tensor *x)
{
    const size_t dim = lsi_whole(model, DIM);
    ls_name(graph, "ln_1");
    ls_tensor *y = ls_layer_norm(graph, x);
    ls_scope_push(graph, "attn");
    y = project(model, graph, y, "c_attn", 3 * dim, LS_NONE, NULL);
    y = ls_attention(graph, y, lsi_whole(model, HEADS), 1, lsi_real(model, DROPOUT));
    x = project(model, graph, y, "c_proj", dim, LS_NONE, x);
    ls_scope_pop(graph);

    ls_name(graph, "ln_2");
    y = ls_layer_norm(graph, x);
    ls_scope_push(graph, "mlp");
    y = project(model, graph, y, "c_fc", 4 * dim, LS_GELU, NULL);
    x = project(model, graph, y, "c_proj", dim, LS_NONE, x);
    ls_scope_pop(graph);
    return x;
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
    for (size_t i = 0; i < lsi_whole(model, LAYERS); i++) {
        ls_scope_push(graph, "h.%zu", i);
        if (again)
            ls_checkpoint_begin(graph);
        x = add_block(model, graph, x);
        if (again)
            ls_checkpoint_end(graph);
        ls_scope_pop(graph);
    }
    ls_name(graph, "ln_f");
    x = ls_layer_norm(graph, x);
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
