/* A server that wants a token: the host is asked for it, gives it, and calls again.
 *
 * credentials URL TOKEN */
#include "support.h"

static const char *const SERVER = "demo";

/* Whether the host is asked for credentials by this event, as the demo server does. */
static int asks(const mcpconn_event *event)
{
    char json[512];
    if (mcpconn_event_kind(event) != MCPCONN_EVENT_CREDENTIALS_NEEDED)
        return 0;
    copy_text(json, sizeof json, mcpconn_event_json(event));
    CHECK_SAYS(json, "\"status\":401");
    CHECK_SAYS(json, "\"scheme\":\"Bearer\"");
    CHECK_SAYS(json, "\"realm\":\"demo\"");
    CHECK_SAYS(json, "\"scope\":\"tools\"");
    CHECK_SAYS(mcpconn_event_domain(event).ptr, "deployment");
    CHECK_SAYS(mcpconn_event_server(event).ptr, SERVER);
    CHECK_SAYS(mcpconn_event_text(event).ptr, "wants credentials");
    return 1;
}

/* Calls, and is refused; gives how often the host is asked for credentials meanwhile. */
static int refused(mcpconn_client *client)
{
    int asked = 0;
    uint64_t id = begin(client, NULL, SERVER, "echo", "{\"text\":\"hello\"}");
    for (;;) {
        mcpconn_event *event = next_event(client, PATIENCE_MS);
        int32_t kind = mcpconn_event_kind(event);
        asked += asks(event);
        if (mcpconn_event_id(event) == id && kind != MCPCONN_EVENT_PROGRESS) {
            CHECK(kind == MCPCONN_EVENT_ERROR);
            CHECK_STATUS(mcpconn_error_status(mcpconn_event_error(event)), MCPCONN_ERR_AUTH);
            mcpconn_event_free(event);
            return asked;
        }
        mcpconn_event_free(event);
    }
}

static void give(mcpconn_client *client, const char *token)
{
    char value[128];
    mcpconn_error *error = NULL;
    snprintf(value, sizeof value, "Bearer %s", token);
    if (mcpconn_client_set_header(client, str(NULL), str(SERVER), str("Authorization"), str(value), &error))
        printf("%s\n", mcpconn_error_message(error).ptr);
    CHECK(!error);
}

/* Waits until the host is asked (state 0) or the server is in this state. */
static void await(mcpconn_client *client, int32_t state)
{
    int there = 0;
    while (!there) {
        mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;
        mcpconn_event *event = next_event(client, PATIENCE_MS);
        if (state)
            there = mcpconn_event_server_info(event, &info) == MCPCONN_OK && info.state == state;
        else
            there = asks(event);
        mcpconn_event_free(event);
    }
}

int main(int argc, char **argv)
{
    char servers[1024];
    mcpconn_client *client;
    mcpconn_error *error = NULL;

    CHECK(argc == 3);
    snprintf(servers, sizeof servers, "{\"demo\":{\"url\":\"%s\"}}", argv[1]);
    client = client_with(servers);
    CHECK(refused(client) == 1);
    CHECK(refused(client) == 0); /* parked, and said once */

    /* Neither takes a call. */
    give(client, "wrong");
    await(client, 0);
    give(client, argv[2]);
    await(client, MCPCONN_STATE_UNPROVEN);
    CHECK_CALL(client, NULL, SERVER, "echo", "{\"text\":\"hello\"}", "hello");

    CHECK_STATUS(mcpconn_client_set_header(client, str(NULL), str(SERVER), str("Content-Length"), str("1"), &error),
                 MCPCONN_ERR_INVALID);
    CHECK_SAYS(mcpconn_error_message(error).ptr, "content-length");
    mcpconn_error_free(error);
    end(client);
    return 0;
}
