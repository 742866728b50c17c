/* A host that leaves SIGPIPE at its default and ignores SIGCHLD, and whose server is killed again and again just
 * before it is called.
 *
 * signals DEMO_SERVER */
#include "support.h"

int main(int argc, char **argv)
{
    char servers[2048];
    mcpconn_client *client;
    struct sigaction action;
    int round;

    CHECK(argc == 2);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGCHLD, SIG_IGN);
    snprintf(servers, sizeof servers, "{\"demo\":{\"command\":\"%s\"}}", argv[1]);
    client = client_with(servers);

    for (round = 0; round < 4; round++) {
        mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;
        completion done;
        CHECK_CALL(client, NULL, "demo", "echo", "{\"text\":\"before\"}", "before");
        CHECK_STATUS(mcpconn_client_server_info(client, str(NULL), str("demo"), &info, NULL), MCPCONN_OK);
        CHECK(info.pid > 0);
        CHECK(kill((pid_t)info.pid, SIGKILL) == 0);
        done = call(client, NULL, "demo", "echo", "{\"text\":\"after\"}");
        /* It was answered by a new process, or it went to the dead one and says so; the host lives. */
        if (done.status == MCPCONN_OK)
            CHECK_SAYS(done.text, "after");
        else
            CHECK(done.outcome == MCPCONN_OUTCOME_UNKNOWN);
    }
    CHECK_CALL(client, NULL, "demo", "echo", "{\"text\":\"alive\"}", "alive");
    end(client);

    /* What the host chose is as it was. */
    CHECK(sigaction(SIGPIPE, NULL, &action) == 0);
    CHECK(action.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGCHLD, NULL, &action) == 0);
    CHECK(action.sa_handler == SIG_IGN);
    return 0;
}
