/* A folder of its own for a test of files: make_folder and remove_folder are the set-up and the
 * tear-down of the group. */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        ls_status ok_status = (call);                                                              \
        if (ok_status != LS_OK)                                                                    \
            fail_msg("%s: %s", #call, ls_last_error());                                            \
    } while (0)

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails when a test left something behind */
}

static const char *path_of(const char *name)
{
    static char path[16][128]; /* enough for all that one test uses */
    static int turn;
    turn = (turn + 1) % 16;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

#endif
