/* Text from a trained GPT, token by token.
 *
 *     the last tokens -> forward -> logits of the last place -> temperature, top k -> a draw
 *
 * 1. The draw of the token at place p of the text (the prompt's tokens counted) is Philox with the
 *    seed as key and p as counter: the same call gives the same tokens everywhere, and a text that
 *    is given as the prompt goes on as it would have.
 * 2. What decides it is made of plain double operations (softmax.h).
 */
#ifndef LSI_TRAIN_GENERATE_H
#define LSI_TRAIN_GENERATE_H

#include "train/saved.h"

typedef struct lsi_generate_config {
    uint64_t tokens;    /* to add */
    double temperature; /* of the softmax; 0: always the likeliest */
    uint64_t top;       /* only the likeliest so many; 0: any */
    uint64_t seed;
    size_t known; /* tokens below this may come; 0: all of the model's */
} lsi_generate_config;

/* Takes the next token; an error ends the text. */
typedef ls_status (*lsi_token_fn)(void *arg, int32_t token);

/* The tokens that a GPT knows. LS_ERR_UNSUPPORTED: it is another model. */
ls_status lsi_saved_vocab(const lsi_saved *saved, size_t *vocab);

/* Go on after `count` tokens, at least one, each below the vocabulary. Only as many of the last as
 * the model's context has are looked at. LS_ERR_INVALID: the model's output is not finite. */
ls_status lsi_generate(const lsi_saved *saved, const lsi_generate_config *config,
                       const int32_t *prompt, size_t count, lsi_token_fn take, void *arg);

#endif
