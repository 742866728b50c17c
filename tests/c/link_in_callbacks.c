/* A host that moves the bytes of its servers itself, and does all of it from inside its callback: what it is asked to
 * send is answered before the callback returns. It ends in the middle of everything, in each way there is. Each server
 * asks for the roots at each call, and answers it when it has them.
 *
 * link_in_callbacks */
#include "support.h"

#include <pthread.h>

#define CALLS 24

/* A link, and what its server said that was not taken yet. */
typedef struct peer {
    mcpconn_link *link;
    char unfed[4096];
} peer;

typedef struct host {
    mcpconn_client *client;
    peer links[256];
    size_t n_links;
    /* Of the calls: how many user data came back. */
    int given_back;
    int completed, closed, requests, withdrawn;
    /* At which request of a server the client is freed, from inside the callback; 0 for never. */
    int free_at;
    /* Whether requests are answered. */
    int answers;
    mcpconn_event *kept[8];
    size_t n_kept;
} host;

static void feed(peer *of)
{
    mcpconn_status status = mcpconn_link_received(of->link, of->unfed, strlen(of->unfed));
    CHECK(status == MCPCONN_OK || status == MCPCONN_ERR_CLOSED || status == MCPCONN_ERR_CAPACITY);
    if (status != MCPCONN_ERR_CAPACITY)
        of->unfed[0] = '\0';
}

/* The id in a message, as it is written there. */
static void id_of(const char *message, char *id, size_t size)
{
    const char *at = strstr(message, "\"id\":");
    size_t length;
    CHECK(at);
    at += 5;
    length = strcspn(at, ",}");
    CHECK(length < size);
    memcpy(id, at, length);
    id[length] = '\0';
}

/* What the server at the other end does with a message. */
static void serve(peer *of, const char *message)
{
    char id[64], line[512];
    if (strstr(message, "\"notifications/"))
        return;
    id_of(message, id, sizeof id);
    if (strstr(message, "\"initialize\"")) {
        snprintf(line, sizeof line,
                 "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},"
                 "\"serverInfo\":{\"name\":\"c\",\"version\":\"0\"}}}\n", id);
    } else if (strstr(message, "\"tools/call\"")) {
        snprintf(line, sizeof line,
                 "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n"
                 "{\"jsonrpc\":\"2.0\",\"id\":\"roots of %s\",\"method\":\"roots/list\"}\n", id);
    } else if (strstr(message, "\"roots of ")) {
        char call[64];
        const char *at = strstr(message, "roots of ") + 9;
        size_t length = strcspn(at, "\"");
        CHECK(length < sizeof call);
        memcpy(call, at, length);
        call[length] = '\0';
        snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n", call);
    } else {
        snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n", id);
    }
    CHECK(strlen(of->unfed) + strlen(line) < sizeof of->unfed);
    strcat(of->unfed, line);
    feed(of);
}

static void move(host *h, const mcpconn_event *event)
{
    mcpconn_link *link = NULL;
    CHECK_STATUS(mcpconn_event_link(event, &link), MCPCONN_OK);
    switch (mcpconn_event_kind(event)) {
    case MCPCONN_EVENT_LINK_OPEN:
        CHECK(h->n_links < sizeof h->links / sizeof *h->links);
        CHECK_STATUS(mcpconn_link_set_token(link, h->n_links + 1), MCPCONN_OK);
        h->links[h->n_links++].link = link;
        CHECK_STATUS(mcpconn_link_opened(link), MCPCONN_OK);
        return;
    case MCPCONN_EVENT_LINK_SEND: {
        char message[4096];
        mcpconn_str json = mcpconn_event_json(event);
        mcpconn_status status = mcpconn_link_sent(link, json.len);
        CHECK(status == MCPCONN_OK || status == MCPCONN_ERR_CLOSED);
        copy_text(message, sizeof message, json);
        CHECK(mcpconn_event_token(event) >= 1 && mcpconn_event_token(event) <= h->n_links);
        serve(&h->links[mcpconn_event_token(event) - 1], message);
        break;
    }
    case MCPCONN_EVENT_LINK_CLOSE: {
        mcpconn_status status = mcpconn_link_closed(link, MCPCONN_OK, str(NULL));
        CHECK(status == MCPCONN_OK || status == MCPCONN_ERR_CLOSED);
        break;
    }
    case MCPCONN_EVENT_LINK_RESUME:
        feed(&h->links[mcpconn_event_token(event) - 1]);
        break;
    default:
        break;
    }
    mcpconn_link_free(link);
}

