/* A store that is not ours outlives runs: what one with the same key has left there.
 *
 * Its hosts are gone with their leases; numbers, generations and the end of the run are still
 * there, and would be taken for those of the next. So the first host removes them before it sits
 * down, and the others come when it has: when there is a host.
 */
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "launch/seat.h"

#define MORE_S 0.05 /* after the keys that are there: none follows */
#define AGAIN_MS 200

/* How many hosts are there; `remove`: and remove all that is not one. */
static ls_status survey(lsi_council *c, int remove, int *hosts)
{
    lsi_store *store;
    lsi_store_event e;
    *hosts = 0;
    LSI_TRY(lsi_store_open(c->config->store, &c->key, LSI_COUNCIL_CALL_S, &store));
    ls_status status = store->ops->watch(store, "");
    while (status == LS_OK && (status = store->ops->next(store, MORE_S, &e)) == LS_OK) {
        const int is_host = strncmp(e.key, "host/", 5) == 0;
        if (e.deleted)
            continue;
        *hosts += is_host;
        if (!is_host && remove)
            status = store->ops->remove(store, e.key);
        if (status == LS_ERR_NOT_FOUND)
            status = LS_OK;
    }
    lsi_store_close(store);
    return status == LS_IN_PROGRESS ? LS_OK : status;
}

ls_status lsi_council_clear(lsi_council *c, double lease_s)
{
    int hosts;
    int said = 0;
    for (const double until = lsi_now() + lease_s + 2 * LSI_COUNCIL_CALL_S;;) {
        LSI_TRY(survey(c, 0, &hosts));
        if (!hosts)
            return survey(c, 1, &hosts);
        if (lsi_now() > until)
            return lsi_fail(LS_ERR_CONFLICT, "join it, or use another --key-file", "--store",
                            "a run with this key goes on there");
        if (!said++)
            lsi_log(LSI_LOG_WARN, "a run with this key has hosts there; waiting for their end");
        (void)poll(NULL, 0, AGAIN_MS);
    }
}

ls_status lsi_council_find_hosts(lsi_council *c)
{
    int hosts;
    LSI_TRY(survey(c, 0, &hosts));
    return hosts ? LS_OK
                 : lsi_fail(LS_ERR_NOT_FOUND, NULL, "cannot join", "no run meets there yet");
}
