/* What a trained model says of samples without answers. */
#ifndef LSI_TRAIN_PREDICT_H
#define LSI_TRAIN_PREDICT_H

#include "data/samples.h"
#include "train/saved.h"

typedef struct lsi_prediction {
    uint64_t sample;
    size_t classes, best;      /* the likeliest; a yes-or-no model has the classes 0 and 1 */
    const double *probability; /* (classes), valid in the call */
} lsi_prediction;

typedef ls_status (*lsi_prediction_fn)(void *arg, const lsi_prediction *prediction);

/* All samples in order, as many at once as the graph takes: that does not change what they get.
 * LS_ERR_UNSUPPORTED: the model does not tell classes. */
ls_status lsi_predict(const lsi_saved *saved, const lsi_samples *samples, lsi_prediction_fn take,
                      void *arg);

/* The mean loss of a gpt over a text of `count` tokens, at least two: each but the first is to be
 * told from those before it, in pieces of the context as in training. *judged of them. */
ls_status lsi_predict_text(const lsi_saved *saved, const int32_t *tokens, size_t count,
                           double *loss, uint64_t *judged);

#endif