static void hear(void *user_data, const mcpconn_event *event)
{
    host *h = user_data;
    switch (mcpconn_event_kind(event)) {
    case MCPCONN_EVENT_LINK_OPEN:
    case MCPCONN_EVENT_LINK_SEND:
    case MCPCONN_EVENT_LINK_CLOSE:
    case MCPCONN_EVENT_LINK_RESUME:
        move(h, event);
        break;
    case MCPCONN_EVENT_REQUEST:
        h->requests++;
        if (h->requests == h->free_at) {
            mcpconn_client_free(h->client);
        } else if (h->answers) {
            mcpconn_status status = mcpconn_client_answer(h->client, mcpconn_event_id(event), str("{\"roots\":[]}"), NULL);
            CHECK(status == MCPCONN_OK || status == MCPCONN_EMPTY);
            CHECK_STATUS(mcpconn_client_refuse(h->client, mcpconn_event_id(event), -1, str("no"), NULL), MCPCONN_EMPTY);
        }
        break;
    case MCPCONN_EVENT_REQUEST_WITHDRAWN:
        h->withdrawn++;
        break;
    case MCPCONN_EVENT_CLOSED:
        h->closed++;
        break;
    case MCPCONN_EVENT_RESULT:
    case MCPCONN_EVENT_ERROR:
        CHECK(!h->closed);
        h->completed++;
        break;
    default:
        break;
    }
}

static void given_back(void *user_data)
{
    __atomic_add_fetch(&((host *)user_data)->given_back, 1, __ATOMIC_SEQ_CST);
}

/* A client of two servers, and calls of them in some scopes. */
static void begun(host *h)
{
    static const char servers[] =
        "{\"a\":{\"type\":\"host\",\"mcpconn\":{\"budget\":{\"floor_ms\":1}}},\"b\":{\"type\":\"host\"}}";
    mcpconn_client_options options = MCPCONN_CLIENT_OPTIONS_INIT;
    mcpconn_call_options call = MCPCONN_CALL_OPTIONS_INIT;
    int n;
    options.host_takes = MCPCONN_TAKES_ROOTS | MCPCONN_TAKES_LOGS | MCPCONN_TAKES_SESSIONS;
    options.pool_json = str("{\"capacity\":3,\"wait_ms\":\"forever\"}");
    options.max_queued_bytes = 64;
    options.on_event = hear;
    options.user_data = h;
    CHECK_STATUS(mcpconn_client_new(&options, &h->client, NULL), MCPCONN_OK);
    CHECK_STATUS(mcpconn_client_configure(h->client, str(NULL), str(servers), NULL, NULL), MCPCONN_OK);
    call.user_data = h;
    call.on_event = hear;
    call.free_user_data = given_back;
    for (n = 0; n < CALLS; n++) {
        char name[16];
        uint64_t id;
        mcpconn_scope *scope = NULL;
        snprintf(name, sizeof name, "scope %d", n % 5);
        if (n % 6)
            CHECK_STATUS(mcpconn_scope_new(str(NULL), str(name), &scope, NULL), MCPCONN_OK);
        CHECK_STATUS(mcpconn_client_call_tool(h->client, scope, str(n % 2 ? "a" : "b"), str("t"), str(NULL), &call, &id, NULL), MCPCONN_OK);
        mcpconn_scope_free(scope);
    }
}

static mcpconn_status dispatch(host *h)
{
    mcpconn_status status;
    CHECK(mcpconn_client_wait(h->client, PATIENCE_MS) == MCPCONN_OK);
    status = mcpconn_client_dispatch(h->client, 0, NULL);
    CHECK(status >= 0 || status == MCPCONN_ERR_CLOSED);
    return status;
}

/* Nothing that is said of a link whose client is gone does anything. */
static void over(host *h)
{
    size_t n;
    for (n = 0; n < h->n_links; n++) {
        CHECK_STATUS(mcpconn_link_opened(h->links[n].link), MCPCONN_ERR_CLOSED);
        CHECK_STATUS(mcpconn_link_received(h->links[n].link, "{}\n", 3), MCPCONN_ERR_CLOSED);
        CHECK_STATUS(mcpconn_link_sent(h->links[n].link, 1), MCPCONN_ERR_CLOSED);
        CHECK_STATUS(mcpconn_link_closed(h->links[n].link, MCPCONN_OK, str(NULL)), MCPCONN_ERR_CLOSED);
        CHECK(mcpconn_link_server(h->links[n].link).len == 1);
        mcpconn_link_free(h->links[n].link);
    }
    for (n = 0; n < h->n_kept; n++) {
        CHECK(mcpconn_event_server(h->kept[n]).ptr && mcpconn_event_kind(h->kept[n]) > 0);
        mcpconn_event_free(h->kept[n]);
    }
    CHECK(h->given_back == CALLS);
}

