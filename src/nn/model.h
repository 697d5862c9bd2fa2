/* Models: a name, settings with defaults from a preset, and a function that builds the graph.
 *
 * Each model is a file, model_NAME.c, with one lsi_model_kind; model.c has their list, and all that
 * they share: parsing, checking and printing of settings.
 *
 * 1. A model is a value: settings only. It may build any number of graphs.
 * 2. A setting's own range is checked when it is set; what several settings must satisfy together
 *    is checked when a graph is built, so that their order does not matter.
 */
#ifndef LSI_NN_MODEL_H
#define LSI_NN_MODEL_H

#include <lockstep/nn.h>

#define LSI_SETTINGS_MAX 16
#define LSI_LIST_MAX 16

typedef enum lsi_setting_kind {
    LSI_SETTING_WHOLE, /* layers=6 */
    LSI_SETTING_REAL,  /* dropout=0.1; `most` itself is excluded */
    LSI_SETTING_LIST   /* hidden=512,512: 1 to LSI_LIST_MAX whole numbers */
} lsi_setting_kind;

typedef struct lsi_setting {
    const char *key;
    lsi_setting_kind kind;
    double least, most;
} lsi_setting;

typedef struct lsi_value {
    double real;
    int count;
    size_t whole[LSI_LIST_MAX]; /* a whole number is a list of one */
} lsi_value;

/* Settings of a preset as text, "layers=4 heads=4"; the first preset is the default, and names all
 * settings. */
typedef struct lsi_preset {
    const char *name, *settings;
} lsi_preset;

typedef struct lsi_model_kind {
    const char *name;
    const lsi_setting *settings;
    int setting_count;
    const lsi_preset *presets;
    int preset_count;
    /* What settings must satisfy together: LS_OK, or LS_ERR_CONFIG recorded. May be NULL. */
    ls_status (*check)(const ls_model *model);
    /* Append the model to the graph and return its loss; *output gets what it predicts. Errors are
     * kept by the graph. */
    ls_tensor *(*build)(const ls_model *model, ls_graph *graph, ls_tensor **output);
} lsi_model_kind;

struct ls_model {
    const lsi_model_kind *kind;
    lsi_value values[LSI_SETTINGS_MAX]; /* in the order of kind->settings */
};

static inline size_t lsi_whole(const ls_model *model, int setting)
{
    return model->values[setting].whole[0];
}

static inline float lsi_real(const ls_model *model, int setting)
{
    return (float)model->values[setting].real;
}

/* The i-th kind of model; NULL past the end. */
const lsi_model_kind *lsi_model_known(int i);

extern const lsi_model_kind lsi_model_mlp, lsi_model_resnet, lsi_model_gpt, lsi_model_dlrm;

#endif
