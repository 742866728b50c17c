use std::net::{TcpListener, TcpStream};

use mcpconn_tests::{scratch::Scratch, server::Server};

use crate::{DEMO_SERVER, demo_server, start};

#[test]
fn a_server_that_cannot_be_had_is_named_and_holds_up_no_other() {
    let scratch = Scratch::new();
    let web_page = Server::demo(demo_server(), &["--garbage"], &[]);
    let port = ClosedPort::new();
    start(
        "bad_servers.c",
        &[DEMO_SERVER, &port.number(), &web_page.url],
        &scratch,
    )
    .finish()
    .expect_success();
}

#[test]
fn an_argument_that_is_not_what_it_must_be_is_refused_and_named() {
    let scratch = Scratch::new();
    start("bad_arguments.c", &[DEMO_SERVER], &scratch)
        .finish()
        .expect_success();
}

/// A port on which nobody listens and that nobody else is given: it is the near end of a connection of ours.
struct ClosedPort {
    connection: TcpStream,
    _listener: TcpListener,
}

impl ClosedPort {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let connection = TcpStream::connect(address).expect("it listens");
        Self {
            connection,
            _listener: listener,
        }
    }

    fn number(&self) -> String {
        self.connection
            .local_addr()
            .expect("it is connected")
            .port()
            .to_string()
    }
}
