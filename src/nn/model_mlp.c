/* A multi-layer perceptron for classification: linear, relu, …, linear. Names as nn.Sequential of
 * linear and relu by turns: 0.weight, 2.weight, 4.weight. */
#include "nn/model.h"

enum { INPUTS, HIDDEN, CLASSES, DROPOUT, SMOOTHING, SETTINGS };

static const lsi_setting settings[SETTINGS] = {
    [INPUTS] = {"inputs", LSI_SETTING_WHOLE, 1, 1 << 24},
    [HIDDEN] = {"hidden", LSI_SETTING_LIST, 1, 1 << 20},
    [CLASSES] = {"classes", LSI_SETTING_WHOLE, 1, 1 << 24},
    [DROPOUT] = {"dropout", LSI_SETTING_REAL, 0, 1},
    [SMOOTHING] = {"smoothing", LSI_SETTING_REAL, 0, 1},
};

static const lsi_preset presets[] = {
    {"default", "inputs=784 hidden=512,512 classes=10 dropout=0 smoothing=0"},
};

static ls_tensor *build(const ls_model *model, ls_graph *graph, ls_tensor **output)
{
    const lsi_value *hidden = &model->values[HIDDEN];
    const size_t inputs = lsi_whole(model, INPUTS);
    ls_tensor *x = ls_input(graph, "image", LS_F32, 1, &inputs);
    ls_tensor *label = ls_input(graph, "label", LS_I32, 0, NULL);
    for (int i = 0; i < hidden->count; i++) {
        ls_linear_config config = LS_LINEAR_CONFIG_INIT;
        config.out = hidden->whole[i];
        config.activation = LS_RELU;
        ls_name(graph, "%d", 2 * i);
        x = ls_linear_with(graph, x, &config);
        x = ls_dropout(graph, x, lsi_real(model, DROPOUT));
    }
    ls_name(graph, "%d", 2 * hidden->count);
    *output = ls_linear(graph, x, lsi_whole(model, CLASSES));
    return ls_cross_entropy(graph, *output, label, lsi_real(model, SMOOTHING), -100);
}

const lsi_model_kind lsi_model_mlp = {"mlp", settings, SETTINGS, presets, 1, NULL, build};
