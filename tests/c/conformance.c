/* The client that the official conformance suite tests: the suite starts it with the URL of a server of its own, and
 * names what is to be done there in MCP_CONFORMANCE_SCENARIO.
 *
 * conformance URL */
#include "support.h"

static const char *const SERVER = "suite";

static mcpconn_client *client;

/* What tells the tools. */
static mcpconn_event *told;

/* Lists the tools, as the array of JSON that is given to a model. It lives as long as what tells it. */
static mcpconn_str tools(void)
{
    mcpconn_event *event;
    uint64_t id = 0;
    CHECK_STATUS(mcpconn_client_list_tools(client, str(NULL), str(SERVER), NULL, &id, NULL), MCPCONN_OK);
    for (;;) {
        event = next_event(client, PATIENCE_MS);
        if (mcpconn_event_id(event) == id && ends_a_call(event))
            break;
        mcpconn_event_free(event);
    }
    mcpconn_event_free(told);
    told = event;
    if (mcpconn_event_kind(event) != MCPCONN_EVENT_RESULT) {
        printf("the tools are not told: %s\n", mcpconn_event_text(event).ptr);
        exit(1);
    }
    return mcpconn_event_json(event);
}

/* What is left to see of a JSON object or array. */
typedef struct walk {
    const char *at, *end;
} walk;

static walk into(mcpconn_str json)
{
    walk left;
    CHECK(json.len >= 2 && (*json.ptr == '{' || *json.ptr == '['));
    left.at = json.ptr + 1;
    left.end = json.ptr + json.len;
    return left;
}

/* The text or other value that begins at the next character that means something. */
static mcpconn_str take_value(walk *left)
{
    mcpconn_str value;
    int depth = 0, quoted = 0;
    left->at += strspn(left->at, " \t\r\n,:");
    value.ptr = left->at;
    for (; left->at < left->end; left->at++) {
        char c = *left->at;
        if (quoted && c == '\\')
            left->at++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '{' || c == '['))
            depth++;
        else if (!quoted && (c == '}' || c == ']') && depth-- == 0)
            break; /* of what is walked through */
        else if (!quoted && depth == 0 && (c == ',' || c == ':'))
            break;
    }
    value.len = (size_t)(left->at - value.ptr);
    return value;
}

static int is_text(mcpconn_str value, const char *text)
{
    size_t length = strlen(text);
    return value.len == length + 2 && *value.ptr == '"' && memcmp(value.ptr + 1, text, length) == 0;
}

/* The member of this name of a JSON object; empty if it has none. */
static mcpconn_str member(mcpconn_str object, const char *name)
{
    walk left = into(object);
    for (;;) {
        mcpconn_str key = take_value(&left), value = take_value(&left);
        if (key.len == 0 || is_text(key, name))
            return value;
    }
}

/* The input schema of a tool, the bytes that the server sent. */
static mcpconn_str input_schema(mcpconn_str all, const char *tool)
{
    char name[128];
    walk left = into(all);
    snprintf(name, sizeof name, "%s__%s", SERVER, tool);
    for (;;) {
        mcpconn_str described = take_value(&left);
        CHECK(described.len > 0);
        if (is_text(member(described, "name"), name))
            return member(described, "input_schema");
    }
}

/* Fills a form in with what it says itself. */
static void accept_form(const mcpconn_event *event)
{
    char answer[4096] = "{\"action\":\"accept\",\"content\":{";
    walk left = into(member(member(mcpconn_event_json(event), "requestedSchema"), "properties"));
    const char *between = "";
    for (;;) {
        mcpconn_str name = take_value(&left), field = take_value(&left), value;
        if (name.len == 0)
            break;
        value = member(field, "default");
        CHECK(value.len > 0 && strlen(answer) + name.len + value.len + 8 < sizeof answer);
        sprintf(answer + strlen(answer), "%s%.*s:%.*s", between, MCPCONN_PRINTF(name), MCPCONN_PRINTF(value));
        between = ",";
    }
    strcat(answer, "}}");
    CHECK_STATUS(mcpconn_client_answer(client, mcpconn_event_id(event), str(answer), NULL), MCPCONN_OK);
}

/* The server asks on the stream that the home session holds open. */
static void fill_in_a_form(void)
{
    uint64_t id;
    int asked = 0, ended = 0;
    tools();
    id = begin(client, NULL, SERVER, "test_client_elicitation_defaults", "");
    while (!ended) {
        mcpconn_event *event = next_event(client, PATIENCE_MS);
        if (mcpconn_event_kind(event) == MCPCONN_EVENT_REQUEST) {
            CHECK_SAYS(mcpconn_event_method(event).ptr, "elicitation/create");
            accept_form(event);
            asked++;
        }
        ended = mcpconn_event_id(event) == id && ends_a_call(event);
        CHECK(!ended || mcpconn_event_kind(event) == MCPCONN_EVENT_RESULT);
        mcpconn_event_free(event);
    }
    CHECK(asked == 1);
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
    uint32_t host_takes;
} SCENARIOS[] = {
    {"initialize", say_hello, 0},
    {"tools_call", add_numbers, 0},
    {"elicitation-sep1034-client-defaults", fill_in_a_form, MCPCONN_TAKES_ELICITATION_FORM},
    {"sse-retry", read_on, 0},
    {"json-schema-2020-12-preservation", echo_schema, 0},
    {"auth/", call_without_credentials, 0},
};

int main(int argc, char **argv)
{
    char servers[1024];
    mcpconn_client_options options = MCPCONN_CLIENT_OPTIONS_INIT;
    const char *scenario = getenv("MCP_CONFORMANCE_SCENARIO");
    size_t i;

    CHECK(argc == 2 && scenario);
    for (i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++) {
        if (strncmp(scenario, SCENARIOS[i].scenario, strlen(SCENARIOS[i].scenario)) == 0) {
            snprintf(servers, sizeof servers, "{\"%s\":{\"type\":\"http\",\"url\":\"%s\"}}", SERVER, argv[1]);
            options.host_takes = SCENARIOS[i].host_takes;
            CHECK_STATUS(mcpconn_client_new(&options, &client, NULL), MCPCONN_OK);
            CHECK_STATUS(mcpconn_client_configure(client, str(NULL), str(servers), NULL, NULL), MCPCONN_OK);
            SCENARIOS[i].run();
            mcpconn_event_free(told);
            end(client);
            return 0;
        }
    }
    printf("no such scenario here: %s\n", scenario);
    return 1;
}
