/* A host with sessions of its own asks the pool alone: in a time that it makes up, and then from many threads. */
#include "support.h"

#include <pthread.h>
#include <sys/wait.h>

#define SECOND UINT64_C(1000000000)

static mcpconn_str none;

/* A session that does nothing but know who uses it. */
typedef struct fake {
    char scope[16];
    uint64_t epoch;
    int calls;  /* that run on it */
    int closed; /* it is not to be used any more */
} fake;

static int fakes_open;

static fake *open_fake(const mcpconn_pool_action *action)
{
    fake *opened = calloc(1, sizeof *opened);
    CHECK(opened);
    CHECK(action->scope.len < sizeof opened->scope);
    strcpy(opened->scope, action->scope.ptr);
    opened->epoch = action->epoch;
    ++fakes_open;
    return opened;
}

static void close_fake(fake *session)
{
    CHECK(!session->closed);
    session->closed = 1;
    --fakes_open;
    if (session->calls == 0)
        free(session);
}

static void end_call(fake *session)
{
    CHECK(session->calls > 0);
    if (--session->calls == 0 && session->closed)
        free(session);
}

static mcpconn_pool *pool_with(const char *limits)
{
    mcpconn_pool *pool = NULL;
    CHECK_STATUS(mcpconn_pool_new(str(limits), &pool, NULL), MCPCONN_OK);
    CHECK_STATUS(mcpconn_pool_bind(pool, 0, none, str("demo"), str("v1"), NULL, NULL), MCPCONN_OK);
    return pool;
}

static uint64_t ask_until(mcpconn_pool *pool, uint64_t now, const char *scope, uint64_t token, uint64_t deadline)
{
    mcpconn_pool_acquire_options options = MCPCONN_POOL_ACQUIRE_OPTIONS_INIT;
    uint64_t id = 0;
    options.token = token;
    options.deadline_ns = deadline;
    CHECK_STATUS(mcpconn_pool_acquire(pool, now, none, str("demo"), str(scope), &options, &id, NULL), MCPCONN_OK);
    CHECK(id != 0);
    return id;
}

static uint64_t ask(mcpconn_pool *pool, uint64_t now, const char *scope, uint64_t token)
{
    return ask_until(pool, now, scope, token, 0);
}

/* The next action, which must be of this kind. */
static mcpconn_pool_action expect(mcpconn_pool *pool, uint64_t now, int32_t kind)
{
    mcpconn_pool_action action = MCPCONN_POOL_ACTION_INIT;
    CHECK_STATUS(mcpconn_pool_next(pool, now, &action), MCPCONN_OK);
    if (action.kind != kind)
        printf("an action of kind %d, not %d: %s\n", (int)action.kind, (int)kind, action.text.ptr);
    CHECK(action.kind == kind);
    return action;
}

/* There is nothing to do before this time. */
static void expect_rest(mcpconn_pool *pool, uint64_t now, uint64_t until)
{
    mcpconn_pool_action action = MCPCONN_POOL_ACTION_INIT;
    CHECK_STATUS(mcpconn_pool_next(pool, now, &action), MCPCONN_EMPTY);
    CHECK(action.kind == 0);
    CHECK(action.at_ns == until);
}

static void expect_refusal(mcpconn_pool *pool, uint64_t now, uint64_t token, int32_t reason, mcpconn_status status)
{
    mcpconn_pool_action action = expect(pool, now, MCPCONN_POOL_REFUSE);
    CHECK(action.token == token);
    CHECK(action.reason == reason);
    CHECK_STATUS(action.status, status);
    CHECK(action.text.len > 0);
}

static void open_next(mcpconn_pool *pool, uint64_t now)
{
    mcpconn_pool_action action = expect(pool, now, MCPCONN_POOL_OPEN);
    CHECK_STATUS(mcpconn_pool_opened(pool, now, action.session_id, open_fake(&action), NULL), MCPCONN_OK);
}

/* A token is given a session of this scope; the call that has it. */
static mcpconn_pool_action expect_give(mcpconn_pool *pool, uint64_t now, uint64_t token, const char *scope)
{
    mcpconn_pool_action action = expect(pool, now, MCPCONN_POOL_GIVE);
    fake *session = action.session;
    CHECK(action.token == token);
    CHECK(!session->closed);
    CHECK(strcmp(session->scope, scope) == 0);
    ++session->calls;
    return action;
}

static void release(mcpconn_pool *pool, uint64_t now, const mcpconn_pool_action *given)
{
    CHECK_STATUS(mcpconn_pool_release(pool, now, given->request_id, NULL), MCPCONN_OK);
    end_call(given->session);
}

