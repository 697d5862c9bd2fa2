/* What kernels make of weights (panels for products), kept while the weights stay as they are.
 *
 * A step is often several runs of a graph: shard after shard, or parts of a shard. Then a weight
 * is packed once a step instead of once a run.
 *
 * 1. It is the caller of a run who says that weights are those of the run before; nothing is kept
 *    until somebody has said so, for it takes as much memory again as the weights.
 * 2. Kept or not, the bits are the same: what is kept is a copy in another order.
 * 3. Where memory is short, or the bound is reached, a weight is not kept; that is no error.
 */
#include <stdlib.h>

#include "device/device.h"

#define WEIGHTS_MAX 256
#define BYTES_MAX ((size_t)64 << 20)

typedef struct kept {
    const void *of;
    lsi_kept kind;
    size_t bytes;
    void *room;
    int ready; /* made of the weights as they are now */
} kept;

struct lsi_keeper {
    int count;
    int next; /* runs ask in the same order, again and again */
    size_t bytes;
    kept all[WEIGHTS_MAX];
};

void lsi_device_weights(lsi_device *device, int same)
{
    lsi_keeper *k = device->keeper;
    if (same && !k)
        k = device->keeper = calloc(1, sizeof *k);
    for (int i = 0; !same && k && i < k->count; i++)
        k->all[i].ready = 0;
}

static kept *find(lsi_keeper *k, const void *of, lsi_kept kind, size_t bytes)
{
    for (int i = 0; i < k->count; i++) {
        const int at = (k->next + i) % k->count;
        kept *one = &k->all[at];
        if (one->of == of && one->kind == kind && one->bytes == bytes) {
            k->next = at + 1;
            return one;
        }
    }
    return NULL;
}

static kept *add(lsi_device *device, const void *of, lsi_kept kind, size_t bytes)
{
    lsi_keeper *k = device->keeper;
    void *room;
    if (k->count == WEIGHTS_MAX || bytes > BYTES_MAX - k->bytes ||
        device->ops->alloc(bytes, &room) != LS_OK)
        return NULL;
    k->bytes += bytes;
    k->all[k->count] = (kept){of, kind, bytes, room, 0};
    return &k->all[k->count++];
}

int lsi_device_keep(lsi_device *device, const void *of, lsi_kept kind, size_t bytes, void **room)
{
    *room = NULL;
    if (!device->keeper || bytes == 0)
        return 0;
    kept *one = find(device->keeper, of, kind, bytes);
    if (!one)
        one = add(device, of, kind, bytes);
    if (!one)
        return 0;
    const int ready = one->ready;
    one->ready = 1;
    *room = one->room;
    return ready;
}

void lsi_device_forget(lsi_device *device)
{
    lsi_keeper *k = device->keeper;
    for (int i = 0; k && i < k->count; i++)
        device->ops->free(k->all[i].room);
    free(k);
    device->keeper = NULL;
}
