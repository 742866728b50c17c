/* The official server-everything asks and tells: what it asks is answered from inside the callback, from another thread
 * and by a refusal, and what it tells comes as events. Then requests of the host's that call no tool.
 *
 * server_requests SERVERS_JSON       its name there is "everything" */
#include "support.h"

#include <pthread.h>

#define RESOURCE "demo://resource/dynamic/text/1"

/* How the next request that is no roots/list is answered. */
typedef enum answering { AT_ONCE, FROM_A_THREAD, BY_A_REFUSAL } answering;

static mcpconn_client *client;

static struct {
    answering answering;
    int requests, roots_asked, logs, updates;
    pthread_t thread;
    uint64_t asked;
    const char *answer;
    char last_log[1024];
    /* The call that is waited for. */
    uint64_t id;
    int ended;
    completion done;
    char json[65536];
} heard;

static mcpconn_status answer(uint64_t request, const char *result)
{
    return mcpconn_client_answer(client, request, str(result), NULL);
}

static void *answer_from_a_thread(void *unused)
{
    CHECK(!unused);
    CHECK_STATUS(answer(heard.asked, heard.answer), MCPCONN_OK);
    return NULL;
}

static void answer_roots(uint64_t request)
{
    char roots[256] = "{\"roots\": [{\"uri\": \"file:///first\", \"name\": \"the first\"}]}";
    if (heard.roots_asked++ > 0)
        strcpy(roots, "{\"roots\": [{\"uri\": \"file:///a\", \"name\": \"a\"}, {\"uri\": \"file:///b\", \"name\": \"b\"}]}");
    CHECK_STATUS(answer(request, roots), MCPCONN_OK);
}

static void answer_by(uint64_t request, const char *result)
{
    switch (heard.answering) {
    case AT_ONCE:
        /* What is no result leaves the request open. */
        CHECK_STATUS(answer(request, "no JSON"), MCPCONN_ERR_INVALID);
        CHECK_STATUS(answer(request, result), MCPCONN_OK);
        break;
    case FROM_A_THREAD:
        heard.asked = request;
        heard.answer = result;
        CHECK(pthread_create(&heard.thread, NULL, answer_from_a_thread, NULL) == 0);
        CHECK(pthread_join(heard.thread, NULL) == 0);
        break;
    case BY_A_REFUSAL:
        CHECK_STATUS(mcpconn_client_refuse(client, request, -1, str("the user would rather not"), NULL), MCPCONN_OK);
        break;
    }
    /* It is answered once, whatever comes after. */
    CHECK_STATUS(answer(request, result), MCPCONN_EMPTY);
    CHECK_STATUS(mcpconn_client_refuse(client, request, -1, str("late"), NULL), MCPCONN_EMPTY);
}

static void on_request(const mcpconn_event *event)
{
    char method[64], params[8192];
    uint64_t request = mcpconn_event_id(event);

    copy_text(method, sizeof method, mcpconn_event_method(event));
    copy_text(params, sizeof params, mcpconn_event_json(event));
    CHECK(request != 0);
    CHECK_SAYS(mcpconn_event_domain(event).ptr, "deployment");
    CHECK(mcpconn_event_scope(event).len == 0);
    heard.requests++;
    if (!strcmp(method, "roots/list")) {
        answer_roots(request);
    } else if (!strcmp(method, "sampling/createMessage")) {
        CHECK_SAYS(params, "a word, please");
        answer_by(request, "{\"model\": \"m\", \"role\": \"assistant\", \"content\": {\"type\": \"text\", \"text\": \"well\"}}");
    } else {
        CHECK(!strcmp(method, "elicitation/create"));
        if (strstr(params, "\"mode\":\"url\"")) {
            CHECK_SAYS(params, "http://127.0.0.1/form");
            answer_by(request, "{\"action\": \"decline\"}");
        } else {
            CHECK_SAYS(params, "requestedSchema");
            answer_by(request, "{\"action\": \"accept\", \"content\": {\"name\": \"Ada\"}}");
        }
    }
}

static void on_event(void *user_data, const mcpconn_event *event)
{
    char uri[256];
    CHECK(!user_data);
    switch (mcpconn_event_kind(event)) {
    case MCPCONN_EVENT_REQUEST:
        on_request(event);
        break;
    case MCPCONN_EVENT_LOG:
        heard.logs++;
        CHECK(mcpconn_event_log_level(event) >= MCPCONN_LOG_DEBUG);
        CHECK(mcpconn_event_log_level(event) <= MCPCONN_LOG_EMERGENCY);
        copy_text(heard.last_log, sizeof heard.last_log, mcpconn_event_text(event));
        break;
    case MCPCONN_EVENT_RESOURCE_UPDATED:
        heard.updates++;
        copy_text(uri, sizeof uri, mcpconn_event_text(event));
        CHECK(!strcmp(uri, RESOURCE));
        break;
    case MCPCONN_EVENT_RESULT:
    case MCPCONN_EVENT_ERROR:
        CHECK(mcpconn_event_id(event) == heard.id);
        CHECK(!heard.ended);
        heard.ended = 1;
        heard.done = completion_of(event);
        copy_text(heard.json, sizeof heard.json, mcpconn_event_json(event));
        break;
    default:
        break;
    }
}

/* Lets the callbacks hear until it is so. */
#define UNTIL(condition)                                                                                              \
    do {                                                                                                              \
        uint64_t until_ = now_ms() + PATIENCE_MS;                                                                     \
        while (!(condition)) {                                                                                        \
            CHECK(now_ms() < until_);                                                                                 \
            CHECK(mcpconn_client_wait(client, 1000) >= 0);                                                            \
            CHECK(mcpconn_client_dispatch(client, 0, NULL) >= 0);                                                     \
        }                                                                                                             \
    } while (0)

