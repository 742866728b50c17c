/* Arguments that are not what they must be: each is refused at once with a text that names it, and the client goes on.
 *
 * bad_arguments DEMO_SERVER */
#include "support.h"

static mcpconn_client *client;

/* The status and the text of a refusal; then the client still serves. */
static void refused(mcpconn_status status, mcpconn_status expected, mcpconn_error **error, const char *says)
{
    char text[1024] = "";
    CHECK_STATUS(status, expected);
    CHECK(*error);
    CHECK_STATUS(mcpconn_error_status(*error), expected);
    copy_text(text, sizeof text, mcpconn_error_message(*error));
    printf("%s\n", text);
    CHECK_SAYS(text, says);
    mcpconn_error_free(*error);
    *error = NULL;
    if (client)
        CHECK_CALL(client, NULL, "demo", "echo", "{\"text\":\"meanwhile\"}", "meanwhile");
}

#define REFUSED(expected, says, function_call) refused(function_call, expected, &error, says)

static mcpconn_str bytes(const char *text, size_t length)
{
    mcpconn_str given;
    given.ptr = text;
    given.len = length;
    return given;
}

static void options(void)
{
    mcpconn_error *error = NULL;
    mcpconn_client *none = NULL;
    mcpconn_client_options good = MCPCONN_CLIENT_OPTIONS_INIT, bad;
    /* A later header's struct: longer, with something that this library does not know. */
    struct longer {
        mcpconn_client_options known;
        uint64_t unknown;
    } longer;
    /* Room for one that begins at an odd address. */
    char room[sizeof(mcpconn_client_options) + 16];
    char *odd = room + 1 + (8 - (size_t)room % 8) % 8;

    bad = good;
    bad.struct_size = 0;
    REFUSED(MCPCONN_ERR_INVALID, "struct_size is 0", mcpconn_client_new(&bad, &none, &error));
    bad.struct_size = 3;
    REFUSED(MCPCONN_ERR_INVALID, "struct_size is 3", mcpconn_client_new(&bad, &none, &error));
    bad.struct_size = (size_t)-8;
    REFUSED(MCPCONN_ERR_INVALID, "struct_size", mcpconn_client_new(&bad, &none, &error));
    bad = good;
    bad.host_takes = 1u << 31;
    REFUSED(MCPCONN_ERR_INVALID, "host_takes", mcpconn_client_new(&bad, &none, &error));
    bad = good;
    bad.client_name = bytes("\xff", 1);
    REFUSED(MCPCONN_ERR_INVALID, "client_name", mcpconn_client_new(&bad, &none, &error));
    memset(&longer, 0, sizeof longer);
    longer.known.struct_size = sizeof longer;
    longer.unknown = 1;
    REFUSED(MCPCONN_ERR_INVALID, "mcpconn_client_options", mcpconn_client_new(&longer.known, &none, &error));
    memcpy(odd, &good, sizeof good);
    REFUSED(MCPCONN_ERR_INVALID, "aligned", mcpconn_client_new((mcpconn_client_options *)(void *)odd, &none, &error));
    REFUSED(MCPCONN_ERR_INVALID, "out is NULL", mcpconn_client_new(&good, NULL, &error));
    CHECK(!none);

    /* What is longer but says nothing new is fine, and so is what is shorter. */
    longer.unknown = 0;
    CHECK_STATUS(mcpconn_client_new(&longer.known, &none, NULL), MCPCONN_OK);
    mcpconn_client_free(none);
    good.struct_size = sizeof(size_t);
    CHECK_STATUS(mcpconn_client_new(&good, &none, NULL), MCPCONN_OK);
    mcpconn_client_free(none);
}

