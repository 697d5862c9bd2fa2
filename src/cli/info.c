/* lockstep info: what this build offers, what of it works on this machine, and how it is set.
 *
 * Everything is gathered as one JSON object, and the text is printed from that: both say the same.
 *
 * Invariants:
 * 1. "usable" is tried where it can be tried: a segment is made, a socket listens, a process reads
 *    another one's memory. What is not built is listed with that reason.
 * 2. Nothing is left behind: no process, no file.
 */
#include <errno.h>
#include <getopt.h>
#include <ifaddrs.h>
#include <jansson.h>
#include <net/if.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/env.h"
#include "base/host.h"
#include "base/net.h"
#include "base/status.h"
#include "cli/cli.h"
#include "coll/comm.h"
#include "coll/reduce.h"
#include "coll/select.h"
#include "device/kernels.h"
#include "nn/model.h"
#include "store/store.h"
#include "transport/fault.h"
#include <lockstep/data.h>
#include <lockstep/optim.h>
#include <lockstep/version.h>

/* Of a processor that the tests have seen under emulation only. */
#if defined(__aarch64__)
#define HOW_TRIED "; run under emulation only so far, never on hardware"
#else
#define HOW_TRIED ""
#endif

static const char help[] =
    "usage: lockstep info [-n N] [--json]\n"
    "\n"
    "Shows the machine, which transports, stores, providers, devices and algorithms there are and\n"
    "whether they can be used here, which algorithm serves which size, what can be trained on "
    "what\n"
    "and how, and the environment variables that the library reads.\n"
    "\n"
    "  -n, --ranks N  the selection of algorithms in a group of N, 1 to 256 (the cores that are\n"
    "                 online, at least 2)\n"
    "      --json     one JSON object instead of text\n"
    "\n"
    "Exit status: 0; 2 for wrong usage, and when a variable makes no sense.\n"
    "\n"
    "example: LOCKSTEP_ALLREDUCE=0-4k:tree,4k-inf:ring lockstep info -n 8\n";