static void expect_close(mcpconn_pool *pool, uint64_t now, uint64_t session_id, int32_t reason)
{
    mcpconn_pool_action action = expect(pool, now, MCPCONN_POOL_CLOSE);
    CHECK(action.session_id == session_id);
    CHECK(action.reason == reason);
    close_fake(action.session);
    CHECK_STATUS(mcpconn_pool_closed(pool, now, session_id, NULL), MCPCONN_OK);
}

/* Ends a pool on which no call runs. */
static void end_pool(mcpconn_pool *pool, uint64_t now)
{
    mcpconn_pool_action action = MCPCONN_POOL_ACTION_INIT;
    CHECK(mcpconn_pool_shutdown(pool, now, NULL) >= 0);
    while (mcpconn_pool_next(pool, now, &action) == MCPCONN_OK) {
        CHECK(action.kind == MCPCONN_POOL_CLOSE);
        close_fake(action.session);
        CHECK_STATUS(mcpconn_pool_closed(pool, now, action.session_id, NULL), MCPCONN_OK);
    }
    CHECK(fakes_open == 0);
    mcpconn_pool_free(pool);
}

static void pressure_takes_the_idle_session_and_refuses_when_all_are_busy(void)
{
    mcpconn_pool *pool = pool_with("{\"capacity\": 2}");
    mcpconn_pool_action a, b, c;
    uint64_t now = SECOND;
    ask(pool, now, "a", 1);
    open_next(pool, now);
    a = expect_give(pool, now, 1, "a");
    CHECK(a.fresh);
    ask(pool, now, "b", 2);
    open_next(pool, now);
    b = expect_give(pool, now, 2, "b");

    ask(pool, now, "c", 3);
    expect_refusal(pool, now, 3, MCPCONN_POOL_REASON_CAPACITY, MCPCONN_ERR_CAPACITY);

    release(pool, now, &b);
    ask(pool, now, "c", 4);
    open_next(pool, now);
    expect_close(pool, now, b.session_id, MCPCONN_POOL_REASON_DISPLACED);
    c = expect_give(pool, now, 4, "c");
    CHECK(!((fake *)a.session)->closed);
    release(pool, now, &c);
    release(pool, now, &a);
    end_pool(pool, now);
}

static void whoever_waits_is_served_in_order_or_refused_at_its_deadline(void)
{
    mcpconn_pool *pool = pool_with("{\"capacity\": 1, \"idle_ttl_ms\": \"never\"}");
    mcpconn_pool_action a, b;
    uint64_t now = SECOND;
    ask(pool, now, "a", 1);
    open_next(pool, now);
    a = expect_give(pool, now, 1, "a");
    ask_until(pool, now, "b", 2, MCPCONN_FOREVER);
    ask_until(pool, now, "c", 3, now + 5 * SECOND);
    expect_rest(pool, now, now + 5 * SECOND);
    now += 5 * SECOND;
    expect_refusal(pool, now, 3, MCPCONN_POOL_REASON_CAPACITY, MCPCONN_ERR_CAPACITY);
    release(pool, now, &a);
    open_next(pool, now);
    expect_close(pool, now, a.session_id, MCPCONN_POOL_REASON_DISPLACED);
    b = expect_give(pool, now, 2, "b");
    release(pool, now, &b);
    end_pool(pool, now);
}

static void what_is_closed_while_it_opens_never_comes_to_life(void)
{
    mcpconn_pool *pool = pool_with("");
    mcpconn_pool_action opening;
    fake *late;
    uint64_t now = SECOND;
    ask(pool, now, "a", 1);
    ask(pool, now, "a", 2);
    opening = expect(pool, now, MCPCONN_POOL_OPEN);
    late = open_fake(&opening);
    CHECK_STATUS(mcpconn_pool_close(pool, now, MCPCONN_POOL_TARGET_SCOPE, none, none, str("a"), 0, NULL), MCPCONN_OK);
    expect_refusal(pool, now, 1, MCPCONN_POOL_REASON_CLOSED, MCPCONN_ERR_CLOSED);
    expect_refusal(pool, now, 2, MCPCONN_POOL_REASON_CLOSED, MCPCONN_ERR_CLOSED);
    CHECK(expect(pool, now, MCPCONN_POOL_STOP_OPENING).session_id == opening.session_id);
    CHECK_STATUS(mcpconn_pool_opened(pool, now, opening.session_id, late, NULL), MCPCONN_EMPTY);
    close_fake(late);
    CHECK_STATUS(mcpconn_pool_closed(pool, now, opening.session_id, NULL), MCPCONN_OK);
    CHECK_STATUS(mcpconn_pool_closed(pool, now, opening.session_id, NULL), MCPCONN_EMPTY);
    expect_rest(pool, now, UINT64_MAX);
    end_pool(pool, now);
}

