/* A host that moves the bytes itself: it starts the demo server and speaks to it in lines over a socket, and to a small
 * server of its own in messages over another, polling both beside the client's descriptor.
 *
 * link DEMO_SERVER */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static void answer_message(int fd, const char *message)
{
    static char answer[1 << 16];
    const char *id = strstr(message, "\"id\":"), *text = strstr(message, "\"text\":\"");
    int number, length;
    if (!id || sscanf(id, "\"id\":%d", &number) != 1)
        return;
    if (strstr(message, "\"method\":\"initialize\""))
        length = snprintf(answer, sizeof answer,
                          "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"protocolVersion\":\"2025-06-18\",\n"
                          "\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"small\",\"version\":\"1\"}}}",
                          number);
    else if (strstr(message, "\"method\":\"tools/list\""))
        length = snprintf(answer, sizeof answer,
                          "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"tools\":[{\"name\":\"echo\",\n"
                          "\"inputSchema\":{\"type\":\"object\"}}]}}",
                          number);
    else
        length = snprintf(answer, sizeof answer,
                          "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"content\":[{\"type\":\"text\",\n"
                          "\"text\":\"%.*s\"}]}}",
                          number, text ? (int)strcspn(text + 8, "\"") : 0, text ? text + 8 : "");
    CHECK(length > 0 && send(fd, answer, (size_t)length, MSG_NOSIGNAL) == length);
}

/* Serves messages on any number of connections until it is killed. */
static void serve_messages(int listener)
{
    static char message[1 << 16];
    struct pollfd polled[16];
    nfds_t count = 1, i;
    polled[0].fd = listener;
    polled[0].events = POLLIN;
    for (;;) {
        CHECK(poll(polled, count, -1) > 0);
        if (polled[0].revents && count < 16) {
            polled[count].fd = accept(listener, NULL, NULL);
            CHECK(polled[count].fd >= 0);
            polled[count].revents = 0;
            polled[count++].events = POLLIN;
        }
        for (i = 1; i < count; i++) {
            ssize_t length;
            if (!polled[i].revents)
                continue;
            length = recv(polled[i].fd, message, sizeof message - 1, 0);
            if (length > 0) {
                message[length] = '\0';
                answer_message(polled[i].fd, message);
            } else {
                close(polled[i].fd);
                polled[i--] = polled[--count];
            }
        }
    }
}

static struct sockaddr_un small_address;
static socklen_t small_address_length;

/* Started before there is a client, so that the child is not one of its threads' making. */
static pid_t start_small_server(void)
{
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    pid_t pid;
    CHECK(listener >= 0);
    /* An abstract name, which leaves no file. */
    small_address.sun_family = AF_UNIX;
    snprintf(small_address.sun_path + 1, sizeof small_address.sun_path - 1, "mcpconn-link-%d", (int)getpid());
    small_address_length =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(small_address.sun_path + 1));
    CHECK(bind(listener, (struct sockaddr *)&small_address, small_address_length) == 0);
    CHECK(listen(listener, 16) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        serve_messages(listener);
    close(listener);
    return pid;
}

/* A connection, which moves one link. */
typedef struct conn {
    mcpconn_link *link;
    int fd;
    pid_t pid;              /* of the server that was started for it, or 0 */
    int is_message;
    char scope[32];
    char *out;              /* what the socket did not take yet */
    size_t out_length;
    pthread_t reader;       /* reads instead of the loop, if has_reader */
    int has_reader;
    struct conn *next;
} conn;

static conn *conns;
static char demo_server[1024];
static int opened, asked_to_close, is_closed;

/* A link whose connection is gone, kept to be misused. */
static mcpconn_link *stale;

static completion done;
static uint64_t awaited;

static conn *conn_of(const char *scope)
{
    conn *found;
    for (found = conns; found; found = found->next)
        if (!found->is_message && strcmp(found->scope, scope) == 0)
            return found;
    CHECK(!"there is such a connection");
    return NULL;
}

