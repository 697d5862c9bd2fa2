/* Hosts in network namespaces: one each, joined by a bridge in a namespace of its own.
 *
 * 1. A host's link is a pair of devices: eth0 in its namespace, p0, p1, … at the bridge. They are
 *    veths, made slow by netem; or our own (chaos_wire.h) where a link shall be slow and the kernel
 *    has no netem. A link that is cut is down at the bridge: no packet passes, and nobody is told.
 * 2. Everything is made by iproute2, started without a shell, and goes with the namespaces.
 * 3. With --store the bridge has a link to where we are, for a store that listens here: the host of
 *    its URL is replaced by our address there.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "cli/chaos.h"

#define WORDS 24
#define NAME 32
#define WIRE_MTU "16000" /* our thread pays for each frame */
#define HOME 254         /* our own address on the bridge, when there is a link */

extern char **environ;

/* An address of the subnet, which is the process's own, so that links to where we are do not meet;
 * `after` follows it. */
static void print_address(const lsi_chaos *c, int number, const char *after,
                          char text[LSI_ADDR_MAX])
{
    snprintf(text, LSI_ADDR_MAX, "10.%d.%d.%d%s", 64 + (int)(c->pid % 128),
             (int)(c->pid / 128 % 256), number, after);
}

static void name_of(const lsi_chaos *c, int host, char name[NAME])
{
    if (host < 0)
        snprintf(name, NAME, "lc%ldsw", (long)c->pid);
    else
        snprintf(name, NAME, "lc%ldh%d", (long)c->pid, host);
}

