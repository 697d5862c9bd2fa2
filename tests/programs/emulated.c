/* Loaded into an emulated program (tests/programs/emulate): what starts itself again, by its name
 * /proc/self/exe, is started under the emulator again.
 *
 * qemu hands the name on to the kernel, which runs programs of another processor only where it has
 * been told how, for all of the machine (binfmt_misc). The emulator's settings are in the
 * environment, and so go on to what is started. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS 64

__attribute__((visibility("default"))) int execvp(const char *file, char *const argv[])
{
    char program[PATH_MAX], emulator[] = EMULATOR, *words[WORDS + 3] = {emulator, program};
    const ssize_t length = readlink(file, program, sizeof program - 1);
    if (strcmp(file, "/proc/self/exe") != 0 || length < 0)
        return execvpe(file, argv, environ);
    program[length] = 0;
    for (int i = 1; argv[0] && argv[i]; i++) {
        if (i > WORDS) {
            errno = E2BIG;
            return -1;
        }
        words[i + 1] = argv[i];
    }
    unsetenv("LD_PRELOAD"); /* ours: nothing that the emulator itself could load */
    return execvpe(emulator, words, environ);
}
