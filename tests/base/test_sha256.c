/* SHA-256: the examples of FIPS 180, in one piece and in many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"

static const struct {
    const char *text, *hex;
} cases[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnop"
     "qrsmnopqrstnopqrstu",
     "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
};

static void test_examples(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char digest[LSI_SHA256_BYTES];
        char hex[LSI_SHA256_HEX];
        assert_int_equal(lsi_sha256_of(cases[i].text, strlen(cases[i].text), digest), LS_OK);
        lsi_sha256_hex(digest, hex);
        assert_string_equal(hex, cases[i].hex);
    }
}

/* One object, used again and again, with updates of every size. */
static void test_stream(void **state)
{
    (void)state;
    lsi_sha256 *hash = NULL;
    assert_int_equal(lsi_sha256_create(&hash), LS_OK);
    unsigned char digest[LSI_SHA256_BYTES];
    char hex[LSI_SHA256_HEX];
    const char *text = cases[3].text;
    for (size_t cut = 1; cut <= strlen(text); cut++) {
        for (size_t at = 0; at < strlen(text); at += cut) {
            const size_t rest = strlen(text) - at;
            assert_int_equal(lsi_sha256_update(hash, text + at, rest < cut ? rest : cut), LS_OK);
        }
        assert_int_equal(lsi_sha256_update(hash, NULL, 0), LS_OK);
        assert_int_equal(lsi_sha256_final(hash, digest), LS_OK);
        lsi_sha256_hex(digest, hex);
        assert_string_equal(hex, cases[3].hex);
    }

    char thousand[1000];
    memset(thousand, 'a', sizeof thousand);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(lsi_sha256_update(hash, thousand, sizeof thousand), LS_OK);
    assert_int_equal(lsi_sha256_final(hash, digest), LS_OK);
    lsi_sha256_hex(digest, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    lsi_sha256_destroy(hash);
    lsi_sha256_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
