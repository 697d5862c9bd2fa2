/* state.json: what a checkpoint is of, and the digests of its files.
 *
 * 1. Its last member is "checksum", the SHA-256 of all bytes before that line. The line itself is
 *    compared as a whole, so a change of any bit of the file is noticed.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "train/checkpoint_files.h"

#define WHAT "checkpoint"
#define STATE_BYTES ((size_t)1 << 16)
#define CHECKSUM ",\n  \"checksum\": \""

const char *const lsi_checkpoint_names[LSI_CHECKPOINT_FILES] = {
    [LSI_FILE_MODEL] = LSI_CHECKPOINT_MODEL, [LSI_FILE_OPTIMIZER] = LSI_CHECKPOINT_OPTIMIZER};

static ls_status digest_text(const char *text, size_t length, char hex[LSI_SHA256_HEX])
{
    unsigned char digest[LSI_SHA256_BYTES];
    LSI_TRY(lsi_sha256_of(text, length, digest));
    lsi_sha256_hex(digest, hex);
    return LS_OK;
}

ls_status lsi_state_digest(const lsi_checkpoint *c, char hex[LSI_SHA256_HEX])
{
    char text[2 * LSI_SHA256_HEX + 32];
    const int n =
        snprintf(text, sizeof text, "%s %s %" PRIu64 "\n", c->files[LSI_FILE_MODEL].sha256,
                 c->files[LSI_FILE_OPTIMIZER].sha256, c->step);
    return digest_text(text, (size_t)n, hex);
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static char *describe(const lsi_checkpoint *c)
{
    json_t *files = json_object();
    int bad = !files;
    for (int i = 0; i < LSI_CHECKPOINT_FILES; i++)
        bad |= json_object_set_new(files, lsi_checkpoint_names[i],
                                   json_pack("{s:I, s:s}", "bytes", (json_int_t)c->files[i].bytes,
                                             "sha256", c->files[i].sha256));
    json_t *root =
        json_pack("{s:i, s:I, s:I, s:I, s:o, s:o, s:s, s:s, s:s, s:o}", "format",
                  LSI_CHECKPOINT_FORMAT, "step", (json_int_t)c->step, "epoch", (json_int_t)c->epoch,
                  "seed", (json_int_t)c->seed, "loss", number(c->loss), "eval_loss",
                  number(c->eval_loss), "config_sha256", c->config, "weights_sha256", c->weights,
                  "state_sha256", c->state, "files", files);
    char *text = root && !bad ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

ls_status lsi_state_write(const char *folder, const lsi_checkpoint *c)
{
    char hex[LSI_SHA256_HEX], tail[sizeof CHECKSUM + LSI_SHA256_HEX + 8], ignored[LSI_SHA256_HEX];
    char *text = describe(c);
    if (!text)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for " LSI_CHECKPOINT_STATE);
    const size_t length = strlen(text) - strlen("\n}");
    lsi_out_file file;
    ls_status status = digest_text(text, length, hex);
    if (status == LS_OK)
        status = lsi_out_open(folder, LSI_CHECKPOINT_STATE, &file);
    if (status == LS_OK) {
        const int n = snprintf(tail, sizeof tail, CHECKSUM "%s\"\n}\n", hex);
        status = lsi_out_put(&file, text, length);
        if (status == LS_OK)
            status = lsi_out_put(&file, tail, (size_t)n);
        status = lsi_out_close(&file, status, ignored);
    }
    free(text);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static ls_status damaged(const char *path, const char *how)
{
    return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s is damaged: %s", path, how);
}

static ls_status check_sum(const char *path, const char *text, size_t length)
{
    char hex[LSI_SHA256_HEX], tail[sizeof CHECKSUM + LSI_SHA256_HEX + 8];
    const size_t tail_length = strlen(CHECKSUM) + LSI_SHA256_HEX - 1 + strlen("\"\n}\n");
    if (length <= tail_length || strlen(text) != length)
        return damaged(path, "it ends too early");
    LSI_TRY(digest_text(text, length - tail_length, hex));
    snprintf(tail, sizeof tail, CHECKSUM "%s\"\n}\n", hex);
    return strcmp(text + length - tail_length, tail) ? damaged(path, "its checksum is not right")
                                                     : LS_OK;
}

static int get_whole(const json_t *root, const char *key, uint64_t *out)
{
    const json_t *value = json_object_get(root, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return 0;
    *out = (uint64_t)json_integer_value(value);
    return 1;
}

static int get_number(const json_t *root, const char *key, double *out)
{
    const json_t *value = json_object_get(root, key);
    if (!json_is_number(value) && !json_is_null(value))
        return 0;
    *out = json_is_null(value) ? NAN : json_number_value(value);
    return 1;
}

static int get_digest(const json_t *root, const char *key, char out[LSI_SHA256_HEX])
{
    const char *text = json_string_value(json_object_get(root, key));
    if (!text || strlen(text) >= LSI_SHA256_HEX)
        return 0;
    snprintf(out, LSI_SHA256_HEX, "%s", text);
    return 1;
}

static ls_status take(const char *path, const json_t *root, lsi_checkpoint *c)
{
    uint64_t format = 0;
    if (!get_whole(root, "format", &format) || format != LSI_CHECKPOINT_FORMAT)
        return lsi_fail(LS_ERR_UNSUPPORTED, "another version of lockstep has written it", WHAT,
                        "%s is of format %" PRIu64 ", not %d", path, format, LSI_CHECKPOINT_FORMAT);
    int good = get_whole(root, "step", &c->step) && get_whole(root, "epoch", &c->epoch) &&
               get_whole(root, "seed", &c->seed) && get_number(root, "loss", &c->loss) &&
               get_number(root, "eval_loss", &c->eval_loss) &&
               get_digest(root, "config_sha256", c->config) &&
               get_digest(root, "weights_sha256", c->weights) &&
               get_digest(root, "state_sha256", c->state);
    for (int i = 0; i < LSI_CHECKPOINT_FILES; i++) {
        const json_t *file =
            json_object_get(json_object_get(root, "files"), lsi_checkpoint_names[i]);
        good = good && get_whole(file, "bytes", &c->files[i].bytes) &&
               get_digest(file, "sha256", c->files[i].sha256);
    }
    return good ? LS_OK : damaged(path, "a member is missing or makes no sense");
}

static ls_status read_text(const char *path, char *text, size_t *length)
{
    FILE *f = fopen(path, "rbe");
    if (!f && (errno == ENOENT || errno == ENOTDIR))
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, WHAT, "%s is missing", path);
    if (!f)
        return lsi_fail_errno(WHAT, "%s cannot be opened", path);
    *length = fread(text, 1, STATE_BYTES, f);
    const int bad = ferror(f);
    const ls_status status = bad ? lsi_fail_errno(WHAT, "%s cannot be read", path) : LS_OK;
    fclose(f);
    text[*length] = 0;
    return status;
}

ls_status lsi_checkpoint_open(const char *folder, lsi_checkpoint *out)
{
    lsi_checkpoint c = {.step = 0};
    char path[LSI_CHECKPOINT_PATH];
    size_t length = 0;
    LSI_TRY(lsi_run_path(folder, LSI_CHECKPOINT_STATE, path));
    char *text = malloc(STATE_BYTES + 1);
    if (!text)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "%s: no memory", path);
    ls_status status = read_text(path, text, &length);
    if (status == LS_OK)
        status = check_sum(path, text, length);
    if (status == LS_OK) {
        json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        status = root ? take(path, root, &c) : damaged(path, "it is not JSON");
        json_decref(root);
    }
    free(text);
    LSI_TRY(status);
    snprintf(c.folder, sizeof c.folder, "%s", folder);
    *out = c;
    return LS_OK;
}
