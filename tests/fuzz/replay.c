/* Runs a fuzzer's function over files instead of libFuzzer: the corpus as an ordinary test.
 *
 *     replay_X [-m MUTATIONS] PATH...      files, or folders of files
 *
 * Each file is run as it is, then MUTATIONS times changed (default 300). The changes depend only on
 * the file's name, its bytes and the number of the try, so a failure repeats. Inputs lie in blocks
 * of exactly their size: a sanitizer sees every byte read past the end. Link it with a file that
 * defines LLVMFuzzerTestOneInput. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 4096
#define INPUT_MAX ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    char *name;
    uint8_t *data;
    size_t size;
} input;

static input inputs[FILES_MAX];
static size_t input_count;

/* What is being run, for when it does not come back. */
static char current[PATH_MAX + 64];

static void on_abort(int signal)
{
    (void)signal;
    if (write(STDERR_FILENO, current, strlen(current)) < 0)
        return;
}

static void *checked(void *memory)
{
    if (!memory) {
        fprintf(stderr, "replay: no memory\n");
        exit(2);
    }
    return memory;
}

static int read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || input_count == FILES_MAX) {
        fprintf(stderr, "replay: %s: %s\n", path, file ? "too many files" : strerror(errno));
        return -1;
    }
    input *in = &inputs[input_count++];
    in->name = checked(strdup(path));
    in->data = checked(malloc(INPUT_MAX));
    in->size = fread(in->data, 1, INPUT_MAX, file);
    fclose(file);
    return 0;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int read_path(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return read_file(path);
    struct dirent **names;
    int n = scandir(path, &names, is_visible, alphasort), failed = n < 0;
    for (int i = 0; i < n; i++) {
        char full[PATH_MAX];
        snprintf(full, sizeof full, "%s/%s", path, names[i]->d_name);
        failed |= read_file(full);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    return failed;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t random_state;

static uint64_t draw(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t below(size_t n)
{
    return n > 0 ? (size_t)(draw() % n) : 0;
}

/* Put `bytes` in the place of `old` bytes at `at`; too long a result is left as it was. */
static size_t replace(uint8_t *data, size_t size, size_t at, size_t old, const uint8_t *with,
                      size_t bytes)
{
    if (size - old + bytes > INPUT_MAX)
        return size;
    memmove(data + at + bytes, data + at + old, size - at - old);
    if (bytes > 0)
        memcpy(data + at, with, bytes);
    return size - old + bytes;
}

/* One change. `data` has room for INPUT_MAX bytes. */
static size_t mutate(uint8_t *data, size_t size)
{
    static const uint32_t edges[] = {0,      1,      0x7f,    0x80,       0xff,       0x100,
                                     0x7fff, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff};
    size_t at = below(size), n = below(size - at < 64 ? size - at : 64);
    uint8_t bytes[64];
    switch (below(8)) {
    case 0:
        if (size > 0)
            data[at] ^= (uint8_t)(1u << below(8));
        return size;
    case 1:
        if (size > 0)
            data[at] = (uint8_t)draw();
        return size;
    case 2: { /* a number at the edge, 1, 2 or 4 bytes */
        uint32_t edge = edges[below(sizeof edges / sizeof edges[0])];
        size_t width = (size_t)1 << below(3);
        if (size - at >= width)
            memcpy(data + at, &edge, width);
        return size;
    }
    case 3: return replace(data, size, at, n, NULL, 0);
    case 4:
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)draw();
        return replace(data, size, at, 0, bytes, n);
    case 5: memcpy(bytes, data + at, n); return replace(data, size, below(size + 1), 0, bytes, n);
    case 6: return at; /* cut */
    default: {         /* the end of another file */
        const input *other = &inputs[below(input_count)];
        size_t from = below(other->size);
        return replace(data, size, at, size - at, other->data + from, other->size - from);
    }
    }
}

static void run(const uint8_t *data, size_t size)
{
    uint8_t *exact = checked(malloc(size > 0 ? size : 1));
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static void run_input(const input *in, long mutations)
{
    uint8_t *data = checked(malloc(INPUT_MAX));
    const char *slash = strrchr(in->name, '/'), *name = slash ? slash + 1 : in->name;
    uint64_t seed = 0xcbf29ce484222325u;
    for (; *name; name++)
        seed = (seed ^ (uint8_t)*name) * 0x100000001b3u;
    for (size_t i = 0; i < in->size; i++)
        seed = (seed ^ in->data[i]) * 0x100000001b3u;
    snprintf(current, sizeof current, "replay: in %s as it is\n", in->name);
    run(in->data, in->size);
    for (long i = 0; i < mutations; i++) {
        snprintf(current, sizeof current, "replay: in %s, change %ld\n", in->name, i);
        random_state = seed + (uint64_t)i * 0x2545f4914f6cdd1du;
        size_t size = in->size;
        memcpy(data, in->data, size);
        for (size_t changes = 1 + below(6); changes > 0; changes--)
            size = mutate(data, size);
        run(data, size);
    }
    free(data);
}

int main(int argc, char **argv)
{
    long mutations = 300;
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "-m") == 0) {
        mutations = strtol(argv[2], NULL, 10);
        first = 3;
    }
    for (int i = first; i < argc; i++) {
        if (read_path(argv[i]) != 0)
            return 2;
    }
    if (input_count == 0) {
        fprintf(stderr, "replay: no input; usage: %s [-m MUTATIONS] PATH...\n", argv[0]);
        return 2;
    }
    signal(SIGABRT, on_abort);
    for (size_t i = 0; i < input_count; i++)
        run_input(&inputs[i], mutations);
    printf("%zu inputs, %ld changes of each: ok\n", input_count, mutations);
    for (size_t i = 0; i < input_count; i++) {
        free(inputs[i].name);
        free(inputs[i].data);
    }
    return 0;
}