static const struct option long_options[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* tests/test_info.py compares these with the sources. */
static const struct {
    const char *name, *standard, *meaning;
} variables[] = {
    {"LOCKSTEP_TRANSPORT", "auto", "auto, shm or tcp: forces a transport, inside a host too"},
    {"LOCKSTEP_TIMEOUT", "30", "seconds until a blocking call gives up"},
    {"LOCKSTEP_WARN_AFTER", "3", "seconds until a word on stderr about whom we wait for"},
    {"LOCKSTEP_ALLREDUCE", "auto", "algorithms by size: hd, or 0-4k:tree,4k-inf:ring"},
    {"LOCKSTEP_REDUCE", "auto", "the same for reduce"},
    {"LOCKSTEP_REDUCE_SCATTER", "auto", "the same for reduce_scatter"},
    {"LOCKSTEP_ALLGATHER", "auto", "the same for allgather and allgatherv"},
    {"LOCKSTEP_BROADCAST", "auto", "the same for broadcast"},
    {"LOCKSTEP_SPIN", "by cores", "looks before a waiting rank lets others run"},
    {"LOCKSTEP_TCP_SOCKETS", "2", "connections between two ranks, 1 to 16"},
    {"LOCKSTEP_CHECKSUM", "0", "1: verify the payload of every message"},
    {"LOCKSTEP_CMA", "1", "0: do not read the memory of other ranks"},
    {"LOCKSTEP_ISA", "the widest", "of a device's kernels: plain; avx2, avx512; neon"},
    {"LOCKSTEP_HEAP", "all memory", "shared memory for ls_alloc, bytes a rank (sparse): 4G"},
    {"LOCKSTEP_LOG", "warn", "error, warn, info or debug: words on stderr"},
    {"LOCKSTEP_FAULT", "none", "faults to inject, for tests: '0>1 drop=3; *>2 delay=5:200'"},
    {"LOCKSTEP_BOOT_FD", "none", "set by the launcher for its ranks: who they are"},
    {"LOCKSTEP_GATE_FD", "none", "set by `lockstep train` for its workers: where they wait"},
};

ls_status lsi_cli_check_environment(const char *transport)
{
    ls_config config = LS_CONFIG_INIT;
    lsi_selection selection;
    double timeout, warn;
    config.transport = transport;
    LSI_TRY(lsi_world_settings(&config, &timeout, &warn, &transport));
    LSI_TRY(lsi_fault_check(getenv("LOCKSTEP_FAULT")));
    lsi_select_defaults(&selection, 2, LSI_REACH_BOARD);
    return lsi_select_environment(&selection);
}

int lsi_cli_usual_ranks(void)
{
    int cores = lsi_cores_usable();
    return cores < 2 ? 2 : cores > LSI_MAX_RANKS ? LSI_MAX_RANKS : cores;
}

/* What follows "NAME:" in a file of /proc; "" if there is no such line. */
static const char *find_line(const char *path, const char *name, char *text, size_t bytes)
{
    char line[256];
    size_t length = strlen(name);
    FILE *file = fopen(path, "re");
    text[0] = 0;
    while (file && !text[0] && fgets(line, sizeof line, file)) {
        const char *rest = line + length + strspn(line + length, " \t");
        if (strncmp(line, name, length) == 0 && *rest == ':')
            snprintf(text, bytes, "%.*s", (int)strcspn(rest + 1, "\n"), rest + 1);
    }
    if (file)
        fclose(file);
    return text + strspn(text, " \t");
}

size_t lsi_cli_memory(const char *name)
{
    char text[64];
    return strtoull(find_line("/proc/meminfo", name, text, sizeof text), NULL, 10) * 1024;
}

const char *lsi_cli_processor(char *text, size_t bytes)
{
    struct utsname system;
    char line[256];
    const char *model = find_line("/proc/cpuinfo", "model name", line, sizeof line);
    if (!*model && uname(&system) == 0)
        model = system.machine;
    snprintf(text, bytes, "%s", model);
    return text;
}

static json_t *item(const char *name, int usable, const char *why)
{
    return json_pack("{s:s, s:b, s:s}", "name", name, "usable", usable, "why", why);
}

static json_t *machine(void)
{
    char processor[128];
    struct utsname system = {0};
    json_t *levels = json_array();
    int n = lsi_reduce_levels();
    for (int i = 0; i < n; i++)
        json_array_append_new(levels, json_string(lsi_reduce_level_name(i)));
    uname(&system);
    return json_pack("{s:s, s:s+++, s:s, s:i, s:i, s:I, s:I, s:{s:s, s:o}}", "host",
                     system.nodename, "system", system.sysname, " ", system.release, "",
                     "processor", lsi_cli_processor(processor, sizeof processor), "cores",
                     (int)sysconf(_SC_NPROCESSORS_ONLN), "cores_usable", lsi_cores_usable(),
                     "memory_bytes", (json_int_t)lsi_cli_memory("MemTotal"),
                     "memory_available_bytes", (json_int_t)lsi_cli_memory("MemAvailable"),
                     "kernels", "in_use", lsi_reduce_level_name(n - 1), "usable", levels);
}

/* As a rank does it: the reader is no parent of the other, but a descendant of the one that the
 * other lets in. Returns 0, or errno. */
static int read_a_sibling(void)
{
    static const uint64_t magic = 0x6c6f636b73746570u;
    int ready[2], wait_status = 0;
    char byte = 0;
    pid_t launcher = getpid();
    if (pipe(ready) != 0)
        return errno;
    pid_t target = fork();
    if (target == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_PTRACER, (unsigned long)launcher, 0, 0, 0);
        (void)!write(ready[1], &byte, 1);
        for (;;)
            pause();
    }
    (void)!read(ready[0], &byte, 1);
    pid_t reader = target > 0 ? fork() : -1;
    if (reader == 0) {
        uint64_t seen = 0;
        struct iovec here = {&seen, sizeof seen}, there = {(void *)(uintptr_t)&magic, sizeof seen};
        ssize_t got = process_vm_readv(target, &here, 1, &there, 1, 0);
        _exit(got == (ssize_t)sizeof seen && seen == magic ? 0 : got < 0 ? errno : EIO);
    }
    int failed = reader < 0 ? errno : 0;
    if (reader > 0 && waitpid(reader, &wait_status, 0) == reader)
        failed = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : EIO;
    if (target > 0) {
        kill(target, SIGKILL);
        waitpid(target, NULL, 0);
    }
    close(ready[0]);
    close(ready[1]);
    return failed;
}

static ls_status peer_memory(json_t **out)
{
    char why[160] = "process_vm_readv works";
    long allowed = 1;
    LSI_TRY(lsi_env_int("LOCKSTEP_CMA", 0, 1, &allowed));
    int failed = read_a_sibling();
    if (!allowed)
        snprintf(why, sizeof why, "switched off by LOCKSTEP_CMA=0");
    else if (failed)
        snprintf(why, sizeof why, "process_vm_readv: %s; private buffers are copied once more",
                 strerror(failed));
    *out = item("read_peers", allowed && !failed, why);
    return LS_OK;
}

