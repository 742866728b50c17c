/* Sessions that the host closes: at once and gently, by scope, server, session, domain and all of them; what is heard of
 * them meanwhile, and what the status says.
 *
 * closing DEMO_SERVER */
#include "support.h"

static mcpconn_client *client;
static mcpconn_scope *one, *two;

/* A call that runs for longer than anybody waits; the server is at it when this returns. */
static uint64_t begin_long(mcpconn_scope *scope)
{
    uint64_t id = begin(client, scope, "demo", "sleep", "{\"ms\":600000}");
    int runs = 0;
    while (!runs) {
        mcpconn_event *event = next_event(client, PATIENCE_MS);
        runs = mcpconn_event_id(event) == id && mcpconn_event_kind(event) == MCPCONN_EVENT_PROGRESS;
        CHECK(!ends_a_call(event));
        mcpconn_event_free(event);
    }
    return id;
}

static void check_cut(uint64_t id)
{
    completion done = finish(client, id);
    CHECK_STATUS(done.status, MCPCONN_ERR_CLOSED);
    CHECK(done.outcome == MCPCONN_OUTCOME_UNKNOWN);
    CHECK_SAYS(done.text, "closed");
}

/* The next event of a session, and what it is about. */
static mcpconn_session_info hear_of(const char *scope)
{
    mcpconn_session_info info = MCPCONN_SESSION_INFO_INIT;
    for (;;) {
        mcpconn_event *event = next_event(client, PATIENCE_MS);
        int is_it = mcpconn_event_kind(event) == MCPCONN_EVENT_SESSION && !strcmp(mcpconn_event_scope(event).ptr, scope);
        if (is_it) {
            CHECK_STATUS(mcpconn_event_session_info(event, &info), MCPCONN_OK);
            CHECK_SAYS(mcpconn_event_server(event).ptr, "demo");
            CHECK_SAYS(mcpconn_event_domain(event).ptr, "deployment");
            CHECK_SAYS(mcpconn_event_text(event).ptr, scope);
            CHECK(mcpconn_event_generation(event) == info.generation);
            CHECK(mcpconn_event_id(event) == 0);
        } else {
            CHECK_STATUS(mcpconn_event_session_info(event, &info), MCPCONN_EMPTY);
        }
        if (ends_a_call(event))
            *kept_end(0) = event;
        else
            mcpconn_event_free(event);
        if (is_it)
            return info;
    }
}

static void check_status(const char *says)
{
    mcpconn_text *status = NULL;
    CHECK_STATUS(mcpconn_client_status(client, &status, NULL), MCPCONN_OK);
    CHECK_SAYS(mcpconn_text_str(status).ptr, says);
    mcpconn_text_free(status);
}

/* Which calls a close cuts; each is told once, for the next call is told of its own end only. */
static void at_once(void)
{
    uint64_t home = begin_long(NULL), first = begin_long(one), second = begin_long(two);

    CHECK_STATUS(mcpconn_client_close_scope(client, one, NULL), MCPCONN_OK);
    check_cut(first);
    CHECK_CALL(client, one, "demo", "counter", "", "1");
    first = begin_long(one);

    CHECK_STATUS(mcpconn_client_close_server(client, str(NULL), str("demo"), NULL), MCPCONN_OK);
    check_cut(home);
    check_cut(first);
    check_cut(second);
    CHECK_CALL(client, NULL, "demo", "counter", "", "1");

    home = begin_long(NULL);
    first = begin_long(one);
    CHECK_STATUS(mcpconn_client_close_domain(client, str("another"), NULL), MCPCONN_OK);
    CHECK_STATUS(mcpconn_client_close_domain(client, MCPCONN_DEPLOYMENT, NULL), MCPCONN_OK);
    check_cut(home);
    check_cut(first);

    home = begin_long(NULL);
    first = begin_long(one);
    CHECK_STATUS(mcpconn_client_close_all(client, NULL), MCPCONN_OK);
    check_cut(home);
    check_cut(first);
    CHECK_STATUS(mcpconn_client_close_all(client, NULL), MCPCONN_OK);
}

static void gently(void)
{
    uint64_t home, first;

    /* What runs may go on, and what comes has another session. */
    CHECK_CALL(client, NULL, "demo", "counter", "", "1");
    CHECK_CALL(client, one, "demo", "counter", "", "1");
    home = begin(client, NULL, "demo", "sleep", "{\"ms\":300}");
    first = begin(client, one, "demo", "sleep", "{\"ms\":300}");
    CHECK_CALL(client, NULL, "demo", "counter", "", "2");
    CHECK_CALL(client, one, "demo", "counter", "", "2");
    CHECK_STATUS(mcpconn_client_drain_server(client, str(NULL), str("demo"), MCPCONN_FOREVER, NULL), MCPCONN_OK);
    CHECK_CALL(client, NULL, "demo", "counter", "", "1");
    CHECK_CALL(client, one, "demo", "counter", "", "1");
    CHECK_STATUS(finish(client, home).status, MCPCONN_OK);
    CHECK_STATUS(finish(client, first).status, MCPCONN_OK);

    /* At the limit it is cut. */
    home = begin_long(NULL);
    first = begin_long(one);
    CHECK_STATUS(mcpconn_client_drain_scope(client, one, 20, NULL), MCPCONN_OK);
    check_cut(first);
    CHECK_STATUS(mcpconn_client_drain_domain(client, str(NULL), 20, NULL), MCPCONN_OK);
    check_cut(home);
    CHECK_STATUS(mcpconn_client_drain_all(client, 20, NULL), MCPCONN_OK);
}

