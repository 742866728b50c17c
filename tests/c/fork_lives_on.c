/* A forked child that frees its parent's client holds no server's pipe open while it lives on, and loses nothing of its
 * own: the parent's close reaches a server that heeds nothing but the end of its standard input.
 *
 * fork_lives_on DEMO_SERVER LOG */
#include "support.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

typedef struct places {
    int of[64];
    int count;
} places;

static places open_pipes(void)
{
    places found;
    int fd;
    found.count = 0;
    for (fd = 0; fd < 1024; fd++) {
        struct stat about;
        if (fstat(fd, &about) == 0 && S_ISFIFO(about.st_mode)) {
            CHECK(found.count < 64);
            found.of[found.count++] = fd;
        }
    }
    return found;
}

static int has(const places *in, int place)
{
    int i;
    for (i = 0; i < in->count; i++)
        if (in->of[i] == place)
            return 1;
    return 0;
}

/* As a child does that closes what it does not know, and opens something of its own in its place. */
static int replace_one(const places *before, const places *now)
{
    int i = 0, place, null;
    while (has(before, now->of[i]))
        i++;
    place = now->of[i];
    null = open("/dev/null", O_RDWR);
    CHECK(null >= 0 && dup2(null, place) == place);
    return place;
}

static void child(mcpconn_client *client, const places *before, int let_go, int until)
{
    places now = open_pipes();
    int own, i;
    char byte = 0;
    CHECK(now.count == before->count + 3);
    own = replace_one(before, &now);
    mcpconn_client_free(client);
    now = open_pipes();
    CHECK(now.count == before->count);
    for (i = 0; i < now.count; i++)
        CHECK(has(before, now.of[i]));
    CHECK(fcntl(own, F_GETFD) >= 0);

    CHECK(write(let_go, &byte, 1) == 1);
    CHECK(read(until, &byte, 1) == 1);
    _exit(0);
}

int main(int argc, char **argv)
{
    char servers[2048], byte = 0;
    int let_go[2], until[2], status = -1;
    mcpconn_client *client;
    places before;
    pid_t forked;

    CHECK(argc == 3);
    CHECK(pipe(let_go) == 0 && pipe(until) == 0);
    before = open_pipes();
    snprintf(servers, sizeof servers,
             "{\"demo\":{\"command\":\"%s\",\"args\":[\"--log\",\"%s\",\"--ignore-term\"]}}", argv[1], argv[2]);
    client = client_with(servers);
    CHECK_CALL(client, NULL, "demo", "echo", "{\"text\":\"heard\"}", "heard");

    fflush(stdout);
    forked = fork();
    CHECK(forked >= 0);
    if (forked == 0)
        child(client, &before, let_go[1], until[0]);
    close(let_go[1]);
    CHECK(read(let_go[0], &byte, 1) == 1);

    /* The parent's own are untouched. */
    CHECK_CALL(client, NULL, "demo", "echo", "{\"text\":\"still heard\"}", "still heard");
    mcpconn_client_free(client);
    CHECK(write(until[1], &byte, 1) == 1);
    CHECK(waitpid(forked, &status, 0) == forked);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(children_left() == 0);
    return 0;
}