static void a_stale_binding_opens_nothing_and_closes_what_it_had(void)
{
    mcpconn_pool *pool = pool_with("");
    mcpconn_pool_acquire_options options = MCPCONN_POOL_ACQUIRE_OPTIONS_INIT;
    mcpconn_pool_action a, anew;
    mcpconn_error *error = NULL;
    uint64_t now = SECOND, old = 0, current = 0;
    CHECK_STATUS(mcpconn_pool_bind(pool, now, none, str("demo"), str("v1"), &old, NULL), MCPCONN_OK);
    ask(pool, now, "a", 1);
    open_next(pool, now);
    a = expect_give(pool, now, 1, "a");
    CHECK(((fake *)a.session)->epoch == old);

    CHECK_STATUS(mcpconn_pool_bind(pool, now, none, str("demo"), str("v2"), &current, NULL), MCPCONN_OK);
    CHECK(current != old);
    expect_close(pool, now, a.session_id, MCPCONN_POOL_REASON_STALE);
    options.token = 2;
    options.epoch = old;
    CHECK_STATUS(mcpconn_pool_acquire(pool, now, none, str("demo"), str("a"), &options, NULL, NULL), MCPCONN_OK);
    expect_refusal(pool, now, 2, MCPCONN_POOL_REASON_STALE, MCPCONN_ERR_CLOSED);

    ask(pool, now, "a", 3);
    open_next(pool, now);
    anew = expect_give(pool, now, 3, "a");
    CHECK(((fake *)anew.session)->epoch == current);
    /* The end of the old call does not unpin the new session. */
    release(pool, now, &a);
    CHECK_STATUS(mcpconn_pool_evict(pool, now, a.session_id, NULL), MCPCONN_EMPTY);
    CHECK(!((fake *)anew.session)->closed);
    release(pool, now, &anew);

    CHECK_STATUS(mcpconn_pool_unbind(pool, now, none, str("demo"), NULL), MCPCONN_OK);
    expect_close(pool, now, anew.session_id, MCPCONN_POOL_REASON_STALE);
    CHECK_STATUS(mcpconn_pool_acquire(pool, now, none, str("demo"), str("a"), NULL, NULL, &error),
                 MCPCONN_ERR_UNKNOWN_SERVER);
    CHECK_SAYS(mcpconn_error_message(error).ptr, "demo");
    mcpconn_error_free(error);
    end_pool(pool, now);
}

static void an_idle_session_goes_when_its_time_is_over_and_a_long_call_is_not_cut(void)
{
    mcpconn_pool *pool = pool_with("{\"idle_ttl_ms\": 60000}");
    mcpconn_pool_action a;
    uint64_t now = SECOND;
    ask(pool, now, "a", 1);
    open_next(pool, now);
    a = expect_give(pool, now, 1, "a");
    now += 3600 * SECOND;
    expect_rest(pool, now, UINT64_MAX);
    release(pool, now, &a);
    expect_rest(pool, now, now + 60 * SECOND);
    now += 60 * SECOND;
    expect_close(pool, now, a.session_id, MCPCONN_POOL_REASON_IDLE);
    expect_rest(pool, now, UINT64_MAX);
    end_pool(pool, now);
}

/* A mistake is told, and changes nothing. */
#define CHECK_MISTAKE(call, part)                                                                                     \
    do {                                                                                                              \
        mcpconn_error *error = NULL;                                                                                  \
        CHECK_STATUS(call, MCPCONN_ERR_INVALID);                                                                      \
        CHECK_SAYS(mcpconn_error_message(error).ptr, part);                                                           \
        mcpconn_error_free(error);                                                                                    \
    } while (0)

