/*
 * What the library does for a host, against a server that misbehaves when told:  quickstart DEMO-SERVER
 *
 * Every step waits for events in a plain program without a loop of its own; read step by step, it shows most of the
 * header.
 */
#define _POSIX_C_SOURCE 200809L
#include <mcpconn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_RETRIES 2
#define MAX_UNPROVEN 4
#define FLAPPY_SCOPES 20
#define STEP_MS 30000

static mcpconn_client *client;

static char demo_log[512], flappy_log[512];

static void remove_logs(void)
{
    unlink(demo_log);
    unlink(flappy_log);
}

static void die(const char *what, mcpconn_error *error)
{
    fprintf(stderr, "quickstart: %s: %s\n", what, mcpconn_error_message(error).ptr);
    mcpconn_error_free(error);
    mcpconn_client_free(client);
    exit(1);
}

static void check(int holds, const char *what)
{
    if (!holds)
        die(what, NULL);
}

static void heading(const char *text)
{
    static int number;
    printf("\n%d. %s\n", ++number, text);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static const char *outcome_name(int32_t outcome)
{
    switch (outcome) {
    case MCPCONN_OUTCOME_NOT_SENT: return "not sent";
    case MCPCONN_OUTCOME_REJECTED: return "rejected";
    case MCPCONN_OUTCOME_ANSWERED: return "answered";
    default: return "unknown: it may have run";
    }
}

/* The next event, or the end of the program: nothing here takes longer than STEP_MS. */
static mcpconn_event *next_event(void)
{
    mcpconn_event *event = NULL;
    while (mcpconn_client_next_event(client, &event) == MCPCONN_EMPTY)
        check(mcpconn_client_wait(client, STEP_MS) == MCPCONN_OK, "waited too long for an event");
    check(event != NULL, "the client closed too early");
    return event;
}

/* The event of this kind about this call; others are passed over. */
static mcpconn_event *await(uint64_t call, int32_t kind)
{
    for (;;) {
        mcpconn_event *event = next_event();
        if (mcpconn_event_id(event) == call && mcpconn_event_kind(event) == kind)
            return event;
        if (mcpconn_event_id(event) == call && mcpconn_event_kind(event) != MCPCONN_EVENT_PROGRESS) {
            fprintf(stderr, "quickstart: %s\n", mcpconn_event_text(event).ptr);
            die("the call ended otherwise than it should have", NULL);
        }
        mcpconn_event_free(event);
    }
}

/* Waits until a server comes into a state, and prints the states that it passes through, if that is wanted. */
static void await_state(const char *server, int32_t state, int print)
{
    int32_t now = 0;
    while (now != state) {
        mcpconn_event *event = next_event();
        mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;
        mcpconn_str name = mcpconn_event_server(event), text = mcpconn_event_text(event);
        if (name.len == strlen(server) && memcmp(name.ptr, server, name.len) == 0 &&
            mcpconn_event_server_info(event, &info) == MCPCONN_OK) {
            now = info.state;
            if (print)
                printf("   %s\n", text.ptr);
        }
        mcpconn_event_free(event);
    }
}

static uint64_t call_tool(mcpconn_scope *scope, const char *server, const char *tool, const char *arguments,
                          int progress)
{
    mcpconn_call_options options = MCPCONN_CALL_OPTIONS_INIT;
    mcpconn_error *error = NULL;
    uint64_t call = 0;
    options.timeout_ms = STEP_MS;
    options.progress = progress;
    if (mcpconn_client_call_tool(client, scope, mcpconn_cstr(server), mcpconn_cstr(tool), mcpconn_cstr(arguments),
                                 &options, &call, &error))
        die(tool, error);
    return call;
}

static mcpconn_scope *new_scope(const char *name)
{
    mcpconn_scope *scope = NULL;
    mcpconn_error *error = NULL;
    if (mcpconn_scope_new(MCPCONN_DEPLOYMENT, mcpconn_cstr(name), &scope, &error))
        die(name, error);
    return scope;
}

static int64_t pid_of(const char *server)
{
    mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;
    mcpconn_error *error = NULL;
    if (mcpconn_client_server_info(client, MCPCONN_DEPLOYMENT, mcpconn_cstr(server), &info, &error))
        die(server, error);
    return info.pid;
}

/* How many processes a server's log tells of, and how many of them are still there. */
static int processes(const char *log, int *alive)
{
    char line[512];
    int started = 0, pid = 0;
    FILE *file = fopen(log, "r");
    *alive = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "start %d", &pid) == 1) {
            ++started;
            *alive += kill(pid, 0) == 0;
        }
    }
    if (file)
        fclose(file);
    return started;
}

