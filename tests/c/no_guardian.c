/* A client without a guardian has no process but its servers, and leaves none of them and of their children.
 *
 * no_guardian DEMO_SERVER LOG */
#include "support.h"

static mcpconn_client *client_with_flags(uint32_t flags, const char *servers)
{
    mcpconn_client_options options = MCPCONN_CLIENT_OPTIONS_INIT;
    mcpconn_client *client = NULL;
    options.flags = flags;
    CHECK_STATUS(mcpconn_client_new(&options, &client, NULL), MCPCONN_OK);
    CHECK_STATUS(mcpconn_client_configure(client, str(NULL), str(servers), NULL, NULL), MCPCONN_OK);
    return client;
}

static void a_flag_that_is_none_is_named(void)
{
    mcpconn_client_options options = MCPCONN_CLIENT_OPTIONS_INIT;
    mcpconn_client *client = NULL;
    mcpconn_error *error = NULL;
    options.flags = MCPCONN_CLIENT_NO_GUARDIAN | 0x40000000u;
    CHECK_STATUS(mcpconn_client_new(&options, &client, &error), MCPCONN_ERR_INVALID);
    CHECK(!client);
    CHECK_SAYS(mcpconn_error_message(error).ptr, "flags");
    mcpconn_error_free(error);
}

int main(int argc, char **argv)
{
    char servers[2048];
    mcpconn_client *client;

    CHECK(argc == 3);
    snprintf(servers, sizeof servers, "{\"demo\":{\"command\":\"%s\",\"args\":[\"--log\",\"%s\",\"--helper\"]}}", argv[1],
             argv[2]);

    client = client_with_flags(0, servers);
    CHECK_CALL(client, NULL, "demo", "echo", "{\"text\":\"guarded\"}", "guarded");
    CHECK(children_left() == 2);
    end(client);

    client = client_with_flags(MCPCONN_CLIENT_NO_GUARDIAN, servers);
    CHECK_CALL(client, NULL, "demo", "echo", "{\"text\":\"alone\"}", "alone");
    CHECK(children_left() == 1);
    end(client);

    a_flag_that_is_none_is_named();
    return 0;
}
