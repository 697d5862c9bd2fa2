/* Frames on their way (chaos_wire.h).
 *
 * 1. Each direction is a queue: a frame leaves when it is due and all before it have left, so that
 *    a delay that ends lets nothing overtake.
 * 2. A queue holds QUEUE_BYTES, then frames are lost, as on a real line. A device that is down, or
 *    has gone with its namespace, loses its frames, too.
 * 3. The links are written by lsi_wires_add before their number is published; of what is published
 *    only `delay_ns` changes.
 */
#include "cli/chaos_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"

#define FRAME_BYTES ((size_t)1 << 16)
#define QUEUE_BYTES ((size_t)32 << 20)
#define BURST 64 /* frames of one device before the others have their turn */

typedef struct frame {
    struct frame *next;
    uint64_t due;
    size_t bytes;
    char data[];
} frame;

typedef struct way {
    int from, to;
    _Atomic uint64_t delay_ns;
    frame *first, *last;
    size_t held; /* bytes */
} way;

struct lsi_wires {
    pthread_t thread;
    int wake; /* an eventfd: there is one more, or it is over */
    atomic_int count, over;
    int most;
    struct pollfd *polled; /* [2 most + 1] */
    way ways[];            /* to the host, and from it, of each link */
};

static void drop_first(way *w)
{
    frame *f = w->first;
    w->first = f->next;
    w->held -= f->bytes;
    free(f);
}

/* Take what has come; without a delay and a queue it leaves at once. */
static void take(way *w, uint64_t now, char *buffer)
{
    const uint64_t delay = atomic_load(&w->delay_ns);
    for (int i = 0; i < BURST; i++) {
        const ssize_t n = read(w->from, buffer, FRAME_BYTES);
        if (n <= 0)
            return;
        if (!delay && !w->first) {
            (void)!write(w->to, buffer, (size_t)n);
            continue;
        }
        frame *f = w->held < QUEUE_BYTES ? malloc(sizeof *f + (size_t)n) : NULL;
        if (!f)
            continue;
        *f = (frame){.due = now + delay, .bytes = (size_t)n};
        memcpy(f->data, buffer, (size_t)n);
        if (w->first)
            w->last->next = f;
        else
            w->first = f;
        w->last = f;
        w->held += f->bytes;
    }
}

/* Send what is due; when the next is, or UINT64_MAX. */
static uint64_t give(way *w, uint64_t now)
{
    while (w->first && w->first->due <= now) {
        (void)!write(w->to, w->first->data, w->first->bytes);
        drop_first(w);
    }
    return w->first ? w->first->due : UINT64_MAX;
}

static void *carry(void *arg)
{
    lsi_wires *wires = arg;
    static char buffer[FRAME_BYTES];
    while (!atomic_load(&wires->over)) {
        const int ways = 2 * atomic_load(&wires->count);
        uint64_t next = UINT64_MAX;
        for (int i = 0; i < ways; i++) {
            const uint64_t due = give(&wires->ways[i], lsi_now_ns());
            next = due < next ? due : next;
            wires->polled[i] = (struct pollfd){.fd = wires->ways[i].from, .events = POLLIN};
        }
        wires->polled[ways] = (struct pollfd){.fd = wires->wake, .events = POLLIN};
        const uint64_t now = lsi_now_ns(), wait = next > now ? next - now : 0;
        const struct timespec until = {(time_t)(wait / 1000000000u), (long)(wait % 1000000000u)};
        if (ppoll(wires->polled, (nfds_t)ways + 1, next == UINT64_MAX ? NULL : &until, NULL) < 0)
            continue;
        for (int i = 0; i < ways; i++)
            if (wires->polled[i].revents & POLLIN)
                take(&wires->ways[i], lsi_now_ns(), buffer);
        uint64_t told;
        if (wires->polled[ways].revents)
            (void)!read(wires->wake, &told, sizeof told);
    }
    return NULL;
}

static void wake(lsi_wires *wires)
{
    const uint64_t one = 1;
    (void)!write(wires->wake, &one, sizeof one);
}

ls_status lsi_wires_open(int most, lsi_wires **out)
{
    lsi_wires *wires = calloc(1, sizeof *wires + 2 * (size_t)most * sizeof *wires->ways);
    struct pollfd *polled = calloc(2 * (size_t)most + 1, sizeof *polled);
    const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = !wires || !polled ? ENOMEM : event < 0 ? errno : 0;
    if (!error) {
        wires->most = most;
        wires->polled = polled;
        wires->wake = event;
        error = lsi_thread_start(&wires->thread, carry, wires);
    }
    if (!error) {
        *out = wires;
        return LS_OK;
    }
    if (event >= 0)
        close(event);
    free(polled);
    free(wires);
    return lsi_fail(LS_ERR_SYSTEM, NULL, "--netns", "links: %s", strerror(error));
}

void lsi_wires_close(lsi_wires *wires)
{
    if (!wires)
        return;
    atomic_store(&wires->over, 1);
    wake(wires);
    pthread_join(wires->thread, NULL);
    for (int i = 0; i < 2 * atomic_load(&wires->count); i++) {
        while (wires->ways[i].first)
            drop_first(&wires->ways[i]);
        close(wires->ways[i].from);
    }
    close(wires->wake);
    free(wires->polled);
    free(wires);
}

static int open_tap(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0)
        return fd;
    const int error = errno;
    if (fd >= 0)
        close(fd);
    (void)lsi_fail(LS_ERR_SYSTEM, "it takes root and /dev/net/tun", "--netns", "link %s: %s", name,
                   strerror(error));
    return -1;
}

int lsi_wires_add(lsi_wires *wires, const char *at_host, const char *at_bridge)
{
    const int number = atomic_load(&wires->count);
    if (number == wires->most) {
        (void)lsi_fail(LS_ERR_INVALID, NULL, "--netns", "no more than %d links", wires->most);
        return -1;
    }
    const int host = open_tap(at_host), bridge = host < 0 ? -1 : open_tap(at_bridge);
    if (bridge < 0) {
        if (host >= 0)
            close(host);
        return -1;
    }
    way *to = &wires->ways[2 * number], *from = to + 1;
    to->from = from->to = bridge;
    to->to = from->from = host;
    atomic_store(&wires->count, number + 1);
    wake(wires);
    return number;
}

void lsi_wires_delay(lsi_wires *wires, int number, double seconds)
{
    atomic_store(&wires->ways[2 * number].delay_ns, (uint64_t)(seconds * 1e9));
}