static void forget(conn *gone, mcpconn_status why, const char *text)
{
    conn **place = &conns;
    while (*place != gone)
        place = &(*place)->next;
    *place = gone->next;
    /* Ends the server, and the reader. */
    shutdown(gone->fd, SHUT_RDWR);
    if (gone->has_reader)
        CHECK(pthread_join(gone->reader, NULL) == 0);
    close(gone->fd);
    if (gone->pid)
        CHECK(waitpid(gone->pid, NULL, 0) == gone->pid);
    CHECK_STATUS(mcpconn_link_closed(gone->link, why, str(text)), MCPCONN_OK);
    CHECK_STATUS(mcpconn_link_closed(gone->link, why, str(text)), MCPCONN_ERR_CLOSED);
    mcpconn_link_free(stale);
    stale = gone->link;
    free(gone->out);
    free(gone);
}

static int start_demo_server(pid_t *pid)
{
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    *pid = fork();
    CHECK(*pid >= 0);
    if (*pid == 0) {
        dup2(pair[1], 0);
        dup2(pair[1], 1);
        execl(demo_server, demo_server, (char *)NULL);
        _exit(127);
    }
    close(pair[1]);
    return pair[0];
}

static int connect_to_small_server(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK(connect(fd, (struct sockaddr *)&small_address, small_address_length) == 0);
    return fd;
}

/* Gives to the link what came. 0 at the end. */
static int move_in(conn *from, int flags)
{
    static __thread char bytes[1 << 16];
    mcpconn_status status;
    ssize_t length = recv(from->fd, bytes, sizeof bytes, flags);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (length <= 0)
        return 0;
    status = mcpconn_link_received(from->link, bytes, (size_t)length);
    /* A thread may read on while the link is closed. */
    CHECK(status == MCPCONN_OK || status == MCPCONN_ERR_CLOSED);
    return 1;
}

static void *read_on(void *context)
{
    while (move_in((conn *)context, 0)) {
    }
    return NULL;
}

