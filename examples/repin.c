/* Follows pinfold when it moves this program. cc -o repin examples/repin.c && pinfold run --cpus 2 -- ./repin */
#define _GNU_SOURCE
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

static void read_file(const char *directory, const char *name, char *text, int size) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(text, size, file)) text[0] = 0;
    if (file) fclose(file);
}

static void pin(char *list) { /* a list such as 2-3,10 */
    cpu_set_t set;
    CPU_ZERO(&set);
    while (*list >= '0' && *list <= '9') {
        long first = strtol(list, &list, 10), last = *list == '-' ? strtol(list + 1, &list, 10) : first;
        for (; first <= last; first++) CPU_SET(first, &set);
        if (*list == ',') list++;
    }
    if (sched_setaffinity(0, sizeof set, &set)) perror("sched_setaffinity");
}

int main(void) {
    char *directory = getenv("PINFOLD_STATE_DIR"), text[4096], events[4096], path[PATH_MAX];
    int watch = inotify_init1(IN_CLOEXEC), generation;
    if (!directory || inotify_add_watch(watch, directory, IN_MOVED_TO) < 0) return perror("PINFOLD_STATE_DIR"), 1;
    snprintf(path, sizeof path, "%s/ack", directory);
    do {
        read_file(directory, "cpus", text, sizeof text);
        pin(text), printf("on CPUs %s", text), fflush(stdout);
        read_file(directory, "next", text, sizeof text);
        FILE *ack = sscanf(text, "%d", &generation) == 1 ? fopen(path, "w") : NULL; /* ready for any change */
        if (ack) fprintf(ack, "%d\n", generation), fclose(ack);
    } while (read(watch, events, sizeof events) > 0);
}