static void ended(uint64_t id)
{
    heard.id = id;
    heard.ended = 0;
    UNTIL(heard.ended);
    if (heard.done.status != MCPCONN_OK)
        printf("it failed: %s\n", heard.done.text);
    CHECK_STATUS(heard.done.status, MCPCONN_OK);
}

static void call_it(const char *tool, const char *arguments)
{
    ended(begin(client, NULL, "everything", tool, arguments));
}

static void request_it(const char *method, const char *params)
{
    uint64_t id = 0;
    CHECK_STATUS(mcpconn_client_request(client, NULL, str("everything"), str(method), str(params), NULL, &id, NULL),
                 MCPCONN_OK);
    ended(id);
}

static void list_it(int32_t list)
{
    uint64_t id = 0;
    CHECK_STATUS(mcpconn_client_list(client, NULL, str("everything"), list, NULL, &id, NULL), MCPCONN_OK);
    ended(id);
    CHECK(heard.json[0] == '[');
}

static void it_asks(void)
{
    heard.answering = AT_ONCE;
    call_it("trigger-sampling-request", "{\"prompt\": \"a word, please\"}");
    CHECK_SAYS(heard.done.text, "well");
    heard.answering = FROM_A_THREAD;
    call_it("trigger-elicitation-request", "{}");
    CHECK_SAYS(heard.done.text, "Name: Ada");
    heard.answering = AT_ONCE;
    call_it("trigger-url-elicitation", "{\"url\": \"http://127.0.0.1/form\"}");
    CHECK_SAYS(heard.done.text, "declined");
    heard.answering = BY_A_REFUSAL;
    call_it("trigger-sampling-request", "{\"prompt\": \"a word, please\"}");
    CHECK(heard.done.is_tool_error);
    CHECK_SAYS(heard.done.text, "the user would rather not");
}

static void it_asks_for_the_roots(void)
{
    call_it("get-roots-list", "{}");
    CHECK_SAYS(heard.done.text, "the first");
    CHECK_STATUS(mcpconn_client_roots_changed(client), MCPCONN_OK);
    UNTIL(strstr(heard.last_log, "Roots updated: 2 root(s)"));
    CHECK(heard.roots_asked == 2);
}

static void it_tells(void)
{
    int logs;
    request_it("logging/setLevel", "{\"level\": \"debug\"}");
    logs = heard.logs;
    call_it("toggle-simulated-logging", "{}");
    UNTIL(heard.logs > logs);
    request_it("resources/subscribe", "{\"uri\": \"" RESOURCE "\"}");
    call_it("toggle-subscriber-updates", "{}");
    UNTIL(heard.updates > 0);
}

static void it_is_asked(void)
{
    mcpconn_error *error = NULL;
    list_it(MCPCONN_LIST_TOOLS);
    CHECK_SAYS(heard.done.text, "trigger-sampling-request");
    list_it(MCPCONN_LIST_RESOURCES);
    CHECK_SAYS(heard.json, "\"uri\":");
    list_it(MCPCONN_LIST_RESOURCE_TEMPLATES);
    CHECK_SAYS(heard.json, "demo://resource/dynamic/text/{resourceId}");
    list_it(MCPCONN_LIST_PROMPTS);
    CHECK_SAYS(heard.done.text, "completable-prompt");
    request_it("resources/read", "{\"uri\": \"" RESOURCE "\"}");
    CHECK_SAYS(heard.json, RESOURCE);
    request_it("prompts/get", "{\"name\": \"simple-prompt\"}");
    CHECK_SAYS(heard.json, "messages");
    request_it("completion/complete",
               "{\"ref\": {\"type\": \"ref/prompt\", \"name\": \"completable-prompt\"}, "
               "\"argument\": {\"name\": \"department\", \"value\": \"Eng\"}}");
    CHECK_SAYS(heard.json, "Engineering");

    CHECK_STATUS(mcpconn_client_list(client, NULL, str("everything"), 9, NULL, NULL, &error), MCPCONN_ERR_INVALID);
    CHECK_SAYS(mcpconn_error_message(error).ptr, "9");
    mcpconn_error_free(error);
    error = NULL;
    CHECK_STATUS(mcpconn_client_request(client, NULL, str("everything"), str("initialize"), str(NULL), NULL, NULL, &error),
                 MCPCONN_ERR_INVALID);
    CHECK_SAYS(mcpconn_error_message(error).ptr, "initialize");
    mcpconn_error_free(error);
    CHECK_STATUS(mcpconn_client_notify(client, NULL, str("everything"), str("notifications/own"), str("{}"), NULL),
                 MCPCONN_OK);
}

int main(int argc, char **argv)
{
    mcpconn_client_options options = MCPCONN_CLIENT_OPTIONS_INIT;

    CHECK(argc == 2);
    options.host_takes = MCPCONN_TAKES_ROOTS | MCPCONN_TAKES_SAMPLING | MCPCONN_TAKES_ELICITATION_FORM |
                         MCPCONN_TAKES_ELICITATION_URL | MCPCONN_TAKES_LOGS;
    options.client_name = str("server_requests");
    options.on_event = on_event;
    CHECK_STATUS(mcpconn_client_new(&options, &client, NULL), MCPCONN_OK);
    CHECK_STATUS(mcpconn_client_configure(client, str(NULL), str(argv[1]), NULL, NULL), MCPCONN_OK);

    it_asks();
    it_asks_for_the_roots();
    it_tells();
    it_is_asked();
    CHECK(heard.requests >= 6);
    end(client);
    return 0;
}
