/* A client that was made before a fork is of no use in the child, says so, and stays the parent's.
 *
 * after_fork DEMO_SERVER */
#include "support.h"

#include <sys/wait.h>

static void child(mcpconn_client *client)
{
    mcpconn_event *event = NULL;
    mcpconn_error *error = NULL;
    mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;

    CHECK_STATUS(mcpconn_client_call_tool(client, NULL, str("demo"), str("echo"), str("{}"), NULL, NULL, &error),
                 MCPCONN_ERR_FORKED);
    CHECK(error);
    mcpconn_error_free(error);
    CHECK_STATUS(mcpconn_client_next_event(client, &event), MCPCONN_ERR_FORKED);
    CHECK_STATUS(mcpconn_client_wait(client, 0), MCPCONN_ERR_FORKED);
    CHECK_STATUS(mcpconn_client_dispatch(client, 0, NULL), MCPCONN_ERR_FORKED);
    CHECK_STATUS(mcpconn_client_server_info(client, str(NULL), str("demo"), &info, NULL), MCPCONN_ERR_FORKED);
    CHECK_STATUS(mcpconn_client_close(client, 0), MCPCONN_ERR_FORKED);
    mcpconn_client_free(client);
    _exit(0);
}

int main(int argc, char **argv)
{
    char servers[2048];
    mcpconn_client *client;
    completion before, after;
    pid_t forked;
    int status = -1;

    CHECK(argc == 2);
    snprintf(servers, sizeof servers, "{\"demo\":{\"command\":\"%s\"}}", argv[1]);
    client = client_with(servers);
    before = call(client, NULL, "demo", "whoami", "");
    CHECK_STATUS(before.status, MCPCONN_OK);

    fflush(stdout);
    forked = fork();
    CHECK(forked >= 0);
    if (forked == 0)
        child(client);
    CHECK(waitpid(forked, &status, 0) == forked);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    after = call(client, NULL, "demo", "whoami", "");
    CHECK_STATUS(after.status, MCPCONN_OK);
    CHECK(strcmp(before.text, after.text) == 0);
    end(client);
    return 0;
}
