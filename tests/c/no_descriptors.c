/* A host that has no descriptors left hears so, costs its servers nothing, and goes on when it has some again.
 *
 * no_descriptors DEMO-SERVER URL */
#include "support.h"

#include <sys/resource.h>

/* None above this one can be had. */
static void allow_descriptors(rlim_t highest, rlim_t max)
{
    struct rlimit limit;
    limit.rlim_cur = highest;
    limit.rlim_max = max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static rlim_t first_free_descriptor(void)
{
    int fd = dup(0);
    CHECK(fd >= 0);
    close(fd);
    return (rlim_t)fd;
}

static void hears_what_is_missing(mcpconn_client *client, const char *server)
{
    completion done = call(client, NULL, server, "echo", "{\"text\":\"hello\"}");
    mcpconn_server_info info = MCPCONN_SERVER_INFO_INIT;
    CHECK_STATUS(done.status, MCPCONN_ERR_LOCAL);
    CHECK(done.outcome == MCPCONN_OUTCOME_NOT_SENT);
    CHECK_SAYS(done.text, server);
    CHECK_SAYS(done.text, "Too many open files");
    CHECK_SAYS(done.text, "ulimit -n");
    CHECK_STATUS(mcpconn_client_server_info(client, str(NULL), str(server), &info, NULL), MCPCONN_OK);
    CHECK(info.charges == 0);
}

int main(int argc, char **argv)
{
    char servers[2048];
    struct rlimit before;
    mcpconn_client *client;

    CHECK(argc == 3);
    snprintf(servers, sizeof servers, "{\"child\":{\"command\":\"%s\"},\"remote\":{\"type\":\"http\",\"url\":\"%s\"}}", argv[1],
             argv[2]);
    client = client_with(servers);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    allow_descriptors(first_free_descriptor(), before.rlim_max);
    hears_what_is_missing(client, "child");
    hears_what_is_missing(client, "remote");
    allow_descriptors(before.rlim_cur, before.rlim_max);
    CHECK_CALL(client, NULL, "child", "echo", "{\"text\":\"again\"}", "again");
    CHECK_CALL(client, NULL, "remote", "echo", "{\"text\":\"again\"}", "again");
    end(client);
    return 0;
}
