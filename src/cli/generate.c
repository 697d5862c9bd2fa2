/* lockstep generate: text from a trained GPT, written as it comes. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/status.h"
#include "cli/cli.h"
#include "train/generate.h"
#include "train/spelling.h"

#define COMMAND "generate"
#define TOKENS 200
#define TEMPERATURE 0.8

static const char help[] =
    "usage: lockstep generate DIR --prompt TEXT [OPTIONS]\n"
    "\n"
    "Lets a trained gpt go on with a text, and writes it as it comes. The same command gives the\n"
    "same text on every machine.\n"
    "\n"
    "  DIR                  a run directory, or one of its checkpoints\n"
    "      --prompt TEXT    what to go on with; for a run on tokens: numbers, as in '17 4 9'\n"
    "      --tokens N       to add: characters, bytes or tokens, as the run has them (200)\n"
    "      --temperature T  below 1 likelier, above 1 stranger; 0: always the likeliest (0.8)\n"
    "      --top-k K        only the K likeliest at each place (any)\n"
    "      --seed S         of the choices (1)\n"
    "      --json           one object at the end, with the tokens added\n"
    "\n"
    "Of a text longer than the model's context, the end counts. Bytes that make no character are\n"
    "written as U+FFFD.\n"
    "\n"
    "Exit status: 0; 1 if the work failed; 2 for wrong usage.\n"
    "\n"
    "example: lockstep generate runs/book --prompt 'In the beginning' --tokens 500\n";

enum { OPT_PROMPT = 256, OPT_TOKENS, OPT_TEMPERATURE, OPT_TOP, OPT_SEED, OPT_JSON };

static const struct option long_options[] = {
    {"prompt", required_argument, NULL, OPT_PROMPT},
    {"tokens", required_argument, NULL, OPT_TOKENS},
    {"temperature", required_argument, NULL, OPT_TEMPERATURE},
    {"top-k", required_argument, NULL, OPT_TOP},
    {"seed", required_argument, NULL, OPT_SEED},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

typedef struct generate_options {
    const char *path, *prompt;
    lsi_generate_config config;
    int json;
} generate_options;

/* Where the text goes. */
typedef struct sink {
    lsi_spelling *spelling;
    json_t *tokens; /* NULL: to standard output at once */
    char *text;     /* all of it, with --json */
    size_t used, room;
} sink;

/* ---- the command line ----------------------------------------------------------------------- */

static ls_status parse_whole(const char *name, long least, uint64_t *out)
{
    long number;
    LSI_TRY(lsi_parse_int(name, optarg, least, 1000000000000000000, &number));
    *out = (uint64_t)number;
    return LS_OK;
}

static ls_status parse_temperature(double *out)
{
    char *end;
    const double value = strtod(optarg, &end);
    if (end == optarg || *end || !(value >= 0 && value <= 1000))
        return lsi_fail(LS_ERR_CONFIG, NULL, "--temperature",
                        "'%.60s' is not a number from 0 to 1000", optarg);
    *out = value;
    return LS_OK;
}

static ls_status take_option(int option, generate_options *o)
{
    switch (option) {
    case OPT_PROMPT: o->prompt = optarg; break;
    case OPT_TOKENS: return parse_whole("--tokens", 0, &o->config.tokens);
    case OPT_TEMPERATURE: return parse_temperature(&o->config.temperature);
    case OPT_TOP: return parse_whole("--top-k", 1, &o->config.top);
    case OPT_SEED: return parse_whole("--seed", 0, &o->config.seed);
    case OPT_JSON: o->json = 1; break;
    }
    return LS_OK;
}

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, generate_options *o)
{
    opterr = 0;
    for (;;) {
        const int option = getopt_long(argc, argv, "+:h", long_options, NULL);
        if (option == -1 && optind == argc)
            break;
        if (option == -1) { /* a word: the run; options may follow it */
            if (o->path)
                return lsi_cli_usage(COMMAND, "one run at a time, not '%.200s' too", argv[optind]);
            o->path = argv[optind++];
            continue;
        }
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (option == '?' || option == ':')
            return lsi_cli_bad_option(COMMAND, option, argv);
        if (take_option(option, o) != LS_OK)
            return lsi_cli_bad_value(COMMAND);
    }
    if (!o->path)
        return lsi_cli_usage(COMMAND, "from which run?");
    if (!o->prompt)
        return lsi_cli_usage(COMMAND, "go on with what? give --prompt");
    if (!*o->prompt)
        return lsi_cli_usage(COMMAND, "--prompt is empty, a gpt needs something to go on with");
    return -1;
}

