/* lockstep hash: the SHA-256 of the weights of a run's newest checkpoint, or of its whole state. */
#include <getopt.h>
#include <stdio.h>

#include "cli/cli.h"
#include "train/checkpoint.h"

static const char help[] =
    "usage: lockstep hash DIR [--state]\n"
    "\n"
    "Prints the SHA-256 of the weights of a run's newest checkpoint, after comparing its files "
    "with\n"
    "their checksums. Runs of the same configuration have the same, on whatever they ran. It is "
    "that\n"
    "of the file: sha256sum DIR/checkpoint/step-…/model.safetensors.\n"
    "\n"
    "  DIR          a run directory, or one of its checkpoints\n"
    "      --state  of weights, optimizer state and step together\n"
    "\n"
    "Exit status: 0; 1 if there is no checkpoint or it is damaged; 2 for wrong usage.\n"
    "\n"
    "example: lockstep hash runs/first\n";

enum { OPT_STATE = 256 };

static const struct option long_options[] = {
    {"state", no_argument, NULL, OPT_STATE},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

int lsi_cli_hash(int argc, char **argv)
{
    const char *folder = NULL;
    int state = 0;
    opterr = 0;
    for (;;) {
        const int option = getopt_long(argc, argv, "+:h", long_options, NULL);
        if (option == -1 && optind == argc)
            break;
        if (option == -1) { /* a word: the folder; options may follow it */
            if (folder)
                return lsi_cli_usage("hash", "one run at a time, not '%.200s' too", argv[optind]);
            folder = argv[optind++];
        } else if (option == 'h') {
            fputs(help, stdout);
            return 0;
        } else if (option == OPT_STATE) {
            state = 1;
        } else {
            return lsi_cli_bad_option("hash", option, argv);
        }
    }
    if (!folder)
        return lsi_cli_usage("hash", "of which run?");
    lsi_checkpoint checkpoint;
    if (lsi_checkpoint_find(folder, &checkpoint) != LS_OK)
        return lsi_cli_fail();
    puts(state ? checkpoint.state : checkpoint.weights);
    return 0;
}