static void null_handles(void)
{
    mcpconn_event *event = NULL;
    mcpconn_error *error = NULL;
    mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;

    mcpconn_client_free(NULL);
    mcpconn_scope_free(NULL);
    mcpconn_event_free(NULL);
    mcpconn_error_free(NULL);
    mcpconn_text_free(NULL);
    CHECK(mcpconn_client_fd(NULL) == -1);
    CHECK(mcpconn_event_kind(NULL) == 0);
    CHECK(mcpconn_event_text(NULL).len == 0);
    CHECK(mcpconn_event_error(NULL) == NULL);
    CHECK(mcpconn_error_message(NULL).len == 0);
    CHECK_STATUS(mcpconn_error_status(NULL), MCPCONN_OK);
    CHECK_STATUS(mcpconn_client_wait(NULL, 0), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_client_next_event(NULL, &event), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_client_dispatch(NULL, 0, NULL), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_client_close(NULL, 0), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_client_cancel(NULL, 1), MCPCONN_ERR_INVALID);
    REFUSED(MCPCONN_ERR_INVALID, "client is NULL", mcpconn_client_configure(NULL, str(NULL), str("{}"), NULL, &error));
    REFUSED(MCPCONN_ERR_INVALID, "client is NULL", mcpconn_client_server_info(NULL, str(NULL), str("demo"), &info, &error));
}

static void configuration(void)
{
    mcpconn_error *error = NULL;
    REFUSED(MCPCONN_ERR_CONFIG, "configuration cannot be read", mcpconn_client_configure(client, str(NULL), str("{\"mcpServers\":"), NULL, &error));
    REFUSED(MCPCONN_ERR_CONFIG, "object", mcpconn_client_configure(client, str(NULL), str("[1,2]"), NULL, &error));
    REFUSED(MCPCONN_ERR_INVALID, "UTF-8", mcpconn_client_configure(client, str(NULL), bytes("{\"\xff\":{}}", 8), NULL, &error));
    REFUSED(MCPCONN_ERR_INVALID, "NULL", mcpconn_client_configure(client, str(NULL), bytes(NULL, 5), NULL, &error));
}

static void calls(void)
{
    mcpconn_error *error = NULL;
    mcpconn_call_options wrong = MCPCONN_CALL_OPTIONS_INIT;
    mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;
    uint64_t id = 77;

#define CALL(server, tool, arguments) mcpconn_client_call_tool(client, NULL, server, tool, arguments, NULL, &id, &error)
    REFUSED(MCPCONN_ERR_UNKNOWN_SERVER, "no-such-server", CALL(str("no-such-server"), str("echo"), str("{}")));
    REFUSED(MCPCONN_ERR_INVALID, "server", CALL(bytes("\xc3", 1), str("echo"), str("{}")));
    REFUSED(MCPCONN_ERR_INVALID, "tool", CALL(str("demo"), bytes("\xc3", 1), str("{}")));
    REFUSED(MCPCONN_ERR_INVALID, "arguments_json", CALL(str("demo"), str("echo"), bytes("{\"text\":\"\xff\"}", 12)));
    REFUSED(MCPCONN_ERR_INVALID, "arguments", CALL(str("demo"), str("echo"), str("{\"text\":")));
    REFUSED(MCPCONN_ERR_INVALID, "arguments", CALL(str("demo"), str("echo"), str("[\"text\"]")));
    CHECK(id == 77);

    wrong.struct_size = 1;
    REFUSED(MCPCONN_ERR_INVALID, "mcpconn_call_options",
            mcpconn_client_call_tool(client, NULL, str("demo"), str("echo"), str("{}"), &wrong, &id, &error));
    REFUSED(MCPCONN_ERR_UNKNOWN_SERVER, "no-such-server",
            mcpconn_client_server_info(client, str(NULL), str("no-such-server"), &info, &error));
    REFUSED(MCPCONN_ERR_INVALID, "out is NULL", mcpconn_client_server_info(client, str(NULL), str("demo"), NULL, &error));
    REFUSED(MCPCONN_ERR_UNKNOWN_SERVER, "no-such-server", mcpconn_client_wake(client, str(NULL), str("no-such-server"), &error));

    /* Without an out-parameter for the error there is the status alone. */
    CHECK_STATUS(mcpconn_client_wake(client, str(NULL), str("no-such-server"), NULL), MCPCONN_ERR_UNKNOWN_SERVER);
    CHECK_STATUS(mcpconn_client_cancel(client, 123456), MCPCONN_EMPTY);
}

int main(int argc, char **argv)
{
    char servers[2048];

    CHECK(argc == 2);
    options();
    null_handles();
    snprintf(servers, sizeof servers, "{\"mcpServers\":{\"demo\":{\"command\":\"%s\"}}}", argv[1]);
    client = client_with(servers);
    configuration();
    calls();
    end(client);
    return 0;
}
