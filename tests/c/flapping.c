/* A server that flaps is parked, however many scopes call it, and woken on the host's word.
 *
 * flapping DEMO_SERVER LOG ALONE|SCOPES       says "parked", and wakes it when the test says so */
#include "support.h"

#define SCOPES 20

static mcpconn_server_info info_now(mcpconn_client *client)
{
    mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;
    CHECK_STATUS(mcpconn_client_server_info(client, str(NULL), str("flap"), &info, NULL), MCPCONN_OK);
    return info;
}

/* Waits until it is parked after more attempts than that, and gives how many there were. */
static uint32_t await_parked(mcpconn_client *client, uint32_t attempts)
{
    mcpconn_server_info info = info_now(client);
    while (info.state != MCPCONN_STATE_PARKED || info.attempt <= attempts) {
        mcpconn_event_free(next_event(client, PATIENCE_MS));
        info = info_now(client);
    }
    return info.attempt;
}

int main(int argc, char **argv)
{
    char servers[2048];
    mcpconn_client *client;
    mcpconn_scope *scopes[SCOPES], *late;
    uint64_t calls[SCOPES];
    completion done;
    uint32_t attempts;
    int i;

    CHECK(argc == 4);
    snprintf(servers, sizeof servers,
             "{\"flap\":{\"command\":\"%s\",\"args\":[\"--flap\",\"--log\",\"%s\"],\"mcpconn\":{\"eager\":true,\"budget\":{"
             "\"max_retries\":3,\"max_unproven\":2,\"floor_ms\":10,\"backoff_ms\":10,\"backoff_max_ms\":40}}}}",
             argv[1], argv[2]);
    client = client_with(servers);

    if (strcmp(argv[3], "SCOPES") == 0) {
        for (i = 0; i < SCOPES; i++) {
            char name[16];
            snprintf(name, sizeof name, "scope %d", i);
            scopes[i] = scope_of(name);
            calls[i] = begin(client, scopes[i], "flap", "echo", "{\"text\":\"hello\"}");
        }
        for (i = 0; i < SCOPES; i++) {
            CHECK(finish(client, calls[i]).status < 0);
            mcpconn_scope_free(scopes[i]);
        }
    }
    attempts = await_parked(client, 0);

    /* In a scope of its own: a home session that is still alive would go on serving. */
    late = scope_of("late");
    done = call(client, late, "flap", "echo", "{\"text\":\"hello\"}");
    mcpconn_scope_free(late);
    CHECK_STATUS(done.status, MCPCONN_ERR_PARKED);
    CHECK(done.outcome == MCPCONN_OUTCOME_NOT_SENT);
    CHECK_SAYS(done.text, "flap");
    say("parked");
    await_go();

    CHECK_STATUS(mcpconn_client_wake(client, str(NULL), str("flap"), NULL), MCPCONN_OK);
    await_parked(client, attempts);
    say("parked again");
    await_go();
    end(client);
    return 0;
}
