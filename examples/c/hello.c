/* Calls a tool of an MCP server and prints its answer:  hello ECHO-SERVER-COMMAND */
#include <mcpconn.h>
#include <stdio.h>

static int failed(const char *what, mcpconn_client *client, mcpconn_error *error)
{
    fprintf(stderr, "%s: %s\n", what, mcpconn_error_message(error).ptr);
    mcpconn_error_free(error);
    mcpconn_client_free(client);
    return 1;
}

int main(int argc, char **argv)
{
    mcpconn_client *client = NULL;
    mcpconn_event *event = NULL;
    mcpconn_error *error = NULL;
    uint64_t call = 0;
    char servers[4096];
    int done = 0, result = 1;

    snprintf(servers, sizeof servers, "{\"mcpServers\": {\"demo\": {\"command\": \"%s\"}}}", argc > 1 ? argv[1] : "");
    if (mcpconn_client_new(NULL, &client, &error))
        return failed("new", client, error);
    if (mcpconn_client_configure(client, MCPCONN_DEPLOYMENT, mcpconn_cstr(servers), NULL, &error))
        return failed("configure", client, error);
    if (mcpconn_client_call_tool(client, NULL, mcpconn_cstr("demo"), mcpconn_cstr("echo"),
                                 mcpconn_cstr("{\"text\": \"hello\"}"), NULL, &call, &error))
        return failed("call", client, error);

    while (!done && mcpconn_client_wait(client, MCPCONN_FOREVER) == MCPCONN_OK) {
        while (mcpconn_client_next_event(client, &event) == MCPCONN_OK) {
            if (mcpconn_event_id(event) == call) {
                printf("%s\n", mcpconn_event_text(event).ptr);
                result = mcpconn_event_kind(event) != MCPCONN_EVENT_RESULT;
                done = 1;
            }
            mcpconn_event_free(event);
        }
    }
    mcpconn_client_free(client);
    return result;
}