static void show_tools_and_a_call(void)
{
    mcpconn_error *error = NULL;
    mcpconn_event *event;
    mcpconn_str text;
    uint64_t call = 0;

    heading("The tools of a server, and a call");
    if (mcpconn_client_list_tools(client, MCPCONN_DEPLOYMENT, mcpconn_cstr("demo"), NULL, &call, &error))
        die("list tools", error);
    event = await(call, MCPCONN_EVENT_RESULT);
    text = mcpconn_event_text(event);
    printf("%s\n", text.ptr);
    mcpconn_event_free(event);

    event = await(call_tool(NULL, "demo", "add", "{\"a\": 2, \"b\": 40}", 0), MCPCONN_EVENT_RESULT);
    text = mcpconn_event_text(event);
    printf("   add(2, 40) answers: %s\n", text.ptr);
    mcpconn_event_free(event);
}

static void kill_between_calls(void)
{
    int64_t before = pid_of("demo"), after;
    mcpconn_event *event;
    mcpconn_str text;

    heading("The server is killed between two calls: the second is answered all the same");
    printf("   process %lld is killed with SIGKILL\n", (long long)before);
    kill((pid_t)before, SIGKILL);
    while (pid_of("demo") == before)
        mcpconn_event_free(next_event());
    event = await(call_tool(NULL, "demo", "echo", "{\"text\": \"still there\"}", 0), MCPCONN_EVENT_RESULT);
    after = pid_of("demo");
    text = mcpconn_event_text(event);
    printf("   the second call is answered by process %lld: %s\n", (long long)after, text.ptr);
    check(after > 0 && after != before, "the process is the same");
    mcpconn_event_free(event);
}

static void kill_during_a_call(void)
{
    uint64_t call;
    mcpconn_event *event;
    mcpconn_str text;
    int32_t outcome;
    double killed;

    heading("The server is killed during a call: the call ends at once, and says that it may have run");
    call = call_tool(NULL, "demo", "sleep", "{\"ms\": 20000}", 1);
    mcpconn_event_free(await(call, MCPCONN_EVENT_PROGRESS));
    killed = seconds();
    kill((pid_t)pid_of("demo"), SIGKILL);
    event = await(call, MCPCONN_EVENT_ERROR);
    text = mcpconn_event_text(event);
    outcome = mcpconn_error_outcome(mcpconn_event_error(event));
    printf("   a call of 20 s ends after %.0f ms\n", (seconds() - killed) * 1000);
    printf("   outcome: %s\n", outcome_name(outcome));
    printf("   it says: %s\n", text.ptr);
    check(outcome == MCPCONN_OUTCOME_UNKNOWN, "the outcome should be unknown");
    mcpconn_event_free(event);
}

static void park_a_flapping_server(const char *log)
{
    mcpconn_scope *scopes[FLAPPY_SCOPES];
    mcpconn_error *error = NULL;
    mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;
    uint64_t home = 0;
    int i, ended = 0, started, alive, allowed = 1 + MAX_UNPROVEN + MAX_RETRIES;

    heading("A server that flaps (it answers the handshake, tools/list and ping, and then exits) is parked");
    for (i = 0; i < FLAPPY_SCOPES; ++i) {
        char name[32];
        snprintf(name, sizeof name, "flappy-%d", i);
        scopes[i] = new_scope(name);
        call_tool(scopes[i], "flappy", "echo", "{\"text\": \"anybody there?\"}", 0);
    }
    if (mcpconn_client_list_tools(client, MCPCONN_DEPLOYMENT, mcpconn_cstr("flappy"), NULL, &home, &error))
        die("list tools", error);
    while (ended < FLAPPY_SCOPES + 1 || info.state != MCPCONN_STATE_PARKED) {
        mcpconn_event *event = next_event();
        mcpconn_str text = mcpconn_event_text(event);
        int32_t kind = mcpconn_event_kind(event);
        ended += kind == MCPCONN_EVENT_RESULT || kind == MCPCONN_EVENT_ERROR;
        if (mcpconn_event_server_info(event, &info) == MCPCONN_OK && info.state == MCPCONN_STATE_PARKED)
            printf("   %s\n", text.ptr);
        mcpconn_event_free(event);
    }
    started = processes(log, &alive);
    printf("   %d scopes called it; instead of once for each it was started %d times in all, and never more than %d\n",
           FLAPPY_SCOPES, started, allowed);
    check(started <= allowed, "it was started too often");

    printf("   now it is woken:\n");
    if (mcpconn_client_wake(client, MCPCONN_DEPLOYMENT, mcpconn_cstr("flappy"), &error))
        die("wake", error);
    await_state("flappy", MCPCONN_STATE_PARKED, 1);
    check(processes(log, &alive) == started + 1, "a wake is one attempt");
    for (i = 0; i < FLAPPY_SCOPES; ++i)
        mcpconn_scope_free(scopes[i]);
}

