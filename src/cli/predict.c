/* lockstep predict: what a trained model says of the samples of a file. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "cli/cli.h"
#include "data/file.h"
#include "train/number.h"
#include "train/predict.h"
#include "train/softmax.h"
#include "train/spelling.h"

#define COMMAND "predict"

static const char help[] =
    "usage: lockstep predict DIR FILE [--json]\n"
    "\n"
    "Tells the class of each sample of a file, and how probable it is: one line a sample. Of a\n"
    "text it tells how well a gpt foresees it: loss and perplexity.\n"
    "\n"
    "  DIR         a run directory, or one of its checkpoints\n"
    "  FILE        mlp, resnet: images (idx, also .gz; cifar's .bin if trained on that), or a\n"
    "              .npy of float32 with the model's inputs, (samples, …)\n"
    "              dlrm: lines as criteo's, with any label; the classes are 0 and 1\n"
    "              gpt: a text; for a run on tokens: numbers with spaces between\n"
    "      --json  one object a line, with the probabilities of all classes\n"
    "\n"
    "Exit status: 0; 1 if the work failed; 2 for wrong usage.\n"
    "\n"
    "example: lockstep predict runs/digits t10k-images-idx3-ubyte.gz\n";

enum { OPT_JSON = 256 };

static const struct option long_options[] = {
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

typedef struct predict_options {
    const char *path, *file;
    int json;
} predict_options;

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, predict_options *o)
{
    opterr = 0;
    for (;;) {
        const int option = getopt_long(argc, argv, "+:h", long_options, NULL);
        if (option == -1 && optind == argc)
            break;
        if (option == -1) { /* a word: the run, then the file; options may follow */
            if (o->file)
                return lsi_cli_usage(COMMAND, "one file at a time, not '%.200s' too", argv[optind]);
            *(o->path ? &o->file : &o->path) = argv[optind];
            optind++;
        } else if (option == 'h') {
            fputs(help, stdout);
            return 0;
        } else if (option == OPT_JSON) {
            o->json = 1;
        } else {
            return lsi_cli_bad_option(COMMAND, option, argv);
        }
    }
    if (!o->path)
        return lsi_cli_usage(COMMAND, "by which run?");
    return o->file ? -1 : lsi_cli_usage(COMMAND, "which file of samples?");
}

static ls_status written(void)
{
    return ferror(stdout) ? lsi_fail_errno(COMMAND, "cannot write the result") : LS_OK;
}

static ls_status print(void *arg, const lsi_prediction *p)
{
    const predict_options *o = arg;
    char number[LSI_NUMBER_TEXT];
    if (!o->json) {
        printf("%zu %.6f\n", p->best, p->probability[p->best]);
        return written();
    }
    printf("{\"sample\": %llu, \"class\": %zu, \"probability\": %s, \"probabilities\": [",
           (unsigned long long)p->sample, p->best,
           lsi_number_text(p->probability[p->best], number));
    for (size_t c = 0; c < p->classes; c++)
        printf("%s%s", c ? ", " : "", lsi_number_text(p->probability[c], number));
    printf("]}\n");
    return written();
}

static ls_status predict_samples(const predict_options *o, const lsi_saved *saved)
{
    lsi_samples *samples;
    LSI_TRY(lsi_samples_open(saved->config.data.kind, o->file, saved->fields.of, saved->fields.n,
                             &samples));
    const ls_status status = lsi_predict(saved, samples, print, (void *)o);
    lsi_samples_close(samples);
    return status;
}

static ls_status predict_text(const predict_options *o, const lsi_saved *saved)
{
    lsi_spelling spelling;
    lsi_file file;
    int32_t *tokens = NULL;
    size_t count;
    double loss = 0;
    uint64_t judged = 0;
    char a[LSI_NUMBER_TEXT], b[LSI_NUMBER_TEXT];
    LSI_TRY(lsi_file_map("text", o->file, &file));
    ls_status status = lsi_spelling_open(&saved->config, saved->fields.of[0].bound, &spelling);
    if (status == LS_OK) {
        status = lsi_spelling_read(&spelling, o->file, (const char *)file.bytes, file.size, &tokens,
                                   &count);
        lsi_spelling_close(&spelling);
    }
    lsi_file_close(&file);
    if (status == LS_OK)
        status = lsi_predict_text(saved, tokens, count, &loss, &judged);
    free(tokens);
    LSI_TRY(status);
    printf(o->json ? "{\"tokens\": %llu, \"loss\": %s, \"perplexity\": %s}\n"
                   : "tokens=%llu loss=%s perplexity=%s\n",
           (unsigned long long)judged, lsi_number_text(loss, a), lsi_number_text(lsi_exp(loss), b));
    return written();
}

int lsi_cli_predict(int argc, char **argv)
{
    predict_options o = {0};
    lsi_saved *saved;
    const int status = parse(argc, argv, &o);
    if (status >= 0)
        return status;
    if (lsi_saved_open(o.path, 0, &saved) != LS_OK)
        return lsi_cli_fail();
    ls_status done =
        strcmp(saved->model, "gpt") ? predict_samples(&o, saved) : predict_text(&o, saved);
    lsi_saved_close(saved);
    if (done == LS_OK && fflush(stdout) != 0)
        done = lsi_fail_errno(COMMAND, "cannot write the result");
    return done == LS_OK ? 0 : lsi_cli_fail();
}
