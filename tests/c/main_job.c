/* The main job, from the first call to an end that leaves nothing behind.
 *
 * main_job DEMO_SERVER LOG */
#include "support.h"

static const char *const SERVER = "demo";

static void list_tools(mcpconn_client *client)
{
    uint64_t id = 0;
    completion listed;
    mcpconn_text *tools = NULL, *missing = NULL;

    CHECK_STATUS(mcpconn_client_list_tools(client, str(NULL), str(SERVER), NULL, &id, NULL), MCPCONN_OK);
    listed = finish(client, id);
    CHECK_STATUS(listed.status, MCPCONN_OK);
    CHECK_SAYS(listed.text, "echo");
    CHECK_SAYS(listed.text, "whoami");

    CHECK_STATUS(mcpconn_client_tools(client, str(NULL), &tools, &missing, NULL), MCPCONN_OK);
    CHECK_SAYS(mcpconn_text_str(tools).ptr, "\"input_schema\"");
    CHECK_SAYS(mcpconn_text_str(tools).ptr, "Adds two numbers.");
    CHECK_SAYS(mcpconn_text_str(missing).ptr, "[]");
    mcpconn_text_free(tools);
    mcpconn_text_free(missing);
}

static void call_tools(mcpconn_client *client)
{
    completion done;

    CHECK_CALL(client, NULL, SERVER, "echo", "{\"text\":\"Gr\\u00fc\\u00dfe\"}", "Gr\303\274\303\237e");
    CHECK_CALL(client, NULL, SERVER, "add", "{\"a\":2,\"b\":3}", "5");

    done = call(client, NULL, SERVER, "fail", "");
    CHECK_STATUS(done.status, MCPCONN_OK);
    CHECK(done.is_tool_error);

    done = call(client, NULL, SERVER, "no-such-tool", "{}");
    CHECK_STATUS(done.status, MCPCONN_ERR_SERVER);
    CHECK(done.outcome == MCPCONN_OUTCOME_ANSWERED);
    CHECK_SAYS(done.text, "no-such-tool");

    done = call(client, NULL, SERVER, "sleep", "{\"ms\":200}");
    CHECK_STATUS(done.status, MCPCONN_OK);
    CHECK(done.progress >= 1);
}

static void cancel_and_time_out(mcpconn_client *client)
{
    mcpconn_call_options options = MCPCONN_CALL_OPTIONS_INIT;
    uint64_t id = begin(client, NULL, SERVER, "sleep", "{\"ms\":600000}");
    completion done;

    await_progress(client, id);
    CHECK_STATUS(mcpconn_client_cancel(client, id), MCPCONN_OK);
    done = finish(client, id);
    CHECK_STATUS(done.status, MCPCONN_ERR_CANCELED);
    CHECK_STATUS(mcpconn_client_cancel(client, id), MCPCONN_EMPTY);

    options.timeout_ms = 1000;
    options.progress = 1;
    CHECK_STATUS(mcpconn_client_call_tool(client, NULL, str(SERVER), str("sleep"), str("{\"ms\":600000}"), &options, &id, NULL),
                 MCPCONN_OK);
    await_progress(client, id);
    done = finish(client, id);
    CHECK_STATUS(done.status, MCPCONN_ERR_TIMEOUT);
}

static void scopes_are_apart(mcpconn_client *client)
{
    mcpconn_scope *one = scope_of("one"), *two = scope_of("two");
    CHECK_CALL(client, one, SERVER, "counter", "", "1");
    CHECK_CALL(client, one, SERVER, "counter", "", "2");
    CHECK_CALL(client, two, SERVER, "counter", "", "1");
    CHECK_STATUS(mcpconn_client_close_scope(client, one, NULL), MCPCONN_OK);
    CHECK_CALL(client, one, SERVER, "counter", "", "1");
    mcpconn_scope_free(one);
    mcpconn_scope_free(two);
}

static void it_survives(mcpconn_client *client)
{
    mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;
    completion before = call(client, NULL, SERVER, "whoami", ""), after, lost;

    CHECK_STATUS(mcpconn_client_server_info(client, str(NULL), str(SERVER), &info, NULL), MCPCONN_OK);
    CHECK(info.state == MCPCONN_STATE_PROVEN);
    CHECK(info.pid > 0);
    CHECK(kill((pid_t)info.pid, SIGKILL) == 0);
    /* A call that is written before the death is seen may have run; one after it is simply answered. */
    while (info.state == MCPCONN_STATE_PROVEN) {
        mcpconn_event_free(next_event(client, PATIENCE_MS));
        CHECK_STATUS(mcpconn_client_server_info(client, str(NULL), str(SERVER), &info, NULL), MCPCONN_OK);
    }

    after = call(client, NULL, SERVER, "whoami", "");
    CHECK_STATUS(after.status, MCPCONN_OK);
    CHECK(strcmp(before.text, after.text) != 0);
    CHECK(after.generation > before.generation);

    lost = call(client, NULL, SERVER, "crash", "");
    CHECK(lost.status < 0);
    CHECK(lost.outcome == MCPCONN_OUTCOME_UNKNOWN);
    CHECK_SAYS(lost.text, SERVER);
    CHECK_CALL(client, NULL, SERVER, "echo", "{\"text\":\"alive\"}", "alive");
}

/* Every call completes, CLOSED is last, and after it there is nothing. */
static void close_client(mcpconn_client *client)
{
    uint64_t id = begin(client, NULL, SERVER, "sleep", "{\"ms\":600000}");
    int completed = 0;
    mcpconn_event *event = NULL;

    CHECK_STATUS(mcpconn_client_close(client, 0), MCPCONN_OK);
    CHECK_STATUS(mcpconn_client_call_tool(client, NULL, str(SERVER), str("echo"), str("{}"), NULL, NULL, NULL),
                 MCPCONN_ERR_CLOSED);
    for (;;) {
        int32_t kind;
        event = next_event(client, PATIENCE_MS);
        kind = mcpconn_event_kind(event);
        if (mcpconn_event_id(event) == id && kind == MCPCONN_EVENT_ERROR) {
            CHECK_STATUS(mcpconn_error_status(mcpconn_event_error(event)), MCPCONN_ERR_CLOSED);
            completed++;
        }
        mcpconn_event_free(event);
        if (kind == MCPCONN_EVENT_CLOSED)
            break;
    }
    CHECK(completed == 1);
    event = NULL;
    CHECK_STATUS(mcpconn_client_next_event(client, &event), MCPCONN_ERR_CLOSED);
    CHECK(!event);
    end(client);
}

int main(int argc, char **argv)
{
    char servers[2048];
    mcpconn_client *client;
    int descriptors = open_descriptors(0);

    CHECK(argc == 3);
    snprintf(servers, sizeof servers, "{\"mcpServers\":{\"demo\":{\"command\":\"%s\",\"args\":[\"--log\",\"%s\",\"--helper\"]}}}", argv[1],
             argv[2]);
    client = client_with(servers);
    list_tools(client);
    call_tools(client);
    cancel_and_time_out(client);
    scopes_are_apart(client);
    it_survives(client);
    CHECK_SAYS(states_seen, "demo: ");
    close_client(client);
    check_descriptors(descriptors);
    return 0;
}
