/* A host that does what it is told and says what came of it: a test tells it a line, and hears a line of JSON. It sees
 * to it that every call ends exactly once, and that nothing is left at its end.
 *
 * told SERVERS_JSON             lines are words with tabs between them; a scope of - is none, a timeout is in ms:
 *
 * list SERVER TIMEOUT           begins the listing of its tools, and tells the call's id
 * begin SCOPE SERVER TOOL ARGUMENTS TIMEOUT
 *                               begins a call, and tells its id, or that it was refused at once
 * progress ID                   waits for progress of a call
 * finish ID                     waits for the end of a call, and tells it
 * cancel ID                     asks for the end of a call
 * info SERVER                   tells how it stands with a server
 * await SERVER STATE            waits until a server is in that state, and tells how it stands with it
 * seen SERVER                   tells what the server's states said so far
 * configure SERVERS_JSON        gives it other servers
 * wake SERVER                   wakes a server
 * fork                          forks, and leaves a child behind that has copies of all descriptors; tells its pid
 * fork exec                     forks and execs this program, which checks that it has no descriptor of the client
 * close                         closes the client, and tells the calls that ended with that
 * end                           frees the client, checks that nothing is left, and ends
 * exit | abort | exec           ends in that way, with the client as it is
 *
 * told --descriptors COUNT      checks that only so many descriptors are open */
#include "support.h"

#include <inttypes.h>
#include <sys/resource.h>
#include <sys/wait.h>

typedef struct told_call {
    uint64_t id;
    int progress;
    int ended;
    mcpconn_event *end; /* until it was asked for */
} told_call;

static told_call calls[1024];
static size_t calls_begun;

static const char *status_name(mcpconn_status status)
{
    static const char *const errors[] = {
        "OK", "INVALID", "CONFIG", "UNKNOWN_SERVER", "TRANSPORT", "PROTOCOL", "SERVER", "TIMEOUT", "CANCELED",
        "CAPACITY", "PARKED", "AUTH", "CLOSED", "BUSY", "LOCAL", "FORKED", "INTERNAL", "WAITING",
    };
    if (status == MCPCONN_EMPTY)
        return "EMPTY";
    CHECK(status <= 0 && -status < (int)(sizeof errors / sizeof *errors));
    return errors[-status];
}

static const char *outcome_name(int32_t outcome)
{
    static const char *const outcomes[] = { "", "not_sent", "rejected", "answered", "unknown" };
    CHECK(outcome >= 0 && outcome < 5);
    return outcomes[outcome];
}

static const char *const STATES[] = { "", "idle", "connecting", "unproven", "proven", "waiting", "parked", "stopped" };

static const char *state_name(int32_t state)
{
    CHECK(state > 0 && state < 8);
    return STATES[state];
}

static void json_string(const char *name, mcpconn_str text)
{
    size_t i;
    printf(",\"%s\":\"", name);
    for (i = 0; i < text.len && i < 65536; i++) {
        unsigned char byte = (unsigned char)text.ptr[i];
        if (byte < 0x20 || byte == '"' || byte == '\\')
            printf("\\u%04x", byte);
        else
            putchar(byte);
    }
    putchar('"');
}

static void json_name(const char *name, const char *text)
{
    printf(",\"%s\":\"%s\"", name, text);
}

/* What is told to the test is an object on one line, which begins so; each member that follows brings its comma. */
static void tell_begin(void)
{
    printf("{\"told\":true");
}

static void tell_end(void)
{
    say("}");
}

static told_call *call_of(uint64_t id)
{
    size_t i;
    for (i = 0; i < calls_begun; i++)
        if (calls[i].id == id)
            return &calls[i];
    printf("no call has the id %" PRIu64 "\n", id);
    exit(1);
}

static void note_begun(uint64_t id)
{
    CHECK(calls_begun < sizeof calls / sizeof *calls);
    calls[calls_begun++].id = id;
}

/* Sorts an event to its call; 0 if it was the last one. Every call ends once, and says nothing after that. */
static int take(mcpconn_event *event)
{
    int32_t kind = mcpconn_event_kind(event);
    told_call *of = mcpconn_event_id(event) ? call_of(mcpconn_event_id(event)) : NULL;
    if (of)
        CHECK(!of->ended);
    if (ends_a_call(event)) {
        CHECK(of);
        of->ended = 1;
        of->end = event;
        return 1;
    }
    if (of && kind == MCPCONN_EVENT_PROGRESS)
        of->progress++;
    mcpconn_event_free(event);
    return kind != MCPCONN_EVENT_CLOSED;
}

static void await_event(mcpconn_client *client)
{
    CHECK(take(next_event(client, 2 * PATIENCE_MS)));
}

