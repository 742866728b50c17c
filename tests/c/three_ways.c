/* The three ways to hear how a call went: callbacks from a loop that polls the descriptor, events that are taken one
 * by one from such a loop, and waiting without any loop.
 *
 * three_ways DEMO_SERVER */
#include "support.h"

typedef struct heard {
    int results, progress, freed;
    char text[256];
} heard;

static heard ours;

static void on_event(void *user_data, const mcpconn_event *event)
{
    CHECK(user_data == &ours);
    if (mcpconn_event_kind(event) == MCPCONN_EVENT_RESULT) {
        ours.results++;
        copy_text(ours.text, sizeof ours.text, mcpconn_event_text(event));
        CHECK(mcpconn_event_token(event) == 42);
    }
    ours.progress += mcpconn_event_kind(event) == MCPCONN_EVENT_PROGRESS;
}

static void on_free(void *user_data)
{
    CHECK(user_data == &ours);
    ours.freed++;
}

static void poll_descriptor(mcpconn_client *client)
{
    struct pollfd descriptor;
    descriptor.fd = mcpconn_client_fd(client);
    descriptor.events = POLLIN;
    CHECK(poll(&descriptor, 1, PATIENCE_MS) == 1);
}

static void by_callbacks(mcpconn_client *client)
{
    mcpconn_call_options options = MCPCONN_CALL_OPTIONS_INIT;

    options.token = 42;
    options.progress = 1;
    options.on_event = on_event;
    options.user_data = &ours;
    options.free_user_data = on_free;
    CHECK_STATUS(mcpconn_client_call_tool(client, NULL, str("demo"), str("sleep"), str("{\"ms\":150}"), &options, NULL, NULL),
                 MCPCONN_OK);
    CHECK(ours.results == 0);
    while (ours.results == 0) {
        size_t count = 0;
        poll_descriptor(client);
        CHECK(mcpconn_client_dispatch(client, 0, &count) >= 0);
    }
    CHECK_SAYS(ours.text, "slept 150 ms");
    CHECK(ours.results == 1);
    CHECK(ours.progress >= 1);
}

static void one_by_one(mcpconn_client *client)
{
    uint64_t id = begin(client, NULL, "demo", "echo", "{\"text\":\"one by one\"}");
    int done = 0;
    while (!done) {
        mcpconn_event *event = NULL;
        poll_descriptor(client);
        while (mcpconn_client_next_event(client, &event) == MCPCONN_OK) {
            if (mcpconn_event_id(event) == id && mcpconn_event_kind(event) == MCPCONN_EVENT_RESULT) {
                CHECK_SAYS(completion_of(event).text, "one by one");
                done = 1;
            }
            mcpconn_event_free(event);
        }
    }
}

static void the_descriptor_is_quiet(mcpconn_client *client)
{
    struct pollfd descriptor;
    while (mcpconn_client_dispatch(client, 0, NULL) == MCPCONN_OK)
        ;
    descriptor.fd = mcpconn_client_fd(client);
    descriptor.events = POLLIN;
    CHECK(poll(&descriptor, 1, 0) == 0);
}

int main(int argc, char **argv)
{
    char servers[2048];
    mcpconn_client *client;

    CHECK(argc == 2);
    snprintf(servers, sizeof servers, "{\"demo\":{\"command\":\"%s\"}}", argv[1]);
    client = client_with(servers);
    by_callbacks(client);
    one_by_one(client);
    the_descriptor_is_quiet(client);
    CHECK_CALL(client, NULL, "demo", "echo", "{\"text\":\"waited\"}", "waited");
    end(client);
    CHECK(ours.freed == 1);
    return 0;
}
