/* The main job over Streamable HTTP, with a session that expires in the middle of it.
 *
 * http_job URL */
#include "support.h"

static const char *const SERVER = "demo";

int main(int argc, char **argv)
{
    char servers[1024];
    mcpconn_client *client;
    mcpconn_scope *scope = scope_of("conversation");
    completion done;
    uint64_t id;
    int descriptors = open_descriptors(0);

    CHECK(argc == 2);
    snprintf(servers, sizeof servers, "{\"demo\":{\"type\":\"http\",\"url\":\"%s\"}}", argv[1]);
    client = client_with(servers);

    CHECK_STATUS(mcpconn_client_list_tools(client, str(NULL), str(SERVER), NULL, &id, NULL), MCPCONN_OK);
    done = finish(client, id);
    CHECK_STATUS(done.status, MCPCONN_OK);
    CHECK_SAYS(done.text, "echo");

    CHECK_CALL(client, NULL, SERVER, "add", "{\"a\":2,\"b\":3}", "5");
    CHECK_CALL(client, NULL, SERVER, "counter", "", "1");
    CHECK_CALL(client, scope, SERVER, "counter", "", "1");
    CHECK_CALL(client, scope, SERVER, "counter", "", "2");
    done = call(client, scope, SERVER, "fail", "");
    CHECK_STATUS(done.status, MCPCONN_OK);
    CHECK(done.is_tool_error);
    done = call(client, NULL, SERVER, "no-such-tool", "");
    CHECK_STATUS(done.status, MCPCONN_ERR_SERVER);

    done = call(client, NULL, SERVER, "sleep", "{\"ms\":200}");
    CHECK_STATUS(done.status, MCPCONN_OK);
    CHECK(done.progress >= 1);
    id = begin(client, NULL, SERVER, "sleep", "{\"ms\":600000}");
    for (;;) {
        mcpconn_event *event = next_event(client, PATIENCE_MS);
        int running = mcpconn_event_id(event) == id && mcpconn_event_kind(event) == MCPCONN_EVENT_PROGRESS;
        mcpconn_event_free(event);
        if (running)
            break;
    }
    CHECK_STATUS(mcpconn_client_cancel(client, id), MCPCONN_OK);
    CHECK_STATUS(finish(client, id).status, MCPCONN_ERR_CANCELED);

    CHECK_CALL(client, scope, SERVER, "expire", "", "over");
    done = call(client, scope, SERVER, "counter", "");
    CHECK_STATUS(done.status, MCPCONN_OK);
    CHECK_SAYS(done.text, "1");
    CHECK(done.replaced);
    CHECK_CALL(client, NULL, SERVER, "counter", "", "2");

    mcpconn_scope_free(scope);
    end(client);
    check_descriptors(descriptors);
    return 0;
}
