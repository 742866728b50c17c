/* The client that the official conformance suite tests: the suite starts it with the URL of a server of its own, and
 * names what is to be done there in MCP_CONFORMANCE_SCENARIO.
 *
 * conformance URL */
#include "support.h"

static const char *const SERVER = "suite";

static mcpconn_client *client;

/* Lists the tools, as the array of JSON that is given to a model. It lives as long as the program. */
static mcpconn_str tools(void)
{
    mcpconn_event *event;
    uint64_t id = 0;
    CHECK_STATUS(mcpconn_client_list_tools(client, str(NULL), str(SERVER), NULL, &id, NULL), MCPCONN_OK);
    do
        event = next_event(client, PATIENCE_MS);
    while (mcpconn_event_id(event) != id || !ends_a_call(event));
    if (mcpconn_event_kind(event) != MCPCONN_EVENT_RESULT) {
        printf("the tools are not told: %s\n", mcpconn_event_text(event).ptr);
        exit(1);
    }
    return mcpconn_event_json(event);
}

/* The JSON object that begins here, its braces included. */
static mcpconn_str object_at(const char *json, const char *end)
{
    mcpconn_str found;
    int depth = 0, quoted = 0;
    const char *at;
    for (at = json; at < end; at++) {
        if (quoted && *at == '\\')
            at++;
        else if (*at == '"')
            quoted = !quoted;
        else if (!quoted && *at == '{')
            depth++;
        else if (!quoted && *at == '}' && --depth == 0)
            break;
    }
    CHECK(at < end && *json == '{');
    found.ptr = json;
    found.len = (size_t)(at + 1 - json);
    return found;
}

/* The input schema of a tool, the bytes that the server sent. */
static mcpconn_str input_schema(mcpconn_str all, const char *tool)
{
    static const char MEMBER[] = "\"input_schema\":";
    char name[128];
    const char *end = all.ptr + all.len, *at;
    snprintf(name, sizeof name, "\"name\":\"%s__%s\"", SERVER, tool);
    at = (const char *)memmem(all.ptr, all.len, name, strlen(name));
    CHECK(at);
    at = (const char *)memmem(at, (size_t)(end - at), MEMBER, strlen(MEMBER));
    CHECK(at);
    return object_at(at + strlen(MEMBER), end);
}

static void say_hello(void)
{
    tools();
}

static void add_numbers(void)
{
    tools();
    CHECK_CALL(client, NULL, SERVER, "add_numbers", "{\"a\":2,\"b\":3}", "The sum of 2 and 3 is 5");
}

/* The answer comes only on a stream that is read on with another GET. In a scope, whose session holds no stream open
 * for what the server says on its own: the suite would take its opening for the reading on. */
static void read_on(void)
{
    mcpconn_scope *scope = scope_of("conversation");
    CHECK_CALL(client, scope, SERVER, "test_reconnection", "", "Reconnection test completed successfully");
    mcpconn_scope_free(scope);
}

/* Sends the schema of a tool back as it came. */
static void echo_schema(void)
{
    mcpconn_str schema = input_schema(tools(), "json_schema_2020_12_tool");
    char arguments[8192];
    CHECK(schema.len + 16 < sizeof arguments);
    snprintf(arguments, sizeof arguments, "{\"schema\":%.*s}", (int)schema.len, schema.ptr);
    CHECK_CALL(client, NULL, SERVER, "json_schema_echo", arguments, "echoed");
}

/* What any host does with a server that wants credentials which it does not have: it calls, and is told. */
static void call_without_credentials(void)
{
    tools();
    CHECK_CALL(client, NULL, SERVER, "test-tool", "", "");
}

static const struct {
    const char *scenario; /* or its beginning */
    void (*run)(void);
} SCENARIOS[] = {
    {"initialize", say_hello},
    {"tools_call", add_numbers},
    {"sse-retry", read_on},
    {"json-schema-2020-12-preservation", echo_schema},
    {"auth/", call_without_credentials},
};

int main(int argc, char **argv)
{
    char servers[1024];
    const char *scenario = getenv("MCP_CONFORMANCE_SCENARIO");
    size_t i;

    CHECK(argc == 2 && scenario);
    for (i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++) {
        if (strncmp(scenario, SCENARIOS[i].scenario, strlen(SCENARIOS[i].scenario)) == 0) {
            snprintf(servers, sizeof servers, "{\"%s\":{\"type\":\"http\",\"url\":\"%s\"}}", SERVER, argv[1]);
            client = client_with(servers);
            SCENARIOS[i].run();
            end(client);
            return 0;
        }
    }
    printf("no such scenario here: %s\n", scenario);
    return 1;
}