/* Makes the segment that a launcher of `ranks` would make. */
static ls_status shared_memory(int ranks, json_t **out)
{
    lsi_host host;
    json_t *reading = NULL, *segment;
    json_int_t heap = 0;
    ls_status status = lsi_host_create(ranks, 0, ranks, &host);
    if (status == LS_ERR_CONFIG)
        return status; /* LOCKSTEP_HEAP */
    if (status == LS_OK) {
        heap = (json_int_t)host.block->heap_bytes;
        lsi_host_unmap(&host);
    }
    segment = item("segment", status == LS_OK,
                   status == LS_OK ? "memfd, inherited by the ranks; has no name to leave behind"
                                   : ls_last_error());
    status = peer_memory(&reading);
    if (status != LS_OK) {
        json_decref(segment);
        return status;
    }
    *out =
        json_pack("{s:o, s:I, s:o}", "segment", segment, "heap_bytes", heap, "read_peers", reading);
    return LS_OK;
}

static json_t *transports(const json_t *shared)
{
    char address[LSI_ADDR_MAX];
    int fd = -1;
    const json_t *segment = json_object_get(shared, "segment");
    int has_segment = json_is_true(json_object_get(segment, "usable"));
    const char *shm = has_segment ? "between ranks of one host"
                                  : json_string_value(json_object_get(segment, "why"));
    json_t *list = json_array();
    json_array_append_new(list, item("shm", has_segment, shm));
    int listens = lsi_net_listen(NULL, 0, &fd, address) == LS_OK;
    if (listens)
        close(fd);
    const char *tcp = !listens       ? ls_last_error()
                      : !has_segment ? "needs the segment, too: ls_alloc and deaths are there"
                                     : "between hosts, and on one when forced";
    json_array_append_new(list, item("tcp", listens && has_segment, tcp));
    json_array_append_new(list, item("ucx", 0, "not built"));
    return list;
}

static json_t *interfaces(void)
{
    struct ifaddrs *all = NULL;
    json_t *list = json_object();
    if (getifaddrs(&all) != 0)
        return list;
    for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
        char text[NI_MAXHOST];
        int family = a->ifa_addr ? a->ifa_addr->sa_family : AF_UNSPEC;
        socklen_t bytes =
            family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (!(a->ifa_flags & IFF_UP) || (family != AF_INET && family != AF_INET6) ||
            getnameinfo(a->ifa_addr, bytes, text, sizeof text, NULL, 0, NI_NUMERICHOST) != 0)
            continue;
        if (!json_object_get(list, a->ifa_name))
            json_object_set_new(list, a->ifa_name, json_array());
        json_array_append_new(json_object_get(list, a->ifa_name), json_string(text));
    }
    freeifaddrs(all);
    return list;
}

static json_t *stores(void)
{
    json_t *list = json_array();
    static const struct {
        const char *name, *what;
    } known[] = {{"tcp", "embedded in the launcher"}, {"etcd", "an etcd that runs already"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *why = lsi_store_why_unusable(known[i].name);
        json_array_append_new(list, item(known[i].name, !why, why ? why : known[i].what));
    }
    return list;
}

static json_t *providers(void)
{
    return json_pack("[o, o, o]", item("native", 1, "the algorithms below"),
                     item("mpi", 0, "not built"), item("nccl", 0, "not built"));
}

static json_t *devices(void)
{
    json_t *list = json_array();
    const lsi_device_ops *device;
    for (int i = 0; (device = lsi_device_known(i)); i++) {
        char why[160];
        const char *not_usable = device->why_unusable();
        if (not_usable)
            snprintf(why, sizeof why, "%s", not_usable);
        else if (strcmp(device->name, "cpu") == 0)
            snprintf(why, sizeof why, "kernels for %s" HOW_TRIED, device->kernels()->isa);
        else
            snprintf(why, sizeof why, "plain loops, to compare the others with");
        json_array_append_new(list, item(device->name, !not_usable, why));
    }
    json_array_append_new(list, item("opencl", 0, "not built"));
    json_array_append_new(list, item("cuda", 0, "not built"));
    return list;
}

/* What a group of `ranks` would use: on this host as things are set, and over several hosts. */
static ls_status collectives(int ranks, json_t **out)
{
    double timeout, warn;
    const char *transport;
    lsi_selection here, hosts;
    LSI_TRY(lsi_world_settings(NULL, &timeout, &warn, &transport));
    lsi_select_defaults(&here, ranks,
                        ranks > 1 && strcmp(transport, "tcp") != 0 ? LSI_REACH_BOARD
                                                                   : LSI_REACH_HOST);
    lsi_select_defaults(&hosts, ranks, LSI_REACH_HOSTS);
    LSI_TRY(lsi_select_environment(&here));
    LSI_TRY(lsi_select_environment(&hosts));
    json_t *list = json_array();
    for (int c = 0; c < LSI_COLL_COUNT; c++) {
        char one[512], many[512];
        json_t *offered = json_array();
        for (int a = 0; a < LSI_ALGORITHM_COUNT; a++) {
            if (lsi_select_offers((lsi_coll)c, (lsi_algorithm)a))
                json_array_append_new(offered, json_string(lsi_algorithm_names[a]));
        }
        lsi_select_print(&here, (lsi_coll)c, one, sizeof one);
        lsi_select_print(&hosts, (lsi_coll)c, many, sizeof many);
        json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:s}", "name", lsi_coll_names[c],
                                              "algorithms", offered, "selection", one,
                                              "selection_hosts", many));
    }
    *out = list;
    return LS_OK;
}