/* What came already. */
static void take_all(mcpconn_client *client)
{
    mcpconn_event *event = NULL;
    while (mcpconn_client_next_event(client, &event) == MCPCONN_OK) {
        if (mcpconn_event_kind(event) == MCPCONN_EVENT_SERVER_STATE)
            note_state(event);
        CHECK(take(event));
    }
}

static void tell_error(const mcpconn_error *error)
{
    json_name("status", status_name(mcpconn_error_status(error)));
    json_name("outcome", outcome_name(mcpconn_error_outcome(error)));
    json_string("text", mcpconn_error_message(error));
    json_string("json", mcpconn_error_json(error));
    printf(",\"next_try_in_ms\":%" PRIu64, mcpconn_error_next_try_in_ms(error));
}

static void tell_begun(mcpconn_status status, uint64_t id, mcpconn_error *error)
{
    CHECK((status == MCPCONN_OK) == !error);
    tell_begin();
    if (error)
        tell_error(error);
    else {
        note_begun(id);
        printf(",\"id\":%" PRIu64, id);
    }
    tell_end();
    mcpconn_error_free(error);
}

static void begin_call(mcpconn_client *client, char **words)
{
    mcpconn_call_options options = MCPCONN_CALL_OPTIONS_INIT;
    mcpconn_scope *scope = strcmp(words[1], "-") ? scope_of(words[1]) : NULL;
    mcpconn_error *error = NULL;
    uint64_t id = 0;
    mcpconn_status status;
    options.progress = 1;
    options.timeout_ms = strtoull(words[5], NULL, 10);
    status = mcpconn_client_call_tool(client, scope, str(words[2]), str(words[3]), str(words[4]), &options, &id, &error);
    mcpconn_scope_free(scope);
    tell_begun(status, id, error);
}

static void begin_listing(mcpconn_client *client, char **words)
{
    mcpconn_call_options options = MCPCONN_CALL_OPTIONS_INIT;
    mcpconn_error *error = NULL;
    uint64_t id = 0;
    mcpconn_status status;
    options.timeout_ms = strtoull(words[2], NULL, 10);
    status = mcpconn_client_list_tools(client, str(NULL), str(words[1]), &options, &id, &error);
    tell_begun(status, id, error);
}

static void tell_finished(mcpconn_client *client, const char *id)
{
    told_call *of = call_of(strtoull(id, NULL, 10));
    while (!of->ended)
        await_event(client);
    CHECK(of->end);
    tell_begin();
    if (mcpconn_event_kind(of->end) == MCPCONN_EVENT_ERROR)
        tell_error(mcpconn_event_error(of->end));
    else {
        json_name("status", "OK");
        json_string("text", mcpconn_event_text(of->end));
        json_string("json", mcpconn_event_json(of->end));
        printf(",\"length\":%zu", mcpconn_event_json(of->end).len);
        printf(",\"tool_error\":%s", mcpconn_event_is_tool_error(of->end) ? "true" : "false");
        printf(",\"generation\":%" PRIu64, mcpconn_event_generation(of->end));
        printf(",\"replaced\":%s", mcpconn_event_session_replaced(of->end) ? "true" : "false");
    }
    printf(",\"progress\":%d", of->progress);
    tell_end();
    mcpconn_event_free(of->end);
    of->end = NULL;
}

static void await_progress_of(mcpconn_client *client, const char *id)
{
    told_call *of = call_of(strtoull(id, NULL, 10));
    while (!of->progress) {
        CHECK(!of->ended);
        await_event(client);
    }
    tell_begin();
    tell_end();
}

static mcpconn_server_info info_of(const mcpconn_client *client, const char *server)
{
    mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;
    CHECK_STATUS(mcpconn_client_server_info(client, str(NULL), str(server), &info, NULL), MCPCONN_OK);
    return info;
}

static void tell_info(const mcpconn_client *client, const char *server)
{
    mcpconn_server_info info = info_of(client, server);
    tell_begin();
    json_name("state", state_name(info.state));
    printf(",\"reason\":%d,\"charges\":%u,\"sessions\":%u,\"generation\":%" PRIu64 ",\"next_try_in_ms\":%" PRIu64
           ",\"pid\":%" PRId64,
           (int)info.reason, info.charges, info.sessions, info.generation, info.next_try_in_ms, info.pid);
    tell_end();
}

static void await_state(mcpconn_client *client, const char *server, const char *state)
{
    while (strcmp(state_name(info_of(client, server).state), state))
        await_event(client);
    tell_info(client, server);
}