static void all_calls_are_answered(void)
{
    host h = {0};
    h.answers = 1;
    begun(&h);
    while (h.completed < CALLS)
        dispatch(&h);
    CHECK(h.requests == CALLS && !h.withdrawn);
    CHECK_STATUS(mcpconn_client_close(h.client, 0), MCPCONN_OK);
    while (!h.closed)
        dispatch(&h);
    CHECK(h.completed == CALLS);
    CHECK_STATUS(mcpconn_client_dispatch(h.client, 0, NULL), MCPCONN_ERR_CLOSED);
    mcpconn_client_free(h.client);
    over(&h);
}

static void the_client_is_freed_from_inside_a_callback(void)
{
    int at;
    for (at = 1; at < 4; at++) {
        host h = {0};
        h.answers = 1;
        h.free_at = at;
        begun(&h);
        while (dispatch(&h) != MCPCONN_ERR_CLOSED)
            ;
        CHECK(h.requests == at);
        over(&h);
    }
}

static void the_client_is_closed_while_requests_are_open(void)
{
    host h = {0};
    begun(&h);
    while (h.requests < 2)
        dispatch(&h);
    CHECK_STATUS(mcpconn_client_close(h.client, 0), MCPCONN_OK);
    while (!h.closed)
        dispatch(&h);
    CHECK(h.completed == CALLS && h.withdrawn == h.requests);
    mcpconn_client_free(h.client);
    over(&h);
}

/* Events are kept, and freed when the client is gone; with them goes what held up their server. */
static void events_outlive_their_client(void)
{
    host h = {0};
    begun(&h);
    while (h.n_kept < sizeof h.kept / sizeof *h.kept) {
        mcpconn_event *event = next_event(h.client, PATIENCE_MS);
        hear(&h, event);
        h.kept[h.n_kept++] = event;
    }
    mcpconn_client_free(h.client);
    over(&h);
}

static void *flood(void *of)
{
    mcpconn_link *link = of;
    const char line[] = "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"roots/list\"}\n";
    mcpconn_status status;
    do {
        status = mcpconn_link_received(link, line, sizeof line - 1);
        CHECK(status == MCPCONN_OK || status == MCPCONN_ERR_CLOSED || status == MCPCONN_ERR_CAPACITY);
    } while (status != MCPCONN_ERR_CLOSED);
    return NULL;
}

static void a_link_is_fed_while_the_client_is_freed(void)
{
    int round;
    for (round = 0; round < 20; round++) {
        host h = {0};
        pthread_t feeder;
        begun(&h);
        while (!h.requests)
            dispatch(&h);
        CHECK(!pthread_create(&feeder, NULL, flood, h.links[0].link));
        mcpconn_client_free(h.client);
        CHECK(!pthread_join(feeder, NULL));
        over(&h);
    }
}

static void nulls_are_refused(void)
{
    mcpconn_link *link = NULL;
    CHECK_STATUS(mcpconn_event_link(NULL, &link), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_event_link(NULL, NULL), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_opened(NULL), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_received(NULL, "", 0), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_sent(NULL, 0), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_closed(NULL, MCPCONN_OK, str(NULL)), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_set_token(NULL, 1), MCPCONN_ERR_INVALID);
    CHECK(mcpconn_link_server(NULL).len == 0 && mcpconn_link_generation(NULL) == 0);
    mcpconn_link_free(NULL);
}

static void what_a_host_says_wrongly_of_a_link_is_refused(void)
{
    host h = {0};
    mcpconn_link *link;
    mcpconn_str broken;
    h.answers = 1;
    begun(&h);
    while (!h.n_links)
        dispatch(&h);
    link = h.links[0].link;
    broken.ptr = "\xff";
    broken.len = 1;
    CHECK_STATUS(mcpconn_link_sent(link, UINT64_MAX), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_received(link, NULL, 1), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_received(link, "", SIZE_MAX), MCPCONN_ERR_INVALID);
    /* Nothing is something, if there is no room. */
    CHECK(mcpconn_link_received(link, NULL, 0) != MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_closed(link, 7, str(NULL)), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_closed(link, -1000, str(NULL)), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_closed(link, MCPCONN_ERR_TRANSPORT, broken), MCPCONN_ERR_INVALID);
    while (h.completed < CALLS)
        dispatch(&h);
    mcpconn_client_free(h.client);
    over(&h);
}

int main(void)
{
    int descriptors = open_descriptors(0);
    nulls_are_refused();
    all_calls_are_answered();
    the_client_is_freed_from_inside_a_callback();
    the_client_is_closed_while_requests_are_open();
    events_outlive_their_client();
    a_link_is_fed_while_the_client_is_freed();
    what_a_host_says_wrongly_of_a_link_is_refused();
    check_descriptors(descriptors);
    CHECK(!children_left());
    return 0;
}
