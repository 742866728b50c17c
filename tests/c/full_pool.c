/* A full pool refuses a new scope while a call is in flight, and does not touch that call.
 *
 * full_pool DEMO_SERVER */
#include "support.h"

int main(int argc, char **argv)
{
    char servers[2048];
    mcpconn_client_options options = MCPCONN_CLIENT_OPTIONS_INIT;
    mcpconn_client *client = NULL;
    mcpconn_scope *one = scope_of("one"), *two = scope_of("two");
    completion done;
    uint64_t running;

    CHECK(argc == 2);
    snprintf(servers, sizeof servers, "{\"demo\":{\"command\":\"%s\"}}", argv[1]);
    options.pool_json = str("{\"capacity\": 1}");
    CHECK_STATUS(mcpconn_client_new(&options, &client, NULL), MCPCONN_OK);
    CHECK_STATUS(mcpconn_client_configure(client, str(NULL), str(servers), NULL, NULL), MCPCONN_OK);

    CHECK_CALL(client, one, "demo", "counter", "", "1");
    running = begin(client, one, "demo", "sleep", "{\"ms\":2000}");
    done = call(client, two, "demo", "echo", "{\"text\":\"refused\"}");
    CHECK_STATUS(done.status, MCPCONN_ERR_CAPACITY);
    CHECK(done.outcome == MCPCONN_OUTCOME_NOT_SENT);
    CHECK_SAYS(done.text, "capacity");

    /* A busy session needs no new slot. */
    CHECK_CALL(client, one, "demo", "counter", "", "2");
    done = finish(client, running);
    CHECK_STATUS(done.status, MCPCONN_OK);
    CHECK_SAYS(done.text, "slept 2000 ms");

    /* Now the first scope's session is idle, and gives way. */
    CHECK_CALL(client, two, "demo", "counter", "", "1");
    CHECK_CALL(client, one, "demo", "counter", "", "1");
    mcpconn_scope_free(one);
    mcpconn_scope_free(two);
    end(client);
    return 0;
}