static void mistakes_are_told_and_change_nothing(void)
{
    mcpconn_pool *pool = NULL;
    mcpconn_error *limits_error = NULL;
    mcpconn_pool_action a, small = MCPCONN_POOL_ACTION_INIT;
    uint64_t now = SECOND, id;
    CHECK_STATUS(mcpconn_pool_new(str("{\"capcity\": 1}"), &pool, &limits_error), MCPCONN_ERR_CONFIG);
    CHECK_SAYS(mcpconn_error_message(limits_error).ptr, "capcity");
    mcpconn_error_free(limits_error);
    CHECK(pool == NULL);
    mcpconn_pool_free(NULL);

    pool = pool_with("");
    id = ask(pool, now, "a", 1);
    small.struct_size = 1;
    CHECK_STATUS(mcpconn_pool_next(pool, now, &small), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_pool_next(pool, now, NULL), MCPCONN_ERR_INVALID);
    CHECK_MISTAKE(mcpconn_pool_release(pool, now, id, &error), "not given a session yet");
    CHECK_MISTAKE(mcpconn_pool_opened(pool, now, 4711, NULL, &error), "4711");
    CHECK_MISTAKE(mcpconn_pool_close(pool, now, 0, none, none, none, 0, &error), "what");
    open_next(pool, now);
    a = expect_give(pool, now, 1, "a");
    CHECK(a.request_id == id);
    CHECK_MISTAKE(mcpconn_pool_opened(pool, now, a.session_id, a.session, &error), "before");
    CHECK_MISTAKE(mcpconn_pool_release(pool, now, a.session_id, &error), "no request");
    CHECK_MISTAKE(mcpconn_pool_closed(pool, now, a.request_id, &error), "no session");
    release(pool, now, &a);
    CHECK_MISTAKE(mcpconn_pool_release(pool, now, id, &error), "released before");
    CHECK_STATUS(mcpconn_pool_cancel(pool, now, id, NULL), MCPCONN_EMPTY);
    end_pool(pool, now);
}

