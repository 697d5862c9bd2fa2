/* Do the ranks still do anything? The processor time of the launcher's descendants tells.
 *
 * A rank may be a script that starts the program, in a session of its own or not: all that descends
 * from us counts, except the guard, and whoever ends in between changes the sum as well as one who
 * works.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/run.h"

typedef struct process {
    pid_t pid, parent;
    uint64_t ticks;
} process;

/* Read /proc/PID/stat; 0 when it has ended. */
static int read_process(const char *pid, process *out)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%.16s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *rest = strrchr(text, ')'); /* after the name, which may hold anything */
    unsigned long user, system;
    if (!rest || sscanf(rest, ") %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &out->parent,
                        &user, &system) != 3)
        return 0;
    out->pid = (pid_t)strtol(pid, NULL, 10);
    out->ticks = (uint64_t)user + system;
    return 1;
}

/* All processes; *list is the caller's to free. */
static size_t read_all(process **list)
{
    size_t count = 0, room = 0;
    struct dirent *entry;
    DIR *proc = opendir("/proc");
    *list = NULL;
    while (proc && (entry = readdir(proc)) != NULL) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        if (count == room) {
            room = room ? 2 * room : 512;
            process *more = realloc(*list, room * sizeof **list);
            if (!more)
                break;
            *list = more;
        }
        count += (size_t)read_process(entry->d_name, &(*list)[count]);
    }
    if (proc)
        closedir(proc);
    return count;
}

uint64_t lsi_work_ticks(const lsi_run *run)
{
    process *list;
    size_t count = read_all(&list), ours = 0; /* list[0..ours) descend from us */
    uint64_t sum = 0;
    pid_t parent = getpid();
    for (size_t next = 0;; parent = list[next++].pid) {
        for (size_t i = ours; i < count; i++) {
            process p = list[i];
            if (p.parent != parent || p.pid == run->guard.pid)
                continue;
            list[i] = list[ours];
            list[ours++] = p;
            sum += p.ticks;
        }
        if (next == ours)
            break;
    }
    free(list);
    return sum;
}
