/* The servers are given again: the report says which were added, changed, removed, unchanged and unusable, and only
 * those that it says are touched.
 *
 * configure_again DEMO_SERVER */
#include "support.h"

static mcpconn_client *client;
static char *demo;

/* Gives the servers again; a server that the text names by %s has the demo server's command. */
static void configure(const char *format, const char *report_says)
{
    char servers[4096];
    mcpconn_text *report = NULL;
    snprintf(servers, sizeof servers, format, demo, demo, demo);
    CHECK_STATUS(mcpconn_client_configure(client, str(NULL), str(servers), &report, NULL), MCPCONN_OK);
    CHECK_SAYS(mcpconn_text_str(report).ptr, report_says);
    mcpconn_text_free(report);
}

int main(int argc, char **argv)
{
    mcpconn_scope *chat = scope_of("chat");
    mcpconn_text *report = NULL;
    mcpconn_error *error = NULL;
    completion done;
    uint64_t removed, changed;

    CHECK(argc == 2);
    demo = argv[1];
    CHECK_STATUS(mcpconn_client_new(NULL, &client, NULL), MCPCONN_OK);
    configure("{\"stays\":{\"command\":\"%s\"},\"changes\":{\"command\":\"%s\"},\"goes\":{\"command\":\"%s\"}}",
              "{\"added\":[\"changes\",\"goes\",\"stays\"],\"changed\":[],\"removed\":[],\"unchanged\":[],\"invalid\":[]}");
    CHECK_CALL(client, NULL, "stays", "counter", "", "1");
    CHECK_CALL(client, chat, "stays", "counter", "", "1");
    CHECK_CALL(client, chat, "changes", "counter", "", "1");
    CHECK_CALL(client, NULL, "goes", "counter", "", "1");
    changed = begin(client, chat, "changes", "sleep", "{\"ms\":600000}");
    removed = begin(client, NULL, "goes", "sleep", "{\"ms\":600000}");

    /* What is not JSON, or not of the shape, changes nothing. */
    CHECK_STATUS(mcpconn_client_configure(client, str(NULL), str("{\"stays\":"), &report, &error), MCPCONN_ERR_CONFIG);
    CHECK(!report);
    mcpconn_error_free(error);

    configure("{\"stays\":{\"command\":\"%s\",\"mcpconn\":{\"close_timeout_ms\":1000}},"
              "\"changes\":{\"command\":\"%s\",\"env\":{\"NEW\":\"1\"}},\"comes\":{\"command\":\"%s\"},\"wrong\":{}}",
              "{\"added\":[\"comes\"],\"changed\":[\"changes\"],\"removed\":[\"goes\"],\"unchanged\":[\"stays\"],"
              "\"invalid\":[{\"server\":\"wrong\",\"message\":\"");
    done = finish(client, changed);
    CHECK_STATUS(done.status, MCPCONN_ERR_CLOSED);
    done = finish(client, removed);
    CHECK_STATUS(done.status, MCPCONN_ERR_CLOSED);
    CHECK_CALL(client, NULL, "stays", "counter", "", "2");
    CHECK_CALL(client, chat, "stays", "counter", "", "2");
    CHECK_CALL(client, chat, "changes", "counter", "", "1");
    CHECK_CALL(client, NULL, "comes", "counter", "", "1");
    done = call(client, NULL, "goes", "counter", "");
    CHECK_STATUS(done.status, MCPCONN_ERR_UNKNOWN_SERVER);
    done = call(client, NULL, "wrong", "counter", "");
    CHECK_STATUS(done.status, MCPCONN_ERR_CONFIG);

    /* A server that is unusable from now on is removed besides; one that comes back is a new one. */
    configure("{\"stays\":{},\"goes\":{\"command\":\"%s\"}}",
              "{\"added\":[\"goes\"],\"changed\":[],\"removed\":[\"changes\",\"comes\",\"stays\"],\"unchanged\":[],"
              "\"invalid\":[{\"server\":\"stays\"");
    CHECK_CALL(client, NULL, "goes", "counter", "", "1");

    mcpconn_scope_free(chat);
    end(client);
    return 0;
}
