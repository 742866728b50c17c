/* Calls over stdio through the header, beside a raw ping-pong of the same bytes in the same run:
 *
 *     through_c SERVER
 *
 * SERVER is the program of mcp-transport/bench, which serves with the argument serve-stdio. What is compared is the CPU
 * time of this process for each call; only the ratios mean anything. */
#define _GNU_SOURCE
#include <mcpconn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 7 };

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void must(mcpconn_status status, mcpconn_error *error, const char *what)
{
    if (status == MCPCONN_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, error ? mcpconn_error_message(error).ptr : "failed");
    exit(1);
}

static double cpu(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

/* With the server: where the kernel puts each of the two is not what is to be measured. */
static void stay_on_one_processor(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* So many batches of so many calls with an answer of so many bytes. */
struct load {
    const char *name;
    int in_flight, batches;
    size_t bytes;
};

/* The same bytes without any JSON. */

static int to_server, from_server;

static void start_raw(const char *program)
{
    int in[2], out[2];
    if (pipe(in) || pipe(out))
        die("no pipe");
    if (fork() == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        execl(program, program, "serve-stdio", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    to_server = in[1];
    from_server = out[0];
}

static void call_raw(const struct load *load)
{
    static char buffer[65536], requests[65536];
    size_t length = 0;
    for (int i = 0; i < load->in_flight; i++)
        length += (size_t)snprintf(requests + length, sizeof requests - length,
                                   "{\"jsonrpc\":\"2.0\",\"id\":1000,\"method\":\"tools/call\","
                                   "\"params\":{\"name\":\"s%zu\",\"arguments\":{}}}\n",
                                   load->bytes);
    for (int batch = 0; batch < load->batches; batch++) {
        size_t kept = 0, room = 0;
        char *answer = NULL;
        if (write(to_server, requests, length) != (ssize_t)length)
            die("the server does not read");
        for (int lines = load->in_flight; lines > 0;) {
            ssize_t got = read(from_server, buffer, sizeof buffer);
            if (got <= 0)
                die("the server has gone");
            for (char *at = buffer; (at = memchr(at, '\n', (size_t)(buffer + got - at))); at++)
                lines--;
            if (kept + (size_t)got > room) {
                room = room * 2 + (size_t)got;
                if (!(answer = realloc(answer, room)))
                    die("no memory");
            }
            memcpy(answer + kept, buffer, (size_t)got);
            kept += (size_t)got;
        }
        free(answer);
    }
}

/* Ours, waiting or polling the descriptor. */

static mcpconn_client *waited, *polled;
static int epoll;

static mcpconn_client *start_ours(const char *program)
{
    char json[4096];
    mcpconn_client *client;
    mcpconn_error *error = NULL;
    snprintf(json, sizeof json, "{\"bench\": {\"command\": \"%s\", \"args\": [\"serve-stdio\"]}}", program);
    must(mcpconn_client_new(NULL, &client, &error), error, "new");
    must(mcpconn_client_configure(client, MCPCONN_DEPLOYMENT, mcpconn_cstr(json), NULL, &error), error, "configure");
    return client;
}

static void call_ours(mcpconn_client *client, const struct load *load, int by_poll)
{
    char tool[32];
    mcpconn_error *error = NULL;
    snprintf(tool, sizeof tool, "s%zu", load->bytes);
    for (int batch = 0; batch < load->batches; batch++) {
        for (int i = 0; i < load->in_flight; i++)
            must(mcpconn_client_call_tool(client, NULL, mcpconn_cstr("bench"), mcpconn_cstr(tool), mcpconn_cstr(""),
                                          NULL, NULL, &error),
                 error, "call");
        for (int left = load->in_flight; left > 0;) {
            mcpconn_event *event = NULL;
            struct epoll_event ready;
            if (by_poll ? epoll_wait(epoll, &ready, 1, -1) != 1 : mcpconn_client_wait(client, MCPCONN_FOREVER))
                die("no event");
            while (mcpconn_client_next_event(client, &event) == MCPCONN_OK) {
                if (mcpconn_event_kind(event) == MCPCONN_EVENT_RESULT) {
                    if (mcpconn_event_json(event).len < load->bytes)
                        die("the answer is short");
                    left--;
                } else if (mcpconn_event_kind(event) == MCPCONN_EVENT_ERROR) {
                    die("a call failed");
                }
                mcpconn_event_free(event);
            }
        }
    }
}

static void wait_for_ours(const struct load *load) { call_ours(waited, load, 0); }
static void poll_ours(const struct load *load) { call_ours(polled, load, 1); }

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const struct load loads[] = {
        {"1 in flight, 100 B", 1, 3000, 100},      {"64 in flight, 100 B", 64, 100, 100},
        {"512 in flight, 100 B", 512, 20, 100},    {"1 in flight, 64 KiB", 1, 500, 64 << 10},
        {"1 in flight, 1 MiB", 1, 60, 1 << 20},    {"1 in flight, 15 MiB", 1, 5, 15 << 20},
    };
    void (*const ways[])(const struct load *) = {call_raw, wait_for_ours, poll_ours};
    struct epoll_event readable = {.events = EPOLLIN};

    if (argc != 2)
        die("usage: through_c SERVER");
    stay_on_one_processor();
    start_raw(argv[1]);
    waited = start_ours(argv[1]);
    polled = start_ours(argv[1]);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(epoll, EPOLL_CTL_ADD, mcpconn_client_fd(polled), &readable);

    printf("\nstdio through C: this process's CPU for each call, and how often raw's\n");
    printf("%30s %12s %21s %21s\n", "", "raw", "mcpconn_client_wait", "epoll on the fd");
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        double costs[3][ROUNDS], calls = (double)loads[i].in_flight * loads[i].batches;
        /* The first is to warm up. */
        for (int round = -1; round < ROUNDS; round++)
            for (int way = 0; way < 3; way++) {
                double before = cpu();
                ways[way](&loads[i]);
                if (round >= 0)
                    costs[way][round] = (cpu() - before) / calls;
            }
        for (int way = 0; way < 3; way++)
            qsort(costs[way], ROUNDS, sizeof(double), by_size);
        printf("%30s %9.1f µs", loads[i].name, costs[0][ROUNDS / 2]);
        for (int way = 1; way < 3; way++)
            printf(" %9.1f µs %7.2f", costs[way][ROUNDS / 2], costs[way][ROUNDS / 2] / costs[0][ROUNDS / 2]);
        printf("\n");
    }
    mcpconn_client_free(waited);
    mcpconn_client_free(polled);
    close(to_server);
    wait(NULL);
    return 0;
}