static void tell_seen(mcpconn_client *client, const char *server)
{
    char begins[256];
    const char *line;
    take_all(client);
    snprintf(begins, sizeof begins, "%s: ", server);
    tell_begin();
    printf(",\"seen\":[\"\"");
    for (line = states_seen; *line; line = strchr(line, '\n') + 1)
        if (!strncmp(line, begins, strlen(begins))) {
            size_t i, length = (size_t)(strchr(line, '\n') - line);
            printf(",\"");
            for (i = strlen(begins); i < length; i++)
                if ((unsigned char)line[i] < 0x20 || line[i] == '"' || line[i] == '\\')
                    printf("\\u%04x", (unsigned char)line[i]);
                else
                    putchar(line[i]);
            putchar('"');
        }
    putchar(']');
    tell_end();
}

static void configure(const mcpconn_client *client, const char *servers)
{
    mcpconn_text *report = NULL;
    CHECK_STATUS(mcpconn_client_configure(client, str(NULL), str(servers), &report, NULL), MCPCONN_OK);
    tell_begin();
    json_string("report", mcpconn_text_str(report));
    tell_end();
    mcpconn_text_free(report);
}

static void fork_and_stay(void)
{
    pid_t child;
    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (child == 0)
        for (;;)
            pause();
    tell_begin();
    printf(",\"pid\":%d", (int)child);
    tell_end();
}

static void fork_and_exec(int descriptors)
{
    char count[16];
    pid_t child;
    int status = -1;
    snprintf(count, sizeof count, "%d", descriptors);
    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "told", "--descriptors", count, (char *)NULL);
        _exit(127);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    tell_begin();
    tell_end();
}

/* Aborts without leaving a file. */
static void fall_down(void)
{
    struct rlimit none = { 0, 0 };
    setrlimit(RLIMIT_CORE, &none);
    abort();
}

static void close_client(mcpconn_client *client)
{
    size_t i;
    int first = 1;
    CHECK_STATUS(mcpconn_client_close(client, 0), MCPCONN_OK);
    while (take(next_event(client, PATIENCE_MS)))
        ;
    tell_begin();
    printf(",\"ended\":[");
    for (i = 0; i < calls_begun; i++) {
        CHECK(calls[i].ended);
        if (calls[i].end) {
            printf("%s%" PRIu64, first ? "" : ",", calls[i].id);
            first = 0;
        }
    }
    putchar(']');
    tell_end();
}

static void tell_status(mcpconn_status status)
{
    tell_begin();
    json_name("status", status_name(status));
    tell_end();
}

static void end_of_all(mcpconn_client *client, int descriptors)
{
    size_t i;
    take_all(client);
    for (i = 0; i < calls_begun; i++)
        mcpconn_event_free(calls[i].end);
    end(client);
    check_descriptors(descriptors);
    exit(0);
}

int main(int argc, char **argv)
{
    static char line[1 << 20];
    int descriptors = open_descriptors(0);
    mcpconn_client *client;

    if (argc == 3 && !strcmp(argv[1], "--descriptors"))
        return open_descriptors(atoi(argv[2])) != atoi(argv[2]);
    CHECK(argc == 2);
    /* Ignored where the tests are run in the background of a shell. */
    signal(SIGINT, SIG_DFL);
    client = client_with(argv[1]);
    while (fgets(line, sizeof line, stdin)) {
        char *words[8] = { NULL }, *rest = line;
        size_t count = 0;
        line[strcspn(line, "\n")] = '\0';
        while (count < 7 && (words[count] = strsep(&rest, "\t")))
            count++;
#define TOLD(word, arguments) (!strcmp(words[0], word) && count == 1 + (arguments))
        if (TOLD("begin", 5))
            begin_call(client, words);
        else if (TOLD("list", 2))
            begin_listing(client, words);
        else if (TOLD("finish", 1))
            tell_finished(client, words[1]);
        else if (TOLD("progress", 1))
            await_progress_of(client, words[1]);
        else if (TOLD("cancel", 1))
            tell_status(mcpconn_client_cancel(client, strtoull(words[1], NULL, 10)));
        else if (TOLD("info", 1))
            tell_info(client, words[1]);
        else if (TOLD("await", 2))
            await_state(client, words[1], words[2]);
        else if (TOLD("seen", 1))
            tell_seen(client, words[1]);
        else if (TOLD("configure", 1))
            configure(client, words[1]);
        else if (TOLD("wake", 1))
            tell_status(mcpconn_client_wake(client, str(NULL), str(words[1]), NULL));
        else if (TOLD("fork", 0))
            fork_and_stay();
        else if (TOLD("fork exec", 0))
            fork_and_exec(descriptors);
        else if (TOLD("close", 0))
            close_client(client);
        else if (TOLD("end", 0))
            end_of_all(client, descriptors);
        else if (TOLD("exit", 0))
            exit(0);
        else if (TOLD("abort", 0))
            fall_down();
        else if (TOLD("exec", 0))
            execl("/bin/sh", "sh", "-c", "echo executed; read line", (char *)NULL);
        else {
            printf("what is %s with %d words?\n", words[0], (int)count - 1);
            exit(1);
        }
    }
    exit(2);
}
