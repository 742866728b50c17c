use mcpconn_tests::{scratch::Scratch, server::Server};

use crate::{DEMO_SERVER, demo_server, start};

#[test]
fn a_host_closes_sessions_at_once_and_gently_and_hears_of_them() {
    let scratch = Scratch::new();
    let server = Server::demo(demo_server(), &[], &[]);
    start("closing.c", &[DEMO_SERVER, &server.url], &scratch)
        .finish()
        .expect_success();
}

#[test]
fn a_host_gives_the_servers_again_and_is_told_what_changed() {
    let scratch = Scratch::new();
    start("configure_again.c", &[DEMO_SERVER], &scratch)
        .finish()
        .expect_success();
}