/* Run a program of iproute2 with these words, up to NULL; its exit status. */
static int tool(const lsi_chaos *c, const char *program, ...)
{
    char *argv[WORDS + 2], text[WORDS][64];
    int n = 0, status = 0;
    pid_t pid;
    va_list args;
    posix_spawn_file_actions_t files;
    snprintf(text[0], sizeof text[0], "%s", program);
    argv[0] = text[0];
    va_start(args, program);
    for (const char *word; n + 1 < WORDS && (word = va_arg(args, const char *));) {
        snprintf(text[++n], sizeof text[0], "%s", word);
        argv[n] = text[n];
    }
    va_end(args);
    argv[n + 1] = NULL;
    if (posix_spawn_file_actions_init(&files) != 0)
        return 127;
    for (int fd = 0; fd < 3 && !c->o.log; fd++)
        posix_spawn_file_actions_adddup2(&files, c->null_fd, fd);
    const int failed = posix_spawnp(&pid, program, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    if (failed)
        return 127;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 127;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void lsi_chaos_net_address(const lsi_chaos *c, int host, char address[LSI_ADDR_MAX])
{
    if (c->has_net)
        print_address(c, host + 1, ":0", address);
    else
        snprintf(address, LSI_ADDR_MAX, "127.0.0.1:0");
}

/* ---- making --------------------------------------------------------------------------------- */

/* eth0 of the host's namespace and a port in that of the bridge, by our own thread. */
static int add_wire(lsi_chaos *c, int host, const char *name, const char *port, const char *sw)
{
    char ends[2][NAME];
    for (int i = 0; i < 2; i++)
        snprintf(ends[i], sizeof ends[i], "lc%ld%c%d", (long)c->pid, 'a' + i, host);
    return lsi_wires_add(c->wires, ends[0], ends[1]) < 0 ||
           tool(c, "ip", "link", "set", ends[0], "mtu", WIRE_MTU, "netns", name, "name", "eth0",
                NULL) ||
           tool(c, "ip", "link", "set", ends[1], "mtu", WIRE_MTU, "netns", sw, "name", port, NULL);
}

static int add_host(lsi_chaos *c, int host, const char *sw)
{
    char name[NAME], port[NAME], address[LSI_ADDR_MAX];
    name_of(c, host, name);
    snprintf(port, sizeof port, "p%d", host);
    print_address(c, host + 1, "/24", address);
    return tool(c, "ip", "netns", "add", name, NULL) ||
           (c->wires ? add_wire(c, host, name, port, sw)
                     : tool(c, "ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer",
                            "name", port, "netns", sw, NULL)) ||
           tool(c, "ip", "-n", sw, "link", "set", port, "master", "bridge", "up", NULL) ||
           tool(c, "ip", "-n", name, "addr", "add", address, "dev", "eth0", NULL) ||
           tool(c, "ip", "-n", name, "link", "set", "eth0", "up", NULL) ||
           tool(c, "ip", "-n", name, "link", "set", "lo", "up", NULL);
}

static int add_home(lsi_chaos *c, const char *sw)
{
    char port[NAME], address[LSI_ADDR_MAX];
    snprintf(port, sizeof port, "lc%ld", (long)c->pid);
    print_address(c, HOME, "/24", address);
    return tool(c, "ip", "link", "add", port, "type", "veth", "peer", "name", "home", "netns", sw,
                NULL) ||
           tool(c, "ip", "-n", sw, "link", "set", "home", "master", "bridge", "up", NULL) ||
           tool(c, "ip", "addr", "add", address, "dev", port, NULL) ||
           tool(c, "ip", "link", "set", port, "up", NULL);
}

/* "etcd://127.0.0.1:2379" as the hosts reach it. */
static void move_store(lsi_chaos *c)
{
    static char url[256];
    char home[LSI_ADDR_MAX];
    const char *host = strstr(c->o.store, "://"), *port = host ? strchr(host + 3, ':') : NULL;
    if (!port)
        return;
    print_address(c, HOME, port, home);
    snprintf(url, sizeof url, "%.*s://%s", (int)(host - c->o.store), c->o.store, home);
    c->o.store = url;
}

/* Shall links be slow, and the kernel has no netem but TAP devices? It is asked at the bridge. */
static int needs_wires(lsi_chaos *c, const char *sw)
{
    if (!(c->o.kinds & 1u << LSI_CHAOS_DELAY))
        return 0;
    if (tool(c, "tc", "-n", sw, "qdisc", "add", "dev", "bridge", "root", "netem", NULL) != 0)
        return access("/dev/net/tun", R_OK | W_OK) == 0;
    (void)tool(c, "tc", "-n", sw, "qdisc", "del", "dev", "bridge", "root", NULL);
    return 0;
}

ls_status lsi_chaos_net_open(lsi_chaos *c, int hosts)
{
    char sw[NAME];
    name_of(c, -1, sw);
    c->has_net = 1;
    int failed = tool(c, "ip", "netns", "add", sw, NULL) ||
                 tool(c, "ip", "-n", sw, "link", "add", "bridge", "type", "bridge", NULL) ||
                 tool(c, "ip", "-n", sw, "link", "set", "bridge", "up", NULL);
    if (!failed && needs_wires(c, sw))
        LSI_TRY(lsi_wires_open(hosts, &c->wires));
    for (int h = 0; !failed && h < hosts; h++)
        failed = add_host(c, h, sw);
    if (!failed && c->o.store) {
        failed = add_home(c, sw);
        move_store(c);
    }
    if (failed)
        return lsi_fail(LS_ERR_SYSTEM, "it takes root and iproute2", "--netns",
                        "cannot make network namespaces");
    return LS_OK;
}

void lsi_chaos_net_close(lsi_chaos *c)
{
    char name[NAME], path[64];
    struct stat info;
    if (!c->has_net)
        return;
    lsi_wires_close(c->wires);
    c->wires = NULL;
    for (int h = -1; h < c->plan.hosts; h++) {
        name_of(c, h, name);
        (void)tool(c, "ip", "netns", "del", name, NULL);
        snprintf(path, sizeof path, "/run/netns/%s", name);
        if (stat(path, &info) == 0)
            lsi_chaos_fail(c, "left behind: the network namespace %s", name);
    }
    c->has_net = 0;
}

/* ---- using ---------------------------------------------------------------------------------- */

int lsi_chaos_net_enter(const lsi_chaos *c, int host)
{
    char name[NAME], path[64];
    name_of(c, host, name);
    snprintf(path, sizeof path, "/run/netns/%s", name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const int status = fd >= 0 ? setns(fd, CLONE_NEWNET) : -1;
    if (fd >= 0)
        close(fd);
    return status;
}

int lsi_chaos_net_cut(lsi_chaos *c, int host, int cut)
{
    char sw[NAME], port[NAME];
    name_of(c, -1, sw);
    snprintf(port, sizeof port, "p%d", host);
    return tool(c, "ip", "-n", sw, "link", "set", port, cut ? "down" : "up", NULL);
}

/* A long way to the host: the longer, the longer it lasts. */
int lsi_chaos_net_slow(lsi_chaos *c, int host, double seconds)
{
    char sw[NAME], port[NAME], delay[NAME];
    const int ms = lsi_chaos_delay_ms(seconds);
    name_of(c, -1, sw);
    snprintf(port, sizeof port, "p%d", host);
    snprintf(delay, sizeof delay, "%dms", ms);
    if (c->wires)
        lsi_wires_delay(c->wires, host, ms * 1e-3);
    else if (ms)
        return tool(c, "tc", "-n", sw, "qdisc", "add", "dev", port, "root", "netem", "delay", delay,
                    NULL);
    else
        return tool(c, "tc", "-n", sw, "qdisc", "del", "dev", port, "root", NULL);
    return 0;
}

int lsi_chaos_net_listeners(const lsi_chaos *c, int host)
{
    char line[512];
    int n = 0, state;
    const int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0 || lsi_chaos_net_enter(c, host) != 0) {
        if (home >= 0)
            close(home);
        return 0;
    }
    FILE *file = fopen("/proc/thread-self/net/tcp", "re");
    while (file && fgets(line, sizeof line, file))
        n += sscanf(line, "%*d: %*s %*s %x", (unsigned *)&state) == 1 && state == 0x0A;
    if (file)
        fclose(file);
    if (setns(home, CLONE_NEWNET) != 0)
        n = -1;
    close(home);
    return n;
}
