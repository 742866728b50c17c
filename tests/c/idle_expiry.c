/* A session that the server let expire is replaced without the caller noticing.
 *
 * idle_expiry URL       says "first answered", and goes on when the test says that the session has expired */
#include "support.h"

int main(int argc, char **argv)
{
    char servers[1024];
    mcpconn_client *client;
    mcpconn_scope *scope = scope_of("conversation");
    completion first, second;

    CHECK(argc == 2);
    /* To this server no session is idle whose stream is open. */
    snprintf(servers, sizeof servers, "{\"greeter\":{\"url\":\"%s\",\"mcpconn\":{\"listen\":false}}}", argv[1]);
    client = client_with(servers);

    first = call(client, NULL, "greeter", "greet", "{\"name\":\"first\"}");
    CHECK_STATUS(first.status, MCPCONN_OK);
    CHECK_SAYS(first.text, "Hello, first!");
    CHECK_CALL(client, scope, "greeter", "greet", "{\"name\":\"scoped\"}", "Hello, scoped!");
    say("first answered");
    await_go();

    second = call(client, NULL, "greeter", "greet", "{\"name\":\"second\"}");
    CHECK_STATUS(second.status, MCPCONN_OK);
    CHECK_SAYS(second.text, "Hello, second!");
    CHECK(second.generation > first.generation);
    CHECK(second.replaced);
    CHECK_CALL(client, scope, "greeter", "greet", "{\"name\":\"scoped again\"}", "Hello, scoped again!");
    mcpconn_scope_free(scope);
    end(client);
    return 0;
}