static void by_number(void)
{
    mcpconn_session_info opened, gone;
    uint64_t running = begin(client, two, "demo", "sleep", "{\"ms\":600000}");
    char named[64];

    while ((opened = hear_of("two")).change != MCPCONN_SESSION_OPENED)
        ;
    CHECK(opened.session_id > 0 && opened.generation > 0 && opened.reason == 0);
    snprintf(named, sizeof named, "\"session_id\":%llu", (unsigned long long)opened.session_id);
    check_status(named);
    check_status("\"scope\":\"two\"");
    check_status("\"capacity\":3");

    CHECK_STATUS(mcpconn_client_close_session(client, opened.session_id + 1000, NULL), MCPCONN_EMPTY);
    CHECK_STATUS(mcpconn_client_drain_session(client, opened.session_id, MCPCONN_FOREVER, NULL), MCPCONN_OK);
    gone = hear_of("two");
    CHECK(gone.session_id == opened.session_id && gone.generation == opened.generation);
    CHECK(gone.change == MCPCONN_SESSION_DRAINING && gone.reason == MCPCONN_CLOSE_HOST);
    check_status("\"draining\"");
    CHECK_STATUS(mcpconn_client_close_session(client, opened.session_id, NULL), MCPCONN_OK);
    CHECK_STATUS(mcpconn_client_close_session(client, opened.session_id, NULL), MCPCONN_EMPTY);
    gone = hear_of("two");
    CHECK(gone.change == MCPCONN_SESSION_CLOSED && gone.reason == MCPCONN_CLOSE_HOST);
    finish(client, running);

    /* One that ends by itself is lost. */
    running = begin(client, two, "demo", "crash", "");
    do
        gone = hear_of("two");
    while (gone.change == MCPCONN_SESSION_OPENED);
    CHECK(gone.change == MCPCONN_SESSION_LOST && gone.reason == 0);
    CHECK(gone.session_id != opened.session_id);
    finish(client, running);
}

/* The session that a call wants is gone, and another one is not the same. */
static void the_same_session(const char *url)
{
    mcpconn_call_options options = MCPCONN_CALL_OPTIONS_INIT;
    char servers[2048];
    completion done;
    uint64_t id;

    snprintf(servers, sizeof servers, "{\"remote\":{\"url\":\"%s\"}}", url);
    CHECK_STATUS(mcpconn_client_configure(client, str(NULL), str(servers), NULL, NULL), MCPCONN_OK);
    CHECK_CALL(client, one, "remote", "expire", "", "over");
    options.same_session = 1;
    CHECK_STATUS(mcpconn_client_call_tool(client, one, str("remote"), str("counter"), str(NULL), &options, &id, NULL),
                 MCPCONN_OK);
    done = finish(client, id);
    CHECK_STATUS(done.status, MCPCONN_ERR_TRANSPORT);
    CHECK(done.outcome == MCPCONN_OUTCOME_REJECTED);
    CHECK_SAYS(done.text, "this very session");
    CHECK_CALL(client, one, "remote", "counter", "", "1");
}

static void refusals(void)
{
    mcpconn_client_options options = MCPCONN_CLIENT_OPTIONS_INIT;
    mcpconn_client *none = NULL;
    mcpconn_error *error = NULL;

    options.pool_json = str("{\"capcity\": 3}");
    CHECK_STATUS(mcpconn_client_new(&options, &none, &error), MCPCONN_ERR_CONFIG);
    CHECK_SAYS(mcpconn_error_message(error).ptr, "capcity");
    mcpconn_error_free(error);
    CHECK(!none);

    CHECK_STATUS(mcpconn_client_close_server(client, str(NULL), str("sever"), &error), MCPCONN_ERR_UNKNOWN_SERVER);
    CHECK_SAYS(mcpconn_error_message(error).ptr, "sever");
    mcpconn_error_free(error);
    CHECK_STATUS(mcpconn_client_close_scope(client, NULL, NULL), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_client_drain_scope(client, NULL, 1, NULL), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_client_status(client, NULL, NULL), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_client_close_all(NULL, NULL), MCPCONN_ERR_INVALID);
}

int main(int argc, char **argv)
{
    mcpconn_client_options options = MCPCONN_CLIENT_OPTIONS_INIT;
    char servers[2048];

    CHECK(argc == 3);
    options.host_takes = MCPCONN_TAKES_SESSIONS;
    options.pool_json = str("{\"capacity\": 3, \"idle_ttl_ms\": \"never\"}");
    CHECK_STATUS(mcpconn_client_new(&options, &client, NULL), MCPCONN_OK);
    snprintf(servers, sizeof servers, "{\"demo\":{\"command\":\"%s\"}}", argv[1]);
    CHECK_STATUS(mcpconn_client_configure(client, str(NULL), str(servers), NULL, NULL), MCPCONN_OK);
    one = scope_of("one");
    two = scope_of("two");

    refusals();
    at_once();
    gently();
    by_number();
    the_same_session(argv[2]);

    mcpconn_scope_free(one);
    mcpconn_scope_free(two);
    end(client);
    return 0;
}
