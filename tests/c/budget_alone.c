/* A host with an MCP client of its own asks a budget alone, in a time that it makes up. */
#include "support.h"

#define SECOND UINT64_C(1000000000)

static int32_t state(mcpconn_budget *budget, uint64_t now)
{
    mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;
    CHECK_STATUS(mcpconn_budget_info(budget, now, &info), MCPCONN_OK);
    return info.state;
}

static mcpconn_status tell(mcpconn_budget *budget, uint64_t now, int32_t what, uint64_t generation, int32_t cause)
{
    return mcpconn_budget_tell(budget, now, what, generation, cause, 0, NULL);
}

/* Opens and loses the home session until there is nothing to do for an hour; how often it was opened. */
static int flap(mcpconn_budget *budget, uint64_t *now, int proves_itself, int most)
{
    int opened = 0;
    while (opened < most) {
        mcpconn_action action = MCPCONN_ACTION_INIT;
        mcpconn_status status = mcpconn_budget_next(budget, *now, &action);
        if (status == MCPCONN_EMPTY) {
            if (state(budget, *now) == MCPCONN_STATE_PARKED)
                break;
            CHECK(action.at_ns != UINT64_MAX);
            *now = action.at_ns;
            continue;
        }
        CHECK_STATUS(status, MCPCONN_OK);
        CHECK(action.kind == MCPCONN_ACTION_CONNECT);
        ++opened;
        CHECK_STATUS(tell(budget, *now, MCPCONN_BUDGET_OPENED, action.generation, 0), MCPCONN_OK);
        CHECK(state(budget, *now) == MCPCONN_STATE_UNPROVEN);
        if (proves_itself)
            CHECK_STATUS(tell(budget, *now, MCPCONN_BUDGET_PROVEN, action.generation, 0), MCPCONN_OK);
        CHECK_STATUS(tell(budget, *now, MCPCONN_BUDGET_LOST, action.generation, MCPCONN_CAUSE_TRANSIENT), MCPCONN_OK);
        /* What bears an old generation changes nothing. */
        CHECK_STATUS(tell(budget, *now, MCPCONN_BUDGET_PROVEN, action.generation, 0), MCPCONN_EMPTY);
    }
    return opened;
}

static void check_bad_input(void)
{
    mcpconn_budget *budget = NULL;
    mcpconn_error *error = NULL;
    mcpconn_action action = MCPCONN_ACTION_INIT, bad = MCPCONN_ACTION_INIT;

    CHECK_STATUS(mcpconn_budget_new(mcpconn_cstr("{\"max_retires\": 1}"), 1, &budget, &error), MCPCONN_ERR_CONFIG);
    CHECK(strstr(mcpconn_error_message(error).ptr, "max_retires") != NULL);
    mcpconn_error_free(error);
    CHECK(budget == NULL);
    CHECK_STATUS(mcpconn_budget_next(NULL, 0, &action), MCPCONN_ERR_INVALID);

    CHECK_STATUS(mcpconn_budget_new(mcpconn_cstr(""), 1, &budget, NULL), MCPCONN_OK);
    CHECK_STATUS(tell(budget, 0, 99, 0, 0), MCPCONN_ERR_INVALID);
    CHECK_STATUS(tell(budget, 0, MCPCONN_BUDGET_LOST, 1, 99), MCPCONN_ERR_INVALID);

    /* No action gets lost in what it cannot be written to. */
    bad.struct_size = 3;
    CHECK_STATUS(tell(budget, 0, MCPCONN_BUDGET_WANTED, 0, 0), MCPCONN_OK);
    CHECK_STATUS(mcpconn_budget_next(budget, 0, NULL), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_budget_next(budget, 0, &bad), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_budget_next(budget, 0, &action), MCPCONN_OK);
    CHECK(action.kind == MCPCONN_ACTION_CONNECT && action.generation == 1);
    CHECK_STATUS(tell(budget, 0, MCPCONN_BUDGET_OPENED, 1, 0), MCPCONN_OK);
    CHECK_STATUS(tell(budget, 0, MCPCONN_BUDGET_PROVEN, 1, 0), MCPCONN_OK);
    CHECK_STATUS(mcpconn_budget_leave(budget, 0, NULL), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_budget_leave(budget, 0, &bad), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_budget_leave(budget, 0, &action), MCPCONN_OK);
    CHECK(action.kind == MCPCONN_ACTION_CONNECT && action.generation == 2);
    mcpconn_budget_free(budget);
    mcpconn_budget_free(NULL);
}

int main(void)
{
    mcpconn_budget *budget = NULL;
    mcpconn_action action = MCPCONN_ACTION_INIT;
    uint64_t now = 5 * SECOND;

    check_bad_input();

    CHECK_STATUS(mcpconn_budget_new(mcpconn_cstr("{\"max_retries\": 5}"), 1, &budget, NULL), MCPCONN_OK);
    CHECK(state(budget, now) == MCPCONN_STATE_IDLE);
    CHECK_STATUS(mcpconn_budget_next(budget, now, &action), MCPCONN_EMPTY);
    CHECK_STATUS(tell(budget, now, MCPCONN_BUDGET_WANTED, 0, 0), MCPCONN_OK);
    CHECK(flap(budget, &now, 0, 1000) == 6);
    CHECK(state(budget, now) == MCPCONN_STATE_PARKED);
    CHECK_STATUS(mcpconn_budget_leave(budget, now, &action), MCPCONN_ERR_PARKED);

    /* A wake is one attempt. */
    CHECK_STATUS(tell(budget, now, MCPCONN_BUDGET_WAKE, 0, 0), MCPCONN_OK);
    CHECK(flap(budget, &now, 0, 1000) == 1);
    CHECK_STATUS(tell(budget, now, MCPCONN_BUDGET_STOP, 0, 0), MCPCONN_OK);
    CHECK_STATUS(mcpconn_budget_leave(budget, now, &action), MCPCONN_ERR_CLOSED);
    mcpconn_budget_free(budget);

    /* One that proves itself before each of its losses is opened for ever. */
    budget = NULL;
    CHECK_STATUS(mcpconn_budget_new(mcpconn_cstr(""), 2, &budget, NULL), MCPCONN_OK);
    CHECK_STATUS(tell(budget, now, MCPCONN_BUDGET_WANTED, 0, 0), MCPCONN_OK);
    CHECK(flap(budget, &now, 1, 200) == 200);
    mcpconn_budget_free(budget);
    return 0;
}
