/* The papers: what the run is, in a form that config_ini.c reads; the first lines are ours.
 *
 *     # out FOLDER        where it is kept, or nothing
 *     # run ID            no other run has it
 *     # data FACTS        what must be found in its data (facts.h); missing until that is known
 *     [train] …           the configuration, every setting
 *
 * Launchers keep them, for workers that come later, once they have all of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "train/trainer.h"

#define RUN "# run "
#define DATA "# data "

ls_status lsi_papers_write(const lsi_trainer *t, char **text)
{
    char *config, facts[LSI_FACTS_TEXT] = "";
    LSI_TRY(lsi_train_config_print(&t->config, &config));
    if (t->known)
        lsi_facts_print(&t->facts, facts);
    const int n = asprintf(text, LSI_PAPERS_OUT "%s\n" RUN "%s\n%s%s%s%s", t->out ? t->out : "",
                           t->id, t->known ? DATA : "", facts, t->known ? "\n" : "", config);
    free(config);
    return n >= 0 ? LS_OK : lsi_fail(LS_ERR_NOMEM, NULL, "training", "out of memory");
}

/* What a line says after its first words, NULL when it has others; *next is the line after it. */
static const char *read_line(const char *text, const char *words, const char **next)
{
    const size_t length = strlen(words);
    *next = text + strcspn(text, "\n");
    *next += **next == '\n';
    return strncmp(text, words, length) == 0 ? text + length : NULL;
}

static ls_status make_no_sense(void)
{
    return lsi_fail(LS_ERR_PROTOCOL, NULL, "training", "the run's papers make no sense");
}

static ls_status take_out(lsi_trainer *t, const char *out)
{
    const size_t length = strcspn(out, "\n");
    if (!length)
        return LS_OK;
    free(t->out);
    t->out = strndup(out, length);
    return t->out ? LS_OK : lsi_fail(LS_ERR_NOMEM, NULL, "training", "out of memory");
}

ls_status lsi_papers_read(lsi_trainer *t, const char *text)
{
    const char *second, *third, *rest;
    const char *out = read_line(text, LSI_PAPERS_OUT, &second);
    const char *run = read_line(second, RUN, &third);
    const char *facts = read_line(third, DATA, &rest);
    lsi_facts found;
    if (!out || !run || (facts && !lsi_facts_parse(facts, &found)))
        return make_no_sense();
    LSI_TRY(lsi_train_config_init(&t->config, NULL));
    LSI_TRY(lsi_train_config_read_text(&t->config, "the run's configuration", text, strlen(text)));
    LSI_TRY(lsi_train_config_settle(&t->config));
    LSI_TRY(take_out(t, out));
    snprintf(t->id, sizeof t->id, "%.*s", (int)strcspn(run, "\n"), run);
    if (facts)
        t->facts = found;
    t->known = facts != NULL;
    t->configured = 1;
    return LS_OK;
}

ls_status lsi_papers_keep(lsi_trainer *t)
{
    char *text;
    if (!lsi_member_lasts(t->member) || t->member->kept[LSI_KEPT_PAPERS] >= 0)
        return LS_OK;
    LSI_TRY(lsi_papers_write(t, &text));
    const ls_status status = lsi_member_keep_papers(t->member, text);
    free(text);
    return status;
}
