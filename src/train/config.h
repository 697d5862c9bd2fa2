/* The configuration of a training run: all that decides its result, and how it is run.
 *
 * One struct of fixed size. Flags, --set and INI files go through the same function, key by key;
 * settling then fills in what was not given, as is usual for the model, and checks what settings
 * must satisfy together. Printed as INI text with every setting explicit, it repeats the run.
 *
 *     init -> (read | set | put)* -> [dataset opened: offer*] -> settle -> [total] -> print
 *
 * 1. A setting has one name, section.key, one text form, and one row in the table of config_keys.c.
 * 2. What was not given is unset (LSI_UNSET, NaN, "") until settled; so the order in which settings
 *    are given does not matter. Of train.steps and train.epochs, the one given last counts.
 * 3. Sections data, model, train, optimizer decide the result; eval, checkpoint and run do not.
 *
 * Plain data: may be copied, any thread may read it.
 */
#ifndef LSI_TRAIN_CONFIG_H
#define LSI_TRAIN_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/data.h>
#include <lockstep/nn.h>
#include <lockstep/optim.h>

#include "base/sha256.h"

#define LSI_CONFIG_WORD 32
#define LSI_CONFIG_PATH 1024
#define LSI_CONFIG_LETTERS 32768
#define LSI_CONFIG_SETTINGS 32
#define LSI_CONFIG_SETTING 192
#define LSI_CONFIG_KEY 64
#define LSI_UNSET UINT64_MAX

/* The characters that a text is made of. */
typedef enum lsi_letters_kind {
    LSI_LETTERS_UNSET,
    LSI_LETTERS_BYTES, /* letters = bytes */
    LSI_LETTERS_OWN,   /* letters = own: those that the file has */
    LSI_LETTERS_GIVEN  /* letters = "abc": these, in this order */
} lsi_letters_kind;

typedef struct lsi_config_letters {
    lsi_letters_kind kind;
    char text[LSI_CONFIG_LETTERS]; /* UTF-8; of LSI_LETTERS_GIVEN */
} lsi_config_letters;

typedef struct lsi_train_config {
    struct {
        char name[LSI_CONFIG_WORD]; /* "gpt:nano" */
        int count;
        char settings[LSI_CONFIG_SETTINGS][LSI_CONFIG_SETTING]; /* "layers=6": those given */
    } model;
    struct {
        char kind[LSI_CONFIG_WORD], path[LSI_CONFIG_PATH];
        double holdout;
        uint64_t augment, samples;
        lsi_config_letters letters;
    } data;
    struct {
        uint64_t batch, shards;
        uint64_t micro_batch;   /* samples of one pass inside of a shard; 0: all of the shard */
        uint64_t steps, epochs; /* one of them is 0 */
        uint64_t seed, threads;
        char sync[LSI_CONFIG_WORD], reduce[LSI_CONFIG_WORD], wire[LSI_CONFIG_WORD];
    } train;
    struct {
        char name[LSI_CONFIG_WORD];
        double lr, momentum;
        uint64_t nesterov;
        double beta1, beta2, eps, decay, trust, clip;
        char schedule[LSI_CONFIG_WORD];
        uint64_t warmup;
        uint64_t steps; /* the schedule's end; 0: that of the run */
        double min_lr;
        uint64_t every;
        double gamma;
    } optimizer;
    struct {
        uint64_t every;   /* steps; 0: at the end only */
        uint64_t batches; /* 0: all that is held out */
    } eval;
    struct {
        uint64_t every; /* steps; 0: at the end only */
        uint64_t keep;
    } checkpoint;
    struct {
        uint64_t workers; /* 0: as many as there are cores, and shards for them */
        char out[LSI_CONFIG_PATH], transport[LSI_CONFIG_WORD], bind[LSI_CONFIG_PATH];
        uint64_t tensorboard;
        uint64_t check_every; /* steps between two comparisons of the hosts' states; 0: none */
        char on_divergence[LSI_CONFIG_WORD], balance[LSI_CONFIG_WORD];
    } run;
} lsi_train_config;

/* ---- giving settings ------------------------------------------------------------------------ */

/* Everything unset but the model's name, e.g. "gpt:nano" (NULL: unset too, to be read from a file).
 * LS_ERR_CONFIG: no such model. */
ls_status lsi_train_config_init(lsi_train_config *config, const char *model);
/* "section.key=value", as after --set. LS_ERR_CONFIG names key, value and what is accepted, an
 * unknown key's nearest known one; nothing has changed then. */
ls_status lsi_train_config_set(lsi_train_config *config, const char *assignment);
/* The same in two pieces: a flag whose setting is known. */
ls_status lsi_train_config_put(lsi_train_config *config, const char *key, const char *value);
/* KIND[:PATH], as after --data. */
ls_status lsi_train_config_put_data(lsi_train_config *config, const char *data);
/* "vocab=65": a setting of the model that follows from the data; ignored when it was given. */
ls_status lsi_train_config_offer(lsi_train_config *config, const char *assignment);
/* The characters of the text, once they are known, so that the file repeats the run. */
ls_status lsi_train_config_letters(lsi_train_config *config, const char *letters);
/* All settings of a file, over those given before. LS_ERR_NOT_FOUND, LS_ERR_SYSTEM, LS_ERR_CONFIG
 * naming file:line; nothing has changed then. */
ls_status lsi_train_config_read(lsi_train_config *config, const char *path);
/* The same from text of `length` bytes; `label` stands for the path in errors. */
ls_status lsi_train_config_read_text(lsi_train_config *config, const char *label, const char *text,
                                     size_t length);
/* Unset section run: what a resumed run does not take over. */
void lsi_train_config_forget_run(lsi_train_config *config);

/* ---- using them ----------------------------------------------------------------------------- */

/* Fill in what is unset, and check. LS_ERR_CONFIG names the settings that do not go together,
 * LS_ERR_UNSUPPORTED what is not available yet. May be repeated after further settings. */
ls_status lsi_train_config_settle(lsi_train_config *config);
/* Steps of the whole run, with `samples` to train on: steps, or epochs of ceil(samples / batch).
 * Fills in what depends on that. Of a settled configuration. */
ls_status lsi_train_config_total(lsi_train_config *config, uint64_t samples, uint64_t *steps);

/* A model with these settings; the caller destroys it. */
ls_status lsi_train_config_model(const lsi_train_config *config, ls_model **out);
/* For ls_dataset_open and ls_optimizer_create: texts point into `config`. `total` is the number of
 * steps of the run. Of a settled configuration. */
void lsi_train_config_data(const lsi_train_config *config, int validation, ls_data_config *out);
ls_status lsi_train_config_optim(const lsi_train_config *config, uint64_t total,
                                 ls_optim_config *out);

/* ---- as text -------------------------------------------------------------------------------- */

/* INI text of a settled configuration, every setting explicit, the model's too. The same settings
 * give the same bytes. The caller frees *text. */
ls_status lsi_train_config_print(const lsi_train_config *config, char **text);
/* 1 when all that decides the result is the same; else `text` names the first setting that is
 * not: "train.batch is 96 in the run and 128 here". `run` and `here` are settled. The number of
 * steps counts only when the schedule depends on it, the place of the data never. */
int lsi_train_config_same(const lsi_train_config *run, const lsi_train_config *here, char *text,
                          size_t room);
/* The digest of all that decides the result. */
ls_status lsi_train_config_sha256(const lsi_train_config *config, char hex[LSI_SHA256_HEX]);

#endif