/* ---- the text ------------------------------------------------------------------------------- */

static ls_status put(sink *to, const char *bytes, size_t count)
{
    if (!to->tokens) {
        fwrite(bytes, 1, count, stdout);
        return LS_OK;
    }
    if (to->used + count >= to->room) {
        const size_t room = 2 * to->room + 1024;
        char *text = realloc(to->text, room);
        if (!text)
            return lsi_fail(LS_ERR_NOMEM, NULL, COMMAND, "out of memory");
        to->text = text;
        to->room = room;
    }
    memcpy(to->text + to->used, bytes, count);
    to->used += count;
    return LS_OK;
}

static ls_status flush(void)
{
    return fflush(stdout) == 0 ? LS_OK : lsi_fail_errno(COMMAND, "cannot write the text");
}

static ls_status put_token(void *arg, int32_t token)
{
    sink *to = arg;
    char bytes[LSI_SPELL_ROOM];
    LSI_TRY(put(to, bytes, lsi_spelling_write(to->spelling, token, bytes)));
    if (!to->tokens)
        return flush();
    return json_array_append_new(to->tokens, json_integer(token)) == 0
               ? LS_OK
               : lsi_fail(LS_ERR_NOMEM, NULL, COMMAND, "out of memory");
}

static ls_status print_json(const generate_options *o, const lsi_saved *saved, const sink *to,
                            size_t prompt)
{
    json_t *object =
        json_pack("{s:I, s:I, s:s%, s:s%, s:O}", "step", (json_int_t)saved->checkpoint.step, "seed",
                  (json_int_t)o->config.seed, "prompt", to->text, prompt, "text", to->text + prompt,
                  to->used - prompt, "tokens", to->tokens);
    if (!object)
        return lsi_fail(LS_ERR_NOMEM, NULL, COMMAND, "cannot make the JSON object");
    json_dumpf(object, stdout, 0);
    putchar('\n');
    json_decref(object);
    return flush();
}

/* The prompt as it was understood, then what follows. */
static ls_status write_text(const generate_options *o, const lsi_saved *saved, sink *to,
                            const int32_t *prompt, size_t count)
{
    char bytes[LSI_SPELL_ROOM];
    for (size_t i = 0; i < count; i++)
        LSI_TRY(put(to, bytes, lsi_spelling_write(to->spelling, prompt[i], bytes)));
    const size_t given = to->used;
    LSI_TRY(flush());
    LSI_TRY(lsi_generate(saved, &o->config, prompt, count, put_token, to));
    LSI_TRY(put(to, bytes, lsi_spelling_end(to->spelling, bytes)));
    if (to->tokens)
        return print_json(o, saved, to, given);
    putchar('\n');
    return flush();
}

static ls_status generate(generate_options *o)
{
    lsi_saved *saved;
    lsi_spelling spelling = {.count = 0};
    size_t vocab, count = 0;
    int32_t *prompt = NULL;
    LSI_TRY(lsi_saved_open(o->path, 1, &saved));
    sink to = {.spelling = &spelling, .tokens = o->json ? json_array() : NULL};
    ls_status status = lsi_saved_vocab(saved, &vocab);
    if (status == LS_OK)
        status = lsi_spelling_open(&saved->config, vocab, &spelling);
    if (status == LS_OK)
        status =
            lsi_spelling_read(&spelling, "--prompt", o->prompt, strlen(o->prompt), &prompt, &count);
    o->config.known = spelling.count;
    if (status == LS_OK)
        status = write_text(o, saved, &to, prompt, count);
    json_decref(to.tokens);
    free(to.text);
    free(prompt);
    lsi_spelling_close(&spelling);
    lsi_saved_close(saved);
    return status;
}

int lsi_cli_generate(int argc, char **argv)
{
    generate_options o = {
        .config = {.tokens = TOKENS, .temperature = TEMPERATURE, .seed = 1, .top = 0}};
    const int status = parse(argc, argv, &o);
    if (status >= 0)
        return status;
    return generate(&o) == LS_OK ? 0 : lsi_cli_fail();
}
