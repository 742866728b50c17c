/* Closing the client while the reconnect after an expiry is held up.
 *
 * close_while_reconnecting URL       says "first answered", "second begun", "closing" and "closed"; goes on after each
 *                                    of the first two when the test says so */
#include "support.h"

#define LIMIT_MS 3000

int main(int argc, char **argv)
{
    char servers[1024];
    mcpconn_client *client;
    uint64_t id, began;
    int completed = 0, closed = 0, descriptors = open_descriptors(0);

    CHECK(argc == 2);
    /* To this server no session is idle whose stream is open. */
    snprintf(servers, sizeof servers, "{\"greeter\":{\"url\":\"%s\",\"mcpconn\":{\"listen\":false}}}", argv[1]);
    client = client_with(servers);
    CHECK_CALL(client, NULL, "greeter", "greet", "{\"name\":\"first\"}", "Hello, first!");
    say("first answered");
    await_go();

    id = begin(client, NULL, "greeter", "greet", "{\"name\":\"second\"}");
    say("second begun");
    await_go();

    began = now_ms();
    CHECK_STATUS(mcpconn_client_close(client, LIMIT_MS), MCPCONN_OK);
    say("closing");
    while (!closed) {
        mcpconn_event *event = next_event(client, PATIENCE_MS);
        int32_t kind = mcpconn_event_kind(event);
        if (mcpconn_event_id(event) == id) {
            CHECK(kind == MCPCONN_EVENT_ERROR);
            CHECK_STATUS(mcpconn_error_status(mcpconn_event_error(event)), MCPCONN_ERR_CLOSED);
            CHECK(mcpconn_error_outcome(mcpconn_event_error(event)) == MCPCONN_OUTCOME_NOT_SENT);
            completed++;
        }
        closed = kind == MCPCONN_EVENT_CLOSED;
        mcpconn_event_free(event);
    }
    CHECK(completed == 1);
    /* The limit, and what a busy machine may add to it. */
    CHECK(now_ms() - began < LIMIT_MS + 2000);
    end(client);
    check_descriptors(descriptors);
    say("closed");
    return 0;
}
