use mcpconn_tests::{scratch::Scratch, server::Server};

use crate::{demo_server, start};

#[test]
fn a_host_is_asked_for_a_token_and_what_it_gives_is_taken_without_a_call() {
    let scratch = Scratch::new();
    let server = Server::demo(demo_server(), &[], &["--token", "sesame"]);
    start("credentials.c", &[&server.url, "sesame"], &scratch)
        .finish()
        .expect_success();
}