/* Models with presets and settings. */
static json_t *models(void)
{
    json_t *list = json_array();
    const lsi_model_kind *kind;
    for (int i = 0; (kind = lsi_model_known(i)); i++) {
        json_t *presets = json_array(), *settings = json_array();
        for (int p = 0; p < kind->preset_count; p++)
            json_array_append_new(presets, json_string(kind->presets[p].name));
        for (int s = 0; s < kind->setting_count; s++)
            json_array_append_new(settings, json_string(kind->settings[s].key));
        json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "name", kind->name, "presets",
                                              presets, "settings", settings));
    }
    return list;
}

/* What a registry lists. */
static json_t *names(const char *(*known)(int i))
{
    json_t *list = json_array();
    const char *name;
    for (int i = 0; (name = known(i)); i++)
        json_array_append_new(list, json_string(name));
    return list;
}

static json_t *environment(void)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s?, s:s, s:s}", "name", variables[i].name, "value",
                                        getenv(variables[i].name), "default", variables[i].standard,
                                        "meaning", variables[i].meaning));
    return list;
}

static ls_status gather(int ranks, json_t **out)
{
    json_t *shared = NULL, *choice = NULL;
    LSI_TRY(lsi_cli_check_environment(NULL));
    LSI_TRY(lsi_isa_check());
    LSI_TRY(shared_memory(ranks, &shared));
    ls_status status = collectives(ranks, &choice);
    if (status != LS_OK) {
        json_decref(shared);
        return status;
    }
    json_t *info =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o}",
                  "version", ls_version(), "machine", machine(), "shared_memory", shared,
                  "transports", transports(shared), "interfaces", interfaces(), "stores", stores(),
                  "providers", providers(), "devices", devices(), "ranks", ranks, "collectives",
                  choice, "models", models(), "data", names(ls_data_kind), "optimizers",
                  names(ls_optimizer_known), "schedules", names(ls_schedule_known), "environment",
                  environment());
    if (!info) /* a name that is no UTF-8, or no memory */
        return lsi_fail(LS_ERR_SYSTEM, "are all LOCKSTEP_ variables UTF-8?", "info",
                        "cannot make the JSON object");
    *out = info;
    return LS_OK;
}

/* The text, printed from the object. */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double gib(const json_t *object, const char *key)
{
    return (double)json_integer_value(json_object_get(object, key)) / (1 << 30);
}

static const char *join(const json_t *words, char *text, size_t bytes)
{
    size_t i, used = 0;
    json_t *word;
    text[0] = 0;
    json_array_foreach(words, i, word)
    {
        if (used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "",
                                     json_string_value(word));
    }
    return text;
}

static void print_item(const json_t *entry, const char *name)
{
    printf("  %-15s %-4s %s\n", name, json_is_true(json_object_get(entry, "usable")) ? "yes" : "no",
           text_of(entry, "why"));
}

static void print_items(const char *title, const json_t *list)
{
    size_t i;
    json_t *entry;
    printf("\n%s\n", title);
    json_array_foreach(list, i, entry) print_item(entry, text_of(entry, "name"));
}

