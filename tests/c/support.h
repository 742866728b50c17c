/* What the hosts of the tests share. Everything is checked: the first thing that is not as it should be ends the
 * program with a line that says what and where. Compiles as C99 and as C++17. */
#ifndef SUPPORT_H
#define SUPPORT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mcpconn.h"

/* Far beyond what anything takes that should take no time, on a machine that is busy. */
#define PATIENCE_MS 60000

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

/* Checks that a text, which is a C string, contains a part. */
#define CHECK_SAYS(text, part)                                                                                        \
    do {                                                                                                              \
        if (!strstr((text), (part))) {                                                                                \
            printf("%s:%d: it does not say \"%s\": %s\n", __FILE__, __LINE__, (part), (text));                        \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

/* Checks a status against the one expected. */
#define CHECK_STATUS(status, expected)                                                                                \
    do {                                                                                                              \
        mcpconn_status got_ = (status);                                                                               \
        if (got_ != (expected)) {                                                                                     \
            printf("%s:%d: status %d, not %s: %s\n", __FILE__, __LINE__, (int)got_, #expected, #status);              \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

/* Says a line to the test that runs this program. */
static inline void say(const char *line)
{
    puts(line);
    fflush(stdout);
}

/* Waits until the test says a line. */
static inline void await_go(void)
{
    char line[64];
    CHECK(fgets(line, sizeof line, stdin));
}

static inline uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline mcpconn_str str(const char *text)
{
    mcpconn_str given;
    given.ptr = text;
    given.len = text ? MCPCONN_NUL : 0;
    return given;
}

/* The children of this process that run or wait to be reaped; each is printed. */
static inline int children_left(void)
{
    int count = 0;
    DIR *processes = opendir("/proc");
    const struct dirent *entry;
    CHECK(processes);
    while ((entry = readdir(processes))) {
        char path[300], stat[512];
        FILE *file;
        size_t length;
        const char *after_name;
        int parent;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        if (!(file = fopen(path, "r")))
            continue;
        length = fread(stat, 1, sizeof stat - 1, file);
        fclose(file);
        stat[length] = '\0';
        after_name = strrchr(stat, ')');
        if (after_name && sscanf(after_name, ") %*c %d", &parent) == 1 && parent == (int)getpid()) {
            printf("a child is left: %s\n", stat);
            count++;
        }
    }
    closedir(processes);
    return count;
}

/* Descriptors that this process has open, printed if they are more than there should be. */
static inline int open_descriptors(int expected)
{
    int count = 0;
    char names[65536] = "";
    DIR *descriptors = opendir("/proc/self/fd");
    const struct dirent *entry;
    CHECK(descriptors);
    while ((entry = readdir(descriptors))) {
        char path[300], target[256];
        ssize_t length;
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        length = readlink(path, target, sizeof target - 1);
        if (length < 0)
            continue;
        count++;
        if (strlen(names) + strlen(path) + (size_t)length + 8 < sizeof names)
            sprintf(names + strlen(names), "%s -> %.*s\n", path, (int)length, target);
    }
    closedir(descriptors);
    if (expected && count > expected)
        printf("%d descriptors, not %d:\n%s", count, expected, names);
    return count;
}

/* Checks that only so many descriptors are open; the library's last thread may take a moment to end. */
static inline void check_descriptors(int expected)
{
    uint64_t until = now_ms() + 2000;
    while (open_descriptors(0) != expected && now_ms() < until)
        poll(NULL, 0, 1);
    CHECK(open_descriptors(expected) == expected);
}

/* How a call ended, copied out of its last event. */
typedef struct completion {
    mcpconn_status status;  /* MCPCONN_OK: it was answered with a result */
    int32_t outcome;        /* of an error */
    int32_t is_tool_error;
    uint64_t generation;
    int replaced;
    int progress;           /* how often progress was reported before */
    char text[32768];       /* of the result, or of the error */
} completion;

static inline void copy_text(char *to, size_t size, mcpconn_str from)
{
    size_t length = from.len < size ? from.len : size - 1;
    memcpy(to, from.ptr, length);
    to[length] = '\0';
}

/* The server states that went by, one line each, since the program began or cleared it. */
static char states_seen[65536];

static inline void note_state(const mcpconn_event *event)
{
    char line[1024], name[128];
    copy_text(name, sizeof name, mcpconn_event_server(event));
    copy_text(line, sizeof line, mcpconn_event_text(event));
    if (strlen(states_seen) + strlen(name) + strlen(line) + 4 < sizeof states_seen)
        sprintf(states_seen + strlen(states_seen), "%s: %s\n", name, line);
}

/* The next event of any kind; the program fails if none comes in time. */
static inline mcpconn_event *next_event(mcpconn_client *client, uint64_t limit_ms)
{
    uint64_t until = now_ms() + limit_ms;
    for (;;) {
        mcpconn_event *event = NULL;
        mcpconn_status status = mcpconn_client_next_event(client, &event);
        uint64_t now = now_ms();
        if (status == MCPCONN_OK) {
            if (mcpconn_event_kind(event) == MCPCONN_EVENT_SERVER_STATE)
                note_state(event);
            return event;
        }
        CHECK_STATUS(status, MCPCONN_EMPTY);
        CHECK(now < until);
        CHECK(mcpconn_client_wait(client, until - now) >= 0);
    }
}

static inline completion completion_of(const mcpconn_event *event)
{
    completion done;
    memset(&done, 0, sizeof done);
    if (mcpconn_event_kind(event) == MCPCONN_EVENT_RESULT) {
        done.is_tool_error = mcpconn_event_is_tool_error(event);
        done.generation = mcpconn_event_generation(event);
        done.replaced = mcpconn_event_session_replaced(event);
    } else {
        const mcpconn_error *error = mcpconn_event_error(event);
        CHECK(error);
        done.status = mcpconn_error_status(error);
        done.outcome = mcpconn_error_outcome(error);
    }
    copy_text(done.text, sizeof done.text, mcpconn_event_text(event));
    return done;
}

/* Ends of calls that came while another one's was waited for. */
static mcpconn_event *ends_kept[64];

static inline int ends_a_call(const mcpconn_event *event)
{
    int32_t kind = mcpconn_event_kind(event);
    return kind == MCPCONN_EVENT_RESULT || kind == MCPCONN_EVENT_ERROR;
}

/* The event in the slot that ends this call, or the first free slot for 0. */
static inline mcpconn_event **kept_end(uint64_t id)
{
    size_t i;
    for (i = 0; i < sizeof ends_kept / sizeof *ends_kept; i++)
        if (ends_kept[i] ? mcpconn_event_id(ends_kept[i]) == id : id == 0)
            return &ends_kept[i];
    CHECK(id != 0);
    return NULL;
}

/* Waits for the end of a call. */
static inline completion finish(mcpconn_client *client, uint64_t id)
{
    completion done;
    int progress = 0;
    mcpconn_event *event = NULL;
    mcpconn_event **kept = kept_end(id);
    if (kept) {
        event = *kept;
        *kept = NULL;
    }
    while (!event) {
        event = next_event(client, PATIENCE_MS);
        if (mcpconn_event_id(event) == id && ends_a_call(event))
            break;
        progress += mcpconn_event_id(event) == id && mcpconn_event_kind(event) == MCPCONN_EVENT_PROGRESS;
        if (ends_a_call(event))
            *kept_end(0) = event;
        else
            mcpconn_event_free(event);
        event = NULL;
    }
    done = completion_of(event);
    mcpconn_event_free(event);
    done.progress = progress;
    return done;
}

/* Waits until the server is at this call, which it shows by progress. */
static inline void await_progress(mcpconn_client *client, uint64_t id)
{
    int seen = 0;
    while (!seen) {
        mcpconn_event *event = next_event(client, PATIENCE_MS);
        seen = mcpconn_event_id(event) == id;
        if (seen)
            CHECK(mcpconn_event_kind(event) == MCPCONN_EVENT_PROGRESS);
        mcpconn_event_free(event);
    }
}

/* Starts a call that asks for progress. A call that is refused at once says so in `refused`, and gives 0. */
static inline uint64_t try_to_begin(mcpconn_client *client, mcpconn_scope *scope, const char *server, const char *tool,
                                    const char *arguments, completion *refused)
{
    mcpconn_call_options options = MCPCONN_CALL_OPTIONS_INIT;
    mcpconn_error *error = NULL;
    uint64_t id = 0;
    memset(refused, 0, sizeof *refused);
    options.timeout_ms = PATIENCE_MS;
    options.progress = 1;
    refused->status =
        mcpconn_client_call_tool(client, scope, str(server), str(tool), str(arguments), &options, &id, &error);
    CHECK((refused->status == MCPCONN_OK) == !error);
    if (error) {
        CHECK(id == 0);
        CHECK_STATUS(mcpconn_error_status(error), refused->status);
        refused->outcome = mcpconn_error_outcome(error);
        copy_text(refused->text, sizeof refused->text, mcpconn_error_message(error));
        mcpconn_error_free(error);
    }
    return id;
}

/* Starts a call, which must be taken. */
static inline uint64_t begin(mcpconn_client *client, mcpconn_scope *scope, const char *server, const char *tool,
                             const char *arguments)
{
    completion refused;
    uint64_t id = try_to_begin(client, scope, server, tool, arguments, &refused);
    if (id == 0)
        printf("the call of %s was refused: %s\n", tool, refused.text);
    CHECK(id != 0);
    return id;
}

/* Calls and waits for the end, be it refused at once. */
static inline completion call(mcpconn_client *client, mcpconn_scope *scope, const char *server, const char *tool,
                              const char *arguments)
{
    completion refused;
    uint64_t id = try_to_begin(client, scope, server, tool, arguments, &refused);
    return id == 0 ? refused : finish(client, id);
}

/* Calls, and checks that the result says this. */
#define CHECK_CALL(client, scope, server, tool, arguments, part)                                                      \
    do {                                                                                                              \
        completion done_ = call(client, scope, server, tool, arguments);                                              \
        if (done_.status != MCPCONN_OK)                                                                               \
            printf("%s:%d: %s failed: %s\n", __FILE__, __LINE__, tool, done_.text);                                   \
        CHECK_STATUS(done_.status, MCPCONN_OK);                                                                       \
        CHECK_SAYS(done_.text, part);                                                                                 \
    } while (0)

/* A client with these servers. */
static inline mcpconn_client *client_with(const char *servers)
{
    mcpconn_client *client = NULL;
    mcpconn_error *error = NULL;
    CHECK_STATUS(mcpconn_client_new(NULL, &client, &error), MCPCONN_OK);
    if (mcpconn_client_configure(client, str(NULL), str(servers), NULL, &error) != MCPCONN_OK)
        printf("%.*s\n", (int)mcpconn_error_message(error).len, mcpconn_error_message(error).ptr);
    CHECK(!error);
    return client;
}

static inline mcpconn_scope *scope_of(const char *name)
{
    mcpconn_scope *scope = NULL;
    CHECK_STATUS(mcpconn_scope_new(str(NULL), str(name), &scope, NULL), MCPCONN_OK);
    return scope;
}

/* Ends the client and checks that nothing of it is left. */
static inline void end(mcpconn_client *client)
{
    mcpconn_client_free(client);
    CHECK(children_left() == 0);
}

#endif
