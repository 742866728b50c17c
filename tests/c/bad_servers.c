/* Servers that cannot be had: each is told apart and named, and holds up no other.
 *
 * bad_servers DEMO_SERVER CLOSED_PORT WEB_PAGE_URL */
#include "support.h"

static mcpconn_client *client;

/* A call to the server fails without having run, and the error names the server and the thing. */
static void fails(const char *server, mcpconn_status status, const char *thing)
{
    completion done = call(client, NULL, server, "echo", "{\"text\":\"hello\"}");
    printf("%s: %s\n", server, done.text);
    CHECK_STATUS(done.status, status);
    CHECK(done.outcome == MCPCONN_OUTCOME_NOT_SENT);
    CHECK_SAYS(done.text, server);
    CHECK_SAYS(done.text, thing);
    CHECK_CALL(client, NULL, "good", "echo", "{\"text\":\"meanwhile\"}", "meanwhile");
}

int main(int argc, char **argv)
{
    char servers[4096], address[64];

    CHECK(argc == 4);
    snprintf(address, sizeof address, "127.0.0.1:%s", argv[2]);
    snprintf(servers, sizeof servers,
             "{\"mcpServers\":{"
             "\"good\":{\"command\":\"%s\"},"
             "\"no-program\":{\"command\":\"no-such-program\"},"
             "\"no-file\":{\"command\":\"/no/such/file\"},"
             "\"no-directory\":{\"command\":\"%s\",\"cwd\":\"/no/such/directory\"},"
             "\"no-url\":{\"url\":\"this is no url\"},"
             "\"nobody\":{\"url\":\"http://%s/mcp\"},"
             "\"web-page\":{\"url\":\"%s\"},"
             "\"garbage\":{\"command\":\"%s\",\"args\":[\"--garbage\"],\"mcpconn\":{\"connect_timeout_ms\":1000}},"
             "\"exits\":{\"command\":\"%s\",\"args\":[\"--exit-at-start\",\"7\"]},"
             "\"neither\":{\"comand\":\"misspelt\"}}}",
             argv[1], argv[1], address, argv[3], argv[1], argv[1]);
    client = client_with(servers);

    fails("no-program", MCPCONN_ERR_CONFIG, "no-such-program");
    fails("no-file", MCPCONN_ERR_CONFIG, "/no/such/file");
    fails("no-directory", MCPCONN_ERR_CONFIG, "/no/such/directory");
    fails("no-url", MCPCONN_ERR_CONFIG, "it is no URL");
    fails("nobody", MCPCONN_ERR_TRANSPORT, address);
    fails("web-page", MCPCONN_ERR_PROTOCOL, "text/html");
    fails("garbage", MCPCONN_ERR_TIMEOUT, "initialize");
    fails("exits", MCPCONN_ERR_TRANSPORT, "7");
    fails("neither", MCPCONN_ERR_CONFIG, "command");
    end(client);
    return 0;
}