/* Writes what the socket takes, and says how much that was. */
static void move_out(conn *to)
{
    while (to->out_length > 0) {
        ssize_t length = send(to->fd, to->out, to->out_length, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (length <= 0)
            return;
        to->out_length -= (size_t)length;
        memmove(to->out, to->out + length, to->out_length);
        CHECK_STATUS(mcpconn_link_sent(to->link, (uint64_t)length), MCPCONN_OK);
    }
}

static void open_link(const mcpconn_event *event)
{
    mcpconn_str said = mcpconn_event_json(event);
    conn *made = (conn *)calloc(1, sizeof *made);
    CHECK(made);
    CHECK_STATUS(mcpconn_event_link(event, &made->link), MCPCONN_OK);
    CHECK_STATUS(mcpconn_link_set_token(made->link, (uint64_t)(uintptr_t)made), MCPCONN_OK);
    copy_text(made->scope, sizeof made->scope, mcpconn_link_scope(made->link));
    CHECK_SAYS(mcpconn_link_domain(made->link).ptr, "deployment");
    CHECK(mcpconn_link_generation(made->link) > 0);
    made->is_message = strcmp(mcpconn_link_server(made->link).ptr, "small") == 0;
    if (made->is_message) {
        made->fd = connect_to_small_server();
    } else {
        /* What the configuration says under "link". */
        CHECK(said.len == strlen("{\"start\":true}") && memcmp(said.ptr, "{\"start\":true}", said.len) == 0);
        made->fd = start_demo_server(&made->pid);
    }
    made->next = conns;
    conns = made;
    opened++;
    if (strcmp(made->scope, "threaded") == 0) {
        CHECK(pthread_create(&made->reader, NULL, read_on, made) == 0);
        made->has_reader = 1;
    }
    CHECK_STATUS(mcpconn_link_opened(made->link), MCPCONN_OK);
}

static void send_over_link(const mcpconn_event *event)
{
    conn *to = (conn *)(uintptr_t)mcpconn_event_token(event);
    mcpconn_str bytes = mcpconn_event_json(event);
    mcpconn_link *same = NULL;
    CHECK_STATUS(mcpconn_event_link(event, &same), MCPCONN_OK);
    CHECK(same != to->link && mcpconn_link_generation(same) == mcpconn_link_generation(to->link));
    mcpconn_link_free(same);
    CHECK(mcpconn_event_id(event) == 0);
    CHECK_STATUS(mcpconn_link_sent(to->link, UINT64_MAX), MCPCONN_ERR_INVALID);
    if (to->is_message) {
        CHECK(bytes.len > 0 && !memchr(bytes.ptr, '\n', bytes.len));
        CHECK(send(to->fd, bytes.ptr, bytes.len, MSG_NOSIGNAL) == (ssize_t)bytes.len);
        CHECK_STATUS(mcpconn_link_sent(to->link, bytes.len), MCPCONN_OK);
        return;
    }
    CHECK(bytes.len > 0 && bytes.ptr[bytes.len - 1] == '\n');
    to->out = (char *)realloc(to->out, to->out_length + bytes.len);
    CHECK(to->out);
    memcpy(to->out + to->out_length, bytes.ptr, bytes.len);
    to->out_length += bytes.len;
    move_out(to);
    /* From inside a callback too. */
    if (!to->has_reader)
        move_in(to, MSG_DONTWAIT);
}

static void on_event(void *user_data, const mcpconn_event *event)
{
    (void)user_data;
    CHECK(!is_closed);
    switch (mcpconn_event_kind(event)) {
    case MCPCONN_EVENT_LINK_OPEN:
        open_link(event);
        break;
    case MCPCONN_EVENT_LINK_SEND:
        send_over_link(event);
        break;
    case MCPCONN_EVENT_LINK_CLOSE:
        asked_to_close++;
        forget((conn *)(uintptr_t)mcpconn_event_token(event), MCPCONN_OK, "");
        break;
    case MCPCONN_EVENT_CLOSED:
        is_closed = 1;
        break;
    case MCPCONN_EVENT_RESULT:
    case MCPCONN_EVENT_ERROR: {
        mcpconn_link *none = NULL;
        CHECK_STATUS(mcpconn_event_link(event, &none), MCPCONN_EMPTY);
        CHECK(!none);
        CHECK(awaited == mcpconn_event_id(event));
        done = completion_of(event);
        awaited = 0;
        break;
    }
    default:
        break;
    }
}

/* Waits for something to happen, and does what is to be done about it. */
static void turn(mcpconn_client *client)
{
    struct pollfd polled[32];
    conn *of[32], *at;
    nfds_t count = 1, i;
    polled[0].fd = mcpconn_client_fd(client);
    polled[0].events = POLLIN;
    for (at = conns; at; at = at->next) {
        CHECK(count < 32);
        of[count] = at;
        polled[count].fd = at->fd;
        polled[count++].events = (short)((at->has_reader ? 0 : POLLIN) | (at->out_length ? POLLOUT : 0));
    }
    CHECK(poll(polled, count, PATIENCE_MS) > 0);
    for (i = 1; i < count; i++) {
        if (polled[i].revents & POLLOUT)
            move_out(of[i]);
        if (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) {
            if (!of[i]->has_reader && !move_in(of[i], MSG_DONTWAIT))
                forget(of[i], MCPCONN_ERR_TRANSPORT, "the server hung up");
        }
    }
    CHECK(mcpconn_client_dispatch(client, 0, NULL) >= 0);
}

static completion await_end(mcpconn_client *client, uint64_t id)
{
    for (awaited = id; awaited;)
        turn(client);
    return done;
}

#define CHECK_MOVED(client, scope, server, tool, arguments, part)                                                     \
    do {                                                                                                              \
        completion moved_ = await_end(client, begin(client, scope, server, tool, arguments));                         \
        if (moved_.status != MCPCONN_OK)                                                                              \
            printf("%s:%d: %s failed: %s\n", __FILE__, __LINE__, tool, moved_.text);                                  \
        CHECK_STATUS(moved_.status, MCPCONN_OK);                                                                      \
        CHECK_SAYS(moved_.text, part);                                                                                \
    } while (0)

static void each_session_has_a_link_of_its_own(mcpconn_client *client)
{
    mcpconn_scope *a = scope_of("a"), *b = scope_of("b"), *threaded = scope_of("threaded");
    int before = opened, i;
    CHECK_MOVED(client, NULL, "demo", "echo", "{\"text\":\"over a link\"}", "over a link");
    CHECK_MOVED(client, a, "demo", "counter", "", "1");
    CHECK_MOVED(client, b, "demo", "counter", "", "1");
    CHECK_MOVED(client, a, "demo", "counter", "", "2");
    CHECK(opened == before + 3);
    /* Fed by a thread of its own, at the same time as this one takes events. */
    for (i = 0; i < 100; i++)
        CHECK_MOVED(client, threaded, "demo", "echo", "{\"text\":\"threaded\"}", "threaded");
    mcpconn_scope_free(a);
    mcpconn_scope_free(b);
    mcpconn_scope_free(threaded);
}

static void messages_go_over_another_socket(mcpconn_client *client)
{
    mcpconn_scope *a = scope_of("a");
    CHECK_MOVED(client, NULL, "small", "echo", "{\"text\":\"as a message\"}", "as a message");
    CHECK_MOVED(client, a, "small", "echo", "{\"text\":\"as another\"}", "as another");
    mcpconn_scope_free(a);
}

static void more_than_a_socket_takes_goes_and_comes(mcpconn_client *client)
{
    const size_t length = 4 << 20;
    char *arguments = (char *)malloc(length + 64);
    CHECK(arguments);
    strcpy(arguments, "{\"text\":\"");
    memset(arguments + 9, 'x', length);
    strcpy(arguments + 9 + length, "\"}");
    CHECK_MOVED(client, NULL, "demo", "echo", arguments, "xxxxxxxx");
    free(arguments);
}

static void a_server_that_dies_is_started_again(mcpconn_client *client)
{
    completion ended;
    conn *dies = conn_of("");
    uint64_t generation = mcpconn_link_generation(dies->link);
    uint64_t id = begin(client, NULL, "demo", "sleep", "{\"ms\":600000}");
    while (!dies->out_length && mcpconn_client_dispatch(client, 1, NULL) == MCPCONN_EMPTY)
        CHECK(mcpconn_client_wait(client, PATIENCE_MS) == MCPCONN_OK);
    while (dies->out_length)
        turn(client);
    kill(dies->pid, SIGKILL);
    ended = await_end(client, id);
    CHECK_STATUS(ended.status, MCPCONN_ERR_TRANSPORT);
    CHECK(ended.outcome == MCPCONN_OUTCOME_UNKNOWN);
    CHECK_SAYS(ended.text, "the server hung up");

    CHECK_MOVED(client, NULL, "demo", "echo", "{\"text\":\"again\"}", "again");
    CHECK(mcpconn_link_generation(conn_of("")->link) > generation);
    /* What is said of the old link changes nothing. */
    CHECK(mcpconn_link_generation(stale) == generation);
    CHECK_STATUS(mcpconn_link_opened(stale), MCPCONN_ERR_CLOSED);
    CHECK_STATUS(mcpconn_link_received(stale, "{}\n", 3), MCPCONN_ERR_CLOSED);
    CHECK_STATUS(mcpconn_link_sent(stale, 1), MCPCONN_ERR_CLOSED);
    CHECK_STATUS(mcpconn_link_closed(stale, MCPCONN_ERR_TRANSPORT, str("late")), MCPCONN_ERR_CLOSED);
    CHECK_MOVED(client, NULL, "demo", "echo", "{\"text\":\"untouched\"}", "untouched");
}

static void what_is_wrong_is_refused_and_changes_nothing(mcpconn_client *client)
{
    const mcpconn_link *link = conn_of("")->link;
    mcpconn_link *none = NULL;
    CHECK_STATUS(mcpconn_link_opened(NULL), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_received(NULL, "", 0), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_received(link, NULL, 1), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_received(link, "", (size_t)-1), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_closed(link, MCPCONN_EMPTY, str("")), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_closed(link, -9999, str("")), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_link_closed(link, MCPCONN_OK, str("\xff")), MCPCONN_ERR_INVALID);
    CHECK_STATUS(mcpconn_event_link(NULL, &none), MCPCONN_ERR_INVALID);
    CHECK(!none);
    CHECK(mcpconn_link_server(NULL).len == 0 && mcpconn_link_generation(NULL) == 0);
    mcpconn_link_free(NULL);
    CHECK_STATUS(mcpconn_link_received(link, NULL, 0), MCPCONN_OK);
    CHECK_STATUS(mcpconn_link_opened(link), MCPCONN_OK);
    CHECK_MOVED(client, NULL, "demo", "echo", "{\"text\":\"unharmed\"}", "unharmed");
}

static void in_a_forked_child_a_link_is_refused(void)
{
    mcpconn_link *link = conn_of("")->link;
    int status = -1;
    pid_t forked;
    fflush(stdout);
    forked = fork();
    CHECK(forked >= 0);
    if (forked == 0) {
        CHECK_STATUS(mcpconn_link_received(link, "{}\n", 3), MCPCONN_ERR_FORKED);
        CHECK_STATUS(mcpconn_link_closed(link, MCPCONN_OK, str("")), MCPCONN_ERR_FORKED);
        mcpconn_link_free(link);
        /* Not by exit: a leak checker would count what a child is not allowed to free. */
        execl("/bin/sh", "sh", "-c", "exit 0", (char *)NULL);
        _exit(127);
    }
    CHECK(waitpid(forked, &status, 0) == forked);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void every_link_is_to_be_closed_before_the_end(mcpconn_client *client)
{
    conn *open;
    int count = 0;
    for (open = conns; open; open = open->next)
        count++;
    CHECK(count == 6);
    CHECK_STATUS(mcpconn_client_close(client, 0), MCPCONN_OK);
    while (!is_closed)
        turn(client);
    CHECK(asked_to_close == count && !conns);
    mcpconn_client_free(client);
    /* A handle outlives all. */
    CHECK_STATUS(mcpconn_link_received(stale, "{}\n", 3), MCPCONN_ERR_CLOSED);
    CHECK_STATUS(mcpconn_link_closed(stale, MCPCONN_OK, str("")), MCPCONN_ERR_CLOSED);
    CHECK_SAYS(mcpconn_link_server(stale).ptr, "");
    mcpconn_link_free(stale);
}

int main(int argc, char **argv)
{
    static const char servers[] =
        "{\"demo\":{\"type\":\"host\",\"mcpconn\":{\"link\":{\"start\":true},"
        "\"budget\":{\"floor_ms\":10,\"backoff_ms\":10}}},"
        "\"small\":{\"type\":\"host\",\"mcpconn\":{\"framing\":\"message\"}}}";
    mcpconn_client_options options = MCPCONN_CLIENT_OPTIONS_INIT;
    mcpconn_client *client = NULL;
    int descriptors = open_descriptors(0);
    pid_t small;

    CHECK(argc == 2);
    snprintf(demo_server, sizeof demo_server, "%s", argv[1]);
    small = start_small_server();
    options.on_event = on_event;
    CHECK_STATUS(mcpconn_client_new(&options, &client, NULL), MCPCONN_OK);
    CHECK_STATUS(mcpconn_client_configure(client, str(NULL), str(servers), NULL, NULL), MCPCONN_OK);

    each_session_has_a_link_of_its_own(client);
    messages_go_over_another_socket(client);
    more_than_a_socket_takes_goes_and_comes(client);
    a_server_that_dies_is_started_again(client);
    what_is_wrong_is_refused_and_changes_nothing(client);
    in_a_forked_child_a_link_is_refused();
    every_link_is_to_be_closed_before_the_end(client);

    kill(small, SIGKILL);
    CHECK(waitpid(small, NULL, 0) == small);
    CHECK(children_left() == 0);
    check_descriptors(descriptors);
    return 0;
}