static void a_pool_of_the_parent_is_of_no_use_in_a_forked_child(void)
{
    mcpconn_pool *pool = pool_with("");
    int status = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int forked = mcpconn_pool_shutdown(pool, 0, NULL) == MCPCONN_ERR_FORKED;
        mcpconn_pool_free(pool);
        _exit(forked ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    end_pool(pool, 0);
}

/* Many threads use one pool; each does whatever action it gets. */
#define THREADS 6
#define ROUNDS 400

/* How a token was answered. */
enum { NOT_YET, GIVEN, REFUSED };

static struct {
    mcpconn_pool *pool;
    /* Actions are taken under it, so that who uses which session is known before anybody else does anything. */
    pthread_mutex_t lock;
    pthread_cond_t answered;
    int answers[THREADS * ROUNDS];
    mcpconn_pool_action given[THREADS * ROUNDS];
    int gives, refusals, closes;
} shared = { NULL, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, { 0 }, { MCPCONN_POOL_ACTION_INIT }, 0, 0, 0 };

static void answer(const mcpconn_pool_action *action, int how)
{
    CHECK(action->token < THREADS * ROUNDS);
    CHECK(shared.answers[action->token] == NOT_YET);
    shared.answers[action->token] = how;
    shared.given[action->token] = *action;
    pthread_cond_broadcast(&shared.answered);
}

/* Takes one action and does what can be done under the lock. Returns what is left to report, or 0 at the end. */
static int take_action(mcpconn_pool_action *action)
{
    mcpconn_status status;
    CHECK(pthread_mutex_lock(&shared.lock) == 0);
    status = mcpconn_pool_next(shared.pool, SECOND, action);
    CHECK(status >= 0);
    if (status == MCPCONN_OK) {
        switch (action->kind) {
        case MCPCONN_POOL_OPEN:
            action->session = open_fake(action);
            break;
        case MCPCONN_POOL_CLOSE:
            ++shared.closes;
            close_fake(action->session);
            break;
        case MCPCONN_POOL_GIVE:
            ++shared.gives;
            CHECK(!((fake *)action->session)->closed);
            ++((fake *)action->session)->calls;
            answer(action, GIVEN);
            break;
        case MCPCONN_POOL_REFUSE:
            ++shared.refusals;
            answer(action, REFUSED);
            break;
        }
    }
    CHECK(pthread_mutex_unlock(&shared.lock) == 0);
    return status == MCPCONN_OK;
}

/* Does what there is to do, and reports it. */
static void work(void)
{
    mcpconn_pool_action action = MCPCONN_POOL_ACTION_INIT;
    while (take_action(&action)) {
        uint64_t id = action.session_id;
        if (action.kind == MCPCONN_POOL_OPEN) {
            mcpconn_status taken;
            fake *opened = action.session;
            if (id % 7 == 0) { /* a server that does not come up */
                CHECK(pthread_mutex_lock(&shared.lock) == 0);
                close_fake(opened);
                CHECK(pthread_mutex_unlock(&shared.lock) == 0);
                CHECK(mcpconn_pool_failed(shared.pool, SECOND, id, MCPCONN_ERR_TRANSPORT, NULL) >= 0);
                continue;
            }
            taken = mcpconn_pool_opened(shared.pool, SECOND, id, opened, NULL);
            CHECK(taken >= 0);
            if (taken == MCPCONN_EMPTY) {
                CHECK(pthread_mutex_lock(&shared.lock) == 0);
                close_fake(opened);
                CHECK(pthread_mutex_unlock(&shared.lock) == 0);
                CHECK(mcpconn_pool_closed(shared.pool, SECOND, id, NULL) >= 0);
            }
        } else if (action.kind == MCPCONN_POOL_CLOSE) {
            CHECK_STATUS(mcpconn_pool_closed(shared.pool, SECOND, id, NULL), MCPCONN_OK);
        }
    }
}

static void *use_the_pool(void *which)
{
    int thread = *(int *)which, round;
    for (round = 0; round < ROUNDS; ++round) {
        uint64_t token = (uint64_t)(thread * ROUNDS + round), request;
        char scope[16];
        int how;
        snprintf(scope, sizeof scope, "%d", (thread + round) % 5);
        request = ask_until(shared.pool, SECOND, scope, token, MCPCONN_FOREVER);
        if (round % 11 == 0)
            CHECK(mcpconn_pool_cancel(shared.pool, SECOND, request, NULL) >= 0);
        if (round % 29 == 0)
            CHECK(mcpconn_pool_close(shared.pool, SECOND, MCPCONN_POOL_TARGET_SCOPE, none, none, str(scope), 0, NULL) >=
                  0);
        if (round % 97 == 0)
            CHECK_STATUS(mcpconn_pool_bind(shared.pool, SECOND, none, str("demo"), str(scope), NULL, NULL), MCPCONN_OK);
        work();
        CHECK(pthread_mutex_lock(&shared.lock) == 0);
        while ((how = shared.answers[token]) == NOT_YET)
            CHECK(pthread_cond_wait(&shared.answered, &shared.lock) == 0);
        if (how == GIVEN)
            CHECK(strcmp(((fake *)shared.given[token].session)->scope, scope) == 0);
        CHECK(pthread_mutex_unlock(&shared.lock) == 0);
        if (how == GIVEN) {
            CHECK(shared.given[token].request_id == request);
            CHECK_STATUS(mcpconn_pool_release(shared.pool, SECOND, request, NULL), MCPCONN_OK);
            CHECK(pthread_mutex_lock(&shared.lock) == 0);
            end_call(shared.given[token].session);
            CHECK(pthread_mutex_unlock(&shared.lock) == 0);
        }
        work();
    }
    return NULL;
}

static void many_threads_are_answered_once_each_and_leave_nothing(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS], i;
    mcpconn_text *info = NULL;
    shared.pool = pool_with("{\"capacity\": 3, \"openings\": 2, \"calls_per_session\": 2, \"close_limit_ms\": 60000}");
    for (i = 0; i < THREADS; ++i) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, use_the_pool, &numbers[i]) == 0);
    }
    for (i = 0; i < THREADS; ++i)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(mcpconn_pool_shutdown(shared.pool, SECOND, NULL) >= 0);
    work();
    CHECK(shared.gives + shared.refusals == THREADS * ROUNDS);
    CHECK(shared.gives > THREADS * ROUNDS / 4);
    CHECK(shared.refusals > 0 && shared.closes > 0);
    CHECK(fakes_open == 0);
    CHECK_STATUS(mcpconn_pool_info(shared.pool, SECOND, &info, NULL), MCPCONN_OK);
    CHECK_SAYS(mcpconn_text_str(info).ptr, "\"live\":0,\"busy\":0,\"draining\":0,\"opening\":0,\"waiting\":0");
    CHECK_SAYS(mcpconn_text_str(info).ptr, "\"closing\":0,\"requests\":0");
    mcpconn_text_free(info);
    mcpconn_pool_free(shared.pool);
}

int main(void)
{
    pressure_takes_the_idle_session_and_refuses_when_all_are_busy();
    whoever_waits_is_served_in_order_or_refused_at_its_deadline();
    what_is_closed_while_it_opens_never_comes_to_life();
    a_stale_binding_opens_nothing_and_closes_what_it_had();
    an_idle_session_goes_when_its_time_is_over_and_a_long_call_is_not_cut();
    mistakes_are_told_and_change_nothing();
    a_pool_of_the_parent_is_of_no_use_in_a_forked_child();
    many_threads_are_answered_once_each_and_leave_nothing();
    return 0;
}