static void fill_the_pool(const char *servers)
{
    mcpconn_client *whole = client;
    mcpconn_client_options options = MCPCONN_CLIENT_OPTIONS_INIT;
    mcpconn_error *error = NULL;
    mcpconn_scope *first = new_scope("first"), *second = new_scope("second"), *third = new_scope("third");
    uint64_t calls[2];
    mcpconn_event *event;
    mcpconn_str text;

    heading("A full pool (two sessions, each with a call in flight) refuses a third scope, and cuts no call");
    options.pool_json = mcpconn_cstr("{\"capacity\": 2}");
    if (mcpconn_client_new(&options, &client, &error))
        die("new", error);
    if (mcpconn_client_configure(client, MCPCONN_DEPLOYMENT, mcpconn_cstr(servers), NULL, &error))
        die("configure", error);
    calls[0] = call_tool(first, "demo", "sleep", "{\"ms\": 1000}", 1);
    mcpconn_event_free(await(calls[0], MCPCONN_EVENT_PROGRESS));
    calls[1] = call_tool(second, "demo", "sleep", "{\"ms\": 1000}", 1);
    mcpconn_event_free(await(calls[1], MCPCONN_EVENT_PROGRESS));
    event = await(call_tool(third, "demo", "echo", "{\"text\": \"me too\"}", 0), MCPCONN_EVENT_ERROR);
    text = mcpconn_event_text(event);
    printf("   the third is refused (%s): %s\n", outcome_name(mcpconn_error_outcome(mcpconn_event_error(event))),
           text.ptr);
    check(mcpconn_error_status(mcpconn_event_error(event)) == MCPCONN_ERR_CAPACITY, "it should be refused");
    mcpconn_event_free(event);

    event = await(calls[0], MCPCONN_EVENT_RESULT);
    text = mcpconn_event_text(event);
    printf("   the first call finishes undisturbed: %s\n", text.ptr);
    mcpconn_event_free(event);
    mcpconn_event_free(await(calls[1], MCPCONN_EVENT_RESULT));
    mcpconn_scope_free(first);
    mcpconn_scope_free(second);
    mcpconn_scope_free(third);
    mcpconn_client_free(client);
    client = whole;
}

static void close_and_look(const char *demo_log, const char *flappy_log)
{
    int alive_demo, alive_flappy, started;
    double begun = seconds();

    heading("The client closes, and leaves no process behind");
    mcpconn_client_close(client, 0);
    for (;;) {
        mcpconn_event *event = next_event();
        int32_t kind = mcpconn_event_kind(event);
        mcpconn_event_free(event);
        if (kind == MCPCONN_EVENT_CLOSED)
            break;
    }
    mcpconn_client_free(client);
    client = NULL;
    started = processes(demo_log, &alive_demo) + processes(flappy_log, &alive_flappy);
    printf("   closed after %.0f ms; of %d processes that were started %d are left\n", (seconds() - begun) * 1000, started,
           alive_demo + alive_flappy);
    check(alive_demo + alive_flappy == 0, "a process was left");
    check(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "a child was left");
    printf("   no child is left, and no zombie\n");
}

/* A new empty file for a server's log. */
static void new_log(char *path, size_t size)
{
    const char *folder = getenv("TMPDIR");
    int fd;
    snprintf(path, size, "%s/mcpconn-XXXXXX", folder ? folder : "/tmp");
    fd = mkstemp(path);
    check(fd >= 0, path);
    close(fd);
}

int main(int argc, char **argv)
{
    char policy[256], servers[16384];
    mcpconn_error *error = NULL;

    if (argc != 2) {
        fprintf(stderr, "usage: quickstart DEMO-SERVER\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    atexit(remove_logs);
    new_log(demo_log, sizeof demo_log);
    new_log(flappy_log, sizeof flappy_log);
    snprintf(policy, sizeof policy,
             "{\"budget\": {\"max_retries\": %d, \"max_unproven\": %d, \"backoff_ms\": 100, \"backoff_max_ms\": 400, "
             "\"floor_ms\": 100}, \"close_timeout_ms\": 2000}",
             MAX_RETRIES, MAX_UNPROVEN);
    printf("libmcpconn %s\nA short policy of the demo's own: %s\n", mcpconn_version(), policy);
    snprintf(servers, sizeof servers,
             "{\"mcpServers\": {"
             "\"demo\": {\"command\": \"%s\", \"args\": [\"--log\", \"%s\"], \"mcpconn\": %s}, "
             "\"flappy\": {\"command\": \"%s\", \"args\": [\"--flap\", \"--log\", \"%s\"], \"mcpconn\": %s}}}",
             argv[1], demo_log, policy, argv[1], flappy_log, policy);

    if (mcpconn_client_new(NULL, &client, &error))
        die("new", error);
    if (mcpconn_client_configure(client, MCPCONN_DEPLOYMENT, mcpconn_cstr(servers), NULL, &error))
        die("configure", error);

    show_tools_and_a_call();
    kill_between_calls();
    kill_during_a_call();
    park_a_flapping_server(flappy_log);
    fill_the_pool(servers);
    close_and_look(demo_log, flappy_log);
    return 0;
}