static void print_machine(const json_t *info)
{
    char words[128];
    const json_t *m = json_object_get(info, "machine"), *kernels = json_object_get(m, "kernels");
    const json_t *shared = json_object_get(info, "shared_memory");
    printf("lockstep %s\n\nmachine\n", text_of(info, "version"));
    printf("  %-15s %s, %s\n", "host", text_of(m, "host"), text_of(m, "system"));
    printf("  %-15s %s\n", "processor", text_of(m, "processor"));
    printf("  %-15s %lld online, %lld for this process\n", "cores",
           json_integer_value(json_object_get(m, "cores")),
           json_integer_value(json_object_get(m, "cores_usable")));
    printf("  %-15s %.1f GiB, %.1f GiB available\n", "memory", gib(m, "memory_bytes"),
           gib(m, "memory_available_bytes"));
    printf("  %-15s %s in use, of %s (the collectives' sums: the widest)\n", "kernels",
           text_of(kernels, "in_use"),
           join(json_object_get(kernels, "usable"), words, sizeof words));
    printf("\nshared memory\n");
    print_item(json_object_get(shared, "segment"), "segment");
    if (gib(shared, "heap_bytes") > 0)
        printf("  %-15s %.1f GiB a rank, taken as it is used\n", "heap", gib(shared, "heap_bytes"));
    print_item(json_object_get(shared, "read_peers"), "reading peers");
}

static void print_collectives(const json_t *info)
{
    size_t i;
    json_t *c;
    printf("\nalgorithms and their selection by size, %lld ranks\n",
           json_integer_value(json_object_get(info, "ranks")));
    printf("  %-15s %-22s %-22s %s\n", "", "offered", "one host", "several hosts");
    json_array_foreach(json_object_get(info, "collectives"), i, c)
    {
        char words[64];
        printf("  %-15s %-22s %-22s %s\n", text_of(c, "name"),
               join(json_object_get(c, "algorithms"), words, sizeof words), text_of(c, "selection"),
               text_of(c, "selection_hosts"));
    }
}

static void print_training(const json_t *info)
{
    static const char *const lists[] = {"data", "optimizers", "schedules"};
    size_t i;
    json_t *m;
    char words[256];
    printf("\nmodels, their presets and settings (--set model.KEY=VALUE)\n");
    json_array_foreach(json_object_get(info, "models"), i, m)
    {
        printf("  %-15s %s\n", text_of(m, "name"),
               join(json_object_get(m, "presets"), words, sizeof words));
        printf("  %-15s %s\n", "", join(json_object_get(m, "settings"), words, sizeof words));
    }
    printf("\ntraining\n");
    for (i = 0; i < sizeof lists / sizeof *lists; i++)
        printf("  %-15s %s\n", lists[i],
               join(json_object_get(info, lists[i]), words, sizeof words));
}

static void print_text(const json_t *info)
{
    size_t i;
    json_t *entry;
    const char *name;
    char words[512];
    print_machine(info);
    print_items("transports", json_object_get(info, "transports"));
    printf("\ninterfaces\n");
    json_object_foreach(json_object_get(info, "interfaces"), name, entry)
        printf("  %-15s %s\n", name, join(entry, words, sizeof words));
    print_items("stores", json_object_get(info, "stores"));
    print_items("providers of collectives", json_object_get(info, "providers"));
    print_items("devices", json_object_get(info, "devices"));
    print_collectives(info);
    print_training(info);
    printf("\nenvironment\n");
    json_array_foreach(json_object_get(info, "environment"), i, entry)
    {
        const json_t *value = json_object_get(entry, "value");
        snprintf(words, sizeof words, "(%s)", text_of(entry, "default"));
        printf("  %-24s %-13s %s\n", text_of(entry, "name"),
               json_is_string(value) ? json_string_value(value) : words, text_of(entry, "meaning"));
    }
    printf("In parentheses: not set, the default.\n");
}

int lsi_cli_info(int argc, char **argv)
{
    long ranks = lsi_cli_usual_ranks();
    int option, as_json = 0;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+:n:h", long_options, NULL)) != -1) {
        switch (option) {
        case 'h': fputs(help, stdout); return 0;
        case 'j': as_json = 1; break;
        case 'n':
            if (lsi_parse_int("-n", optarg, 1, LSI_MAX_RANKS, &ranks) != LS_OK)
                return lsi_cli_bad_value("info");
            break;
        default: return lsi_cli_bad_option("info", option, argv);
        }
    }
    if (optind < argc)
        return lsi_cli_usage("info", "what is '%.40s'? there are options only", argv[optind]);
    json_t *info = NULL;
    ls_status status = gather((int)ranks, &info);
    if (status == LS_ERR_CONFIG)
        return lsi_cli_bad_value("info");
    if (status != LS_OK)
        return lsi_cli_fail();
    if (as_json) {
        json_dumpf(info, stdout, 0);
        putchar('\n');
    } else {
        print_text(info);
    }
    json_decref(info);
    return 0;
}
