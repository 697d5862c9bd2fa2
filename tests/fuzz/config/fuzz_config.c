/* Fuzzes the reader of configurations: an input is an INI file.
 *
 * Checked for whatever is accepted and can be settled: printed, it is read back as the same text,
 * the same digest and the same settings. What is refused has an error text and has changed
 * nothing. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/config.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, ls_last_error());  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static lsi_train_config config, again;

static void check_printed(void)
{
    char *text, *second, a[LSI_SHA256_HEX], b[LSI_SHA256_HEX], difference[256];
    CHECK(lsi_train_config_print(&config, &text) == LS_OK);
    CHECK(lsi_train_config_init(&again, NULL) == LS_OK);
    CHECK(lsi_train_config_read_text(&again, "again", text, strlen(text)) == LS_OK);
    CHECK(lsi_train_config_settle(&again) == LS_OK);
    CHECK(lsi_train_config_print(&again, &second) == LS_OK);
    CHECK(!strcmp(text, second));
    CHECK(lsi_train_config_sha256(&config, a) == LS_OK);
    CHECK(lsi_train_config_sha256(&again, b) == LS_OK);
    CHECK(!strcmp(a, b));
    CHECK(lsi_train_config_same(&config, &again, difference, sizeof difference));
    free(text);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CHECK(lsi_train_config_init(&config, NULL) == LS_OK);
    CHECK(lsi_train_config_init(&again, NULL) == LS_OK);
    if (lsi_train_config_read_text(&config, "input", (const char *)data, size) != LS_OK) {
        CHECK(ls_last_error()[0]);
        CHECK(!memcmp(&config, &again, sizeof config));
    } else if (lsi_train_config_settle(&config) == LS_OK)
        check_printed();
    return 0;
}
