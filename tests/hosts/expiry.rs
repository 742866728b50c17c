//! A FastMCP server ends sessions that are idle for some seconds, whatever the client would like.

use mcpconn_tests::{
    child::Child,
    proxy::Proxy,
    scratch::Scratch,
    server::Server,
    tools::{self, Sdk, Start},
};

use crate::start;

const IDLE_SECONDS: &str = "2";

/// What the server writes about its sessions.
const OPENED: &str = "Created new transport";
const EXPIRED: &str = "idle timeout";
const ENDED: &str = "Terminating session";

fn idle(python: &Start) -> Server {
    Server::sdk(python, &["http", "--json", "--idle-seconds", IDLE_SECONDS])
}

#[test]
fn a_call_after_the_expiry_is_answered_without_the_caller_noticing() {
    let Some(python) = tools::need("expiry", Sdk::Mcp1.find()) else {
        return;
    };
    let scratch = Scratch::new();
    let mut server = idle(&python);
    let mut host = start("idle_expiry.c", &[&server.url], &scratch);
    host.hear("first answered");
    // The home session and the scoped one.
    server.child.hear_error(EXPIRED);
    server.child.hear_error(EXPIRED);
    host.tell("go");
    host.finish().expect_success();
    assert_eq!(server.child.count_errors(OPENED), 4);
}

/// A host whose first session has expired and whose second call waits for a reconnect that the proxy holds up.
struct HeldUp {
    server: Server,
    proxy: Proxy,
    host: Child,
    _scratch: Scratch,
}

impl HeldUp {
    fn new(python: &Start) -> Self {
        let scratch = Scratch::new();
        let mut server = idle(python);
        let proxy = Proxy::before(server.port());
        let mut host = start("close_while_reconnecting.c", &[&proxy.url()], &scratch);
        host.hear("first answered");
        server.child.hear_error(EXPIRED);
        server.child.hear_error(ENDED);
        // The call itself must pass, so that the server can refuse it; what is held up is what follows.
        proxy.hold("\"initialize\"");
        host.tell("go");
        host.hear("second begun");
        proxy.await_held_up();
        Self {
            server,
            proxy,
            host,
            _scratch: scratch,
        }
    }
}

#[test]
fn closing_while_the_reconnect_is_held_up_ends_in_time_and_leaves_nothing() {
    let Some(python) = tools::need("closing while reconnecting", Sdk::Mcp1.find()) else {
        return;
    };
    let mut held_up = HeldUp::new(&python);
    held_up.host.tell("go");
    held_up.host.hear("closed");
    held_up.host.finish().expect_success();
    assert_eq!(
        held_up.server.child.count_errors(OPENED),
        1,
        "the reconnect never reached the server"
    );
}

#[test]
fn a_session_that_opens_after_the_close_began_is_closed() {
    let Some(python) = tools::need("a reconnect let go while closing", Sdk::Mcp1.find()) else {
        return;
    };
    let mut held_up = HeldUp::new(&python);
    held_up.host.tell("go");
    held_up.host.hear("closing");
    held_up.proxy.let_go();
    held_up.host.hear("closed");
    held_up.host.finish().expect_success();
    let server = &mut held_up.server.child;
    assert_eq!(
        server.count_errors(OPENED),
        2,
        "the reconnect reached the server"
    );
    server.hear_error(ENDED);
    assert_eq!(
        server.count_errors(EXPIRED),
        1,
        "it was the client that ended the second session"
    );
}
