/* DLRM: click prediction from dense values and ids, embedding bags of one and their interactions.
 *
 * M. Naumov et al., "Deep learning recommendation model for personalization and recommendation
 * systems", 2019. Names and initial values are those of facebookresearch/dlrm: emb_l.I, bot_l and
 * top_l as sequences of linear and relu by turns. The loss takes the place of the last sigmoid.
 */
#include <math.h>

#include "nn/model.h"

#define TABLES_MAX 1000

enum { DENSE, TABLES, ROWS, WIDTH, BOTTOM, TOP, SETTINGS };

static const lsi_setting settings[SETTINGS] = {
    [DENSE] = {"dense", LSI_SETTING_WHOLE, 1, 1 << 20},
    [TABLES] = {"tables", LSI_SETTING_WHOLE, 1, TABLES_MAX},
    [ROWS] = {"rows", LSI_SETTING_WHOLE, 1, 2147483647},
    [WIDTH] = {"width", LSI_SETTING_WHOLE, 1, 1 << 16},
    [BOTTOM] = {"bottom", LSI_SETTING_LIST, 1, 1 << 20}, /* then width */
    [TOP] = {"top", LSI_SETTING_LIST, 1, 1 << 20},       /* then 1 */
};

static const lsi_preset presets[] = {
    {"default", "dense=13 tables=26 rows=10000 width=16 bottom=512,256,64 top=512,256"},
};

static ls_tensor *add_layer(ls_graph *graph, ls_tensor *x, int i, size_t out, int relu)
{
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    config.out = out;
    config.activation = relu ? LS_RELU : LS_NONE;
    config.init = LS_INIT_NORMAL;
    const size_t in = x ? ls_tensor_dims(x)[ls_tensor_ndim(x) - 1] : 1;
    config.init_scale = sqrtf(2.0f / (float)(in + out));
    config.bias_scale = sqrtf(1.0f / (float)out);
    ls_name(graph, "%d", 2 * i);
    return ls_linear_with(graph, x, &config);
}

static ls_tensor *add_layers(ls_graph *graph, ls_tensor *x, const char *scope,
                             const lsi_value *hidden, size_t out, int relu_last)
{
    ls_scope_push(graph, "%s", scope);
    for (int i = 0; i < hidden->count; i++)
        x = add_layer(graph, x, i, hidden->whole[i], 1);
    x = add_layer(graph, x, hidden->count, out, relu_last);
    ls_scope_pop(graph);
    return x;
}

/* As few tensors as one node takes: neighbours side by side where there are more. */
static int gather(ls_graph *graph, int count, size_t width, ls_tensor **x)
{
    const int each = (count + LS_OP_MAX_INPUTS - 1) / LS_OP_MAX_INPUTS;
    int groups = 0;
    for (int i = 0; each > 1 && i < count; i += each) {
        const int some = count - i < each ? count - i : each;
        ls_tensor *group = ls_concat(graph, some, x + i);
        x[groups++] = ls_reshape(graph, group, 2, (size_t[]){(size_t)some, width});
    }
    return groups ? groups : count;
}

static ls_tensor *build(const ls_model *model, ls_graph *graph, ls_tensor **output)
{
    const size_t dense = lsi_whole(model, DENSE), tables = lsi_whole(model, TABLES);
    const size_t rows = lsi_whole(model, ROWS), width = lsi_whole(model, WIDTH);
    ls_tensor *values = ls_input(graph, "dense", LS_F32, 1, &dense);
    ls_tensor *ids = ls_input(graph, "ids", LS_I32, 1, &tables);
    ls_tensor *target = ls_input(graph, "target", LS_F32, 0, NULL);

    ls_tensor *features[1 + TABLES_MAX];
    features[0] = add_layers(graph, values, "bot_l", &model->values[BOTTOM], width, 1);
    ls_scope_push(graph, "emb_l");
    for (size_t i = 0; i < tables; i++) {
        ls_name(graph, "%zu", i);
        features[1 + i] =
            ls_embedding_bag(graph, ids, (int)i, rows, width, 1.0f / sqrtf((float)rows));
    }
    ls_scope_pop(graph);

    const int parts = gather(graph, (int)tables + 1, width, features);
    ls_tensor *x = ls_interact_all(graph, parts, features);
    x = add_layers(graph, x, "top_l", &model->values[TOP], 1, 0);
    *output = ls_reshape(graph, x, 0, NULL);
    return ls_bce_with_logits(graph, *output, target);
}

const lsi_model_kind lsi_model_dlrm = {"dlrm", settings, SETTINGS, presets, 1, NULL, build};
