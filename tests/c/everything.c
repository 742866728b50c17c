/* The official server-everything: its tools, one that takes long with progress, and cancelling it.
 *
 * everything SERVERS_JSON       its name there is "everything" */
#include "support.h"

int main(int argc, char **argv)
{
    mcpconn_client *client;
    completion done;
    mcpconn_scope *scope = scope_of("conversation");
    uint64_t id, started;

    CHECK(argc == 2);
    client = client_with(argv[1]);

    CHECK_STATUS(mcpconn_client_list_tools(client, str(NULL), str("everything"), NULL, &id, NULL), MCPCONN_OK);
    done = finish(client, id);
    CHECK_STATUS(done.status, MCPCONN_OK);
    CHECK_SAYS(done.text, "echo");
    CHECK_SAYS(done.text, "get-sum");
    CHECK_SAYS(done.text, "trigger-long-running-operation");

    CHECK_CALL(client, NULL, "everything", "echo", "{\"message\":\"hello\"}", "Echo: hello");
    CHECK_CALL(client, scope, "everything", "get-sum", "{\"a\":2,\"b\":3}", "The sum of 2 and 3 is 5.");

    done = call(client, scope, "everything", "trigger-long-running-operation", "{\"duration\":1,\"steps\":4}");
    CHECK_STATUS(done.status, MCPCONN_OK);
    CHECK_SAYS(done.text, "completed");
    CHECK(done.progress >= 1);

    /* Cancelled once it certainly runs, so that the server has to be told. */
    started = now_ms();
    id = begin(client, scope, "everything", "trigger-long-running-operation", "{\"duration\":60,\"steps\":600}");
    for (;;) {
        mcpconn_event *event = next_event(client, PATIENCE_MS);
        int running = mcpconn_event_id(event) == id && mcpconn_event_kind(event) == MCPCONN_EVENT_PROGRESS;
        mcpconn_event_free(event);
        if (running)
            break;
    }
    CHECK_STATUS(mcpconn_client_cancel(client, id), MCPCONN_OK);
    done = finish(client, id);
    CHECK_STATUS(done.status, MCPCONN_ERR_CANCELED);
    CHECK(now_ms() - started < 50000);

    CHECK_CALL(client, scope, "everything", "echo", "{\"message\":\"still there\"}", "still there");
    mcpconn_scope_free(scope);
    end(client);
    return 0;
}
