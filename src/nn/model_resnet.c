/* Residual networks, for small images (resnet:20 and its kin) and large ones (resnet:18 …).
 *
 * K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", 2015. Shortcuts
 * that change the shape are 1x1 convolutions; the stride of a bottleneck is in its 3x3 convolution.
 * Layers, names and initial values are torchvision's.
 */
#include <math.h>

#include "base/status.h"
#include "nn/model.h"

enum { BLOCKS, BOTTLENECK, STEM, WIDTH, IMAGE, CHANNELS, CLASSES, SMOOTHING, SETTINGS };

static const lsi_setting settings[SETTINGS] = {
    [BLOCKS] = {"blocks", LSI_SETTING_LIST, 1, 1000}, /* of each stage; the width doubles between */
    [BOTTLENECK] = {"bottleneck", LSI_SETTING_WHOLE, 0, 1},
    [STEM] = {"stem", LSI_SETTING_WHOLE, 3, 7}, /* first kernel; 7: stride 2, then max pooling */
    [WIDTH] = {"width", LSI_SETTING_WHOLE, 1, 1 << 16},
    [IMAGE] = {"image", LSI_SETTING_WHOLE, 1, 1 << 14},
    [CHANNELS] = {"channels", LSI_SETTING_WHOLE, 1, 1 << 14},
    [CLASSES] = {"classes", LSI_SETTING_WHOLE, 1, 1 << 24},
    [SMOOTHING] = {"smoothing", LSI_SETTING_REAL, 0, 1},
};

#define LARGE "stem=7 width=64 image=224 classes=1000 "
static const lsi_preset presets[] = {
    {"20", "blocks=3,3,3 bottleneck=0 stem=3 width=16 image=32 channels=3 classes=10 smoothing=0"},
    {"32", "blocks=5,5,5"},
    {"44", "blocks=7,7,7"},
    {"56", "blocks=9,9,9"},
    {"110", "blocks=18,18,18"},
    {"18", LARGE "blocks=2,2,2,2"},
    {"34", LARGE "blocks=3,4,6,3"},
    {"50", LARGE "blocks=3,4,6,3 bottleneck=1"},
    {"101", LARGE "blocks=3,4,23,3 bottleneck=1"},
    {"152", LARGE "blocks=3,8,36,3 bottleneck=1"},
};

static ls_status check(const ls_model *model)
{
    const size_t stem = lsi_whole(model, STEM);
    if (stem != 3 && stem != 7)
        return lsi_fail(LS_ERR_CONFIG, "3 for small images, 7 for large ones", "model resnet, stem",
                        "'%zu' is neither 3 nor 7", stem);
    return LS_OK;
}

/* A convolution without bias, padded to keep the size, and its batch norm. */
typedef struct conv_norm {
    size_t out, kernel, stride;
    ls_tensor *residual;
    int relu;
} conv_norm;

static ls_tensor *add_conv_norm(ls_graph *graph, ls_tensor *x, const char *conv, const char *norm,
                                conv_norm c)
{
    ls_conv2d_config config = LS_CONV2D_CONFIG_INIT;
    config.out = c.out;
    config.kernel = c.kernel;
    config.stride = c.stride;
    config.padding = c.kernel / 2;
    config.init = LS_INIT_NORMAL; /* kaiming, fan out, relu */
    config.init_scale = sqrtf(2.0f / (float)(c.kernel * c.kernel * c.out));
    ls_name(graph, "%s", conv);
    x = ls_conv2d(graph, x, &config);
    ls_name(graph, "%s", norm);
    return ls_batch_norm(graph, x, c.residual, c.relu);
}

static ls_tensor *add_block(ls_graph *graph, ls_tensor *x, size_t width, size_t stride,
                            int bottleneck)
{
    const size_t out = bottleneck ? 4 * width : width;
    ls_tensor *shortcut = x;
    if (x && (stride != 1 || ls_tensor_dims(x)[3] != out))
        shortcut = add_conv_norm(graph, x, "downsample.0", "downsample.1",
                                 (conv_norm){out, 1, stride, NULL, 0});
    if (!bottleneck) {
        x = add_conv_norm(graph, x, "conv1", "bn1", (conv_norm){width, 3, stride, NULL, 1});
        return add_conv_norm(graph, x, "conv2", "bn2", (conv_norm){out, 3, 1, shortcut, 1});
    }
    x = add_conv_norm(graph, x, "conv1", "bn1", (conv_norm){width, 1, 1, NULL, 1});
    x = add_conv_norm(graph, x, "conv2", "bn2", (conv_norm){width, 3, stride, NULL, 1});
    return add_conv_norm(graph, x, "conv3", "bn3", (conv_norm){out, 1, 1, shortcut, 1});
}

static ls_tensor *build(const ls_model *model, ls_graph *graph, ls_tensor **output)
{
    const lsi_value *blocks = &model->values[BLOCKS];
    const size_t image = lsi_whole(model, IMAGE), channels = lsi_whole(model, CHANNELS);
    ls_tensor *x = ls_input(graph, "image", LS_F32, 3, (size_t[]){image, image, channels});
    ls_tensor *label = ls_input(graph, "label", LS_I32, 0, NULL);

    size_t width = lsi_whole(model, WIDTH);
    const size_t stem = lsi_whole(model, STEM);
    x = add_conv_norm(graph, x, "conv1", "bn1",
                      (conv_norm){width, stem, stem == 7 ? 2 : 1, NULL, 1});
    if (stem == 7)
        x = ls_max_pool(graph, x, 3, 2, 1);
    for (int stage = 0; stage < blocks->count; stage++) {
        for (size_t i = 0; i < blocks->whole[stage]; i++) {
            ls_scope_push(graph, "layer%d.%zu", stage + 1, i);
            x = add_block(graph, x, width, stage && i == 0 ? 2 : 1,
                          lsi_whole(model, BOTTLENECK) != 0);
            ls_scope_pop(graph);
        }
        width *= 2;
    }
    x = ls_global_pool(graph, x);
    ls_name(graph, "fc");
    *output = ls_linear(graph, x, lsi_whole(model, CLASSES));
    return ls_cross_entropy(graph, *output, label, lsi_real(model, SMOOTHING), -100);
}

const lsi_model_kind lsi_model_resnet = {
    "resnet", settings, SETTINGS, presets, sizeof presets / sizeof *presets, check, build};
