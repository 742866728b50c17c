//! Ends: in good order, within their limit, and without a word after the last.

use std::time::Duration;

use mcp_transport::{
    error::ErrorKind,
    http::{HttpClient, HttpTransport},
    jsonrpc::RequestId,
    transport::{Incoming, Transport},
};
use tokio::{runtime::Handle, time::Instant};

use crate::server::{Client, Server, all_is_quiet, response, result};

const JSON: (&str, &str) = ("content-type", "application/json");

const LIMIT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn closing_tells_the_server_whatever_it_says_to_that() {
    for status in [
        "200 OK",
        "404 Not Found",
        "405 Method Not Allowed",
        "500 Internal Server Error",
        "501 Not Implemented",
    ] {
        let server = Server::start().await;
        let (mut client, mut connection) = Client::opened(&server, "s-1").await;
        let served = async {
            let request = connection.request().await;
            assert_eq!(request.line, "DELETE /mcp HTTP/1.1");
            assert_eq!(request.header("mcp-session-id"), Some("s-1"));
            assert_eq!(request.header("mcp-protocol-version"), Some("2025-06-18"));
            connection.answer(status, &[], "").await;
        };
        tokio::join!(client.transport.close(LIMIT), served);
        assert_eq!(client.ended().await, ErrorKind::Closed);
        assert!(client.left().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn closing_is_bounded_when_the_server_never_answers() {
    let server = Server::start().await;
    let (mut client, mut connection) = Client::opened(&server, "s").await;
    let begun = Instant::now();
    tokio::join!(client.transport.close(LIMIT), connection.request());
    assert_eq!(begun.elapsed().as_secs(), LIMIT.as_secs());
    assert_eq!(client.ended().await, ErrorKind::Closed);
    connection.closed().await;
}

#[tokio::test(start_paused = true)]
async fn closing_is_bounded_when_nobody_takes_the_farewell() {
    let server = Server::start().await;
    let (client, connection) = Client::opened(&server, "s").await;
    connection.hang_up().await;
    let begun = Instant::now();
    client.transport.close(LIMIT).await;
    assert_eq!(begun.elapsed().as_secs(), LIMIT.as_secs());
    // Its connection stands in the backlog, and goes with it.
    server.accept().await.closed().await;
}

#[tokio::test]
async fn closing_cuts_what_is_under_way_at_once() {
    let server = Server::start().await;
    let (mut client, mut silent) = Client::opened(&server, "s").await;
    client.request(1, "tools/call");
    silent.request().await;
    client.written(1).await;
    client.request(2, "tools/call");
    let (mut stream, _) = server.request().await;
    stream.begin_events(&[]).await;
    client.written(2).await;
    let served = async {
        // Both are cut before the farewell is answered.
        silent.closed().await;
        stream.closed().await;
        let (mut farewell, request) = server.request().await;
        assert!(request.line.starts_with("DELETE"));
        farewell.answer("200 OK", &[], "").await;
    };
    tokio::join!(client.transport.close(LIMIT), served);
    assert_eq!(client.ended().await, ErrorKind::Closed);
    assert!(client.left().is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_a_session_id_there_is_no_farewell() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let mut connection = client.open(&server, &[]).await;
    let begun = Instant::now();
    client.transport.close(LIMIT).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(client.ended().await, ErrorKind::Closed);
    drop(client);
    connection.closed().await;
}

#[tokio::test]
async fn a_session_that_opens_only_after_the_close_began_is_ended_and_never_told() {
    for given_up in [false, true] {
        let server = Server::start().await;
        let mut client = Client::of(&server).await;
        client.request(0, "initialize");
        let (mut connection, _) = server.request().await;
        client.written(0).await;
        if given_up {
            client.transport.abandon(RequestId(0));
        }
        let Client { transport, told } = &mut client;
        let served = async {
            assert!(matches!(told.recv().await, Some(Incoming::Ended(_))));
            let late = response(
                "200 OK",
                &[("mcp-session-id", "late"), JSON],
                &result(0, "{}"),
            );
            connection.send(late).await;
            let request = connection.request().await;
            assert_eq!(request.line, "DELETE /mcp HTTP/1.1");
            assert_eq!(request.header("mcp-session-id"), Some("late"));
            connection.answer("200 OK", &[], "").await;
        };
        tokio::join!(transport.close(LIMIT), served);
        assert!(client.left().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_is_held_up_is_cut_when_the_time_to_close_is_over() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(0, "initialize");
    let (mut connection, _) = server.request().await;
    client.written(0).await;
    let begun = Instant::now();
    client.transport.close(LIMIT).await;
    assert_eq!(begun.elapsed(), LIMIT);
    assert_eq!(client.ended().await, ErrorKind::Closed);
    connection.closed().await;
    all_is_quiet().await;
    assert!(client.left().is_empty());
}

#[tokio::test(start_paused = true)]
async fn closing_may_be_asked_for_by_many_and_each_has_its_own_limit() {
    let server = Server::start().await;
    let (mut client, mut connection) = Client::opened(&server, "s").await;
    let begun = Instant::now();
    let closer = |limit| {
        let close = client.transport.close(limit);
        async move {
            close.await;
            begun.elapsed().as_secs()
        }
    };
    let (long, short, _) = tokio::join!(closer(LIMIT), closer(LIMIT / 5), connection.request());
    // The shortest cuts, for all.
    assert_eq!((long, short), (1, 1));
    client.transport.close(LIMIT).await;
    assert_eq!(begun.elapsed().as_secs(), 1);
    assert_eq!(client.ended().await, ErrorKind::Closed);
    assert!(client.left().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_close_that_is_given_up_still_ends_by_itself() {
    let server = Server::start().await;
    let (client, mut connection) = Client::opened(&server, "s").await;
    let mut close = client.transport.close(LIMIT);
    tokio::select! {
        biased;
        () = &mut close => panic!("nobody answered the farewell"),
        _ = connection.request() => {}
    }
    drop(close);
    let begun = Instant::now();
    connection.closed().await;
    assert_eq!(begun.elapsed().as_secs(), LIMIT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_close_begins_when_it_is_called_and_what_was_not_written_then_never_is() {
    let server = Server::start().await;
    let (mut client, mut connection) = Client::opened(&server, "s").await;
    client.request(1, "tools/call");
    // Never polled.
    drop(client.transport.close(LIMIT));
    assert!(matches!(client.left().as_slice(), [Incoming::Ended(_)]));
    let request = connection.request().await;
    assert_eq!(request.line, "DELETE /mcp HTTP/1.1");
    connection.answer("200 OK", &[], "").await;
    all_is_quiet().await;
    assert!(client.left().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_was_not_written_when_the_close_began_never_is() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(0, "initialize");
    drop(client.transport.close(LIMIT));
    assert!(matches!(client.left().as_slice(), [Incoming::Ended(_)]));
    tokio::select! {
        _ = server.request() => panic!("it went out"),
        () = all_is_quiet() => {}
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_handshake_to_be_through_is_not_sent_once_the_session_is_closed() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let mut connection = client.open(&server, &[]).await;
    client.notify("notifications/initialized");
    connection.request().await;
    client.request(1, "tools/call");
    all_is_quiet().await;
    drop(client.transport.close(LIMIT));
    assert!(matches!(client.left().as_slice(), [Incoming::Ended(_)]));
    connection.closed().await;
    tokio::select! {
        _ = server.accept() => panic!("it went out"),
        () = all_is_quiet() => {}
    }
}

/// Whether the server gets the whole of a request that is given up after so many turns of the runtime, on a
/// connection that stands or on a new one, and whether it was told as written by the time it was given up.
async fn given_up_after(turns: usize, stands: bool) -> (bool, bool) {
    let server = Server::start().await;
    let (mut client, connection) = Client::opened(&server, "s").await;
    let mut connection = Some(connection);
    if !stands {
        connection.take().expect("it stands").hang_up().await;
        all_is_quiet().await;
    }
    client.request(1, "tools/call");
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
    client.transport.abandon(RequestId(1));
    let told = client.left();
    let was_told = matches!(told.as_slice(), [Incoming::Written(RequestId(1))]);
    assert!(was_told || told.is_empty(), "{told:?}");
    let mut connection = match connection {
        Some(connection) => connection,
        None => tokio::select! {
            biased;
            connection = server.accept() => connection,
            () = all_is_quiet() => return (false, was_told),
        },
    };
    let came = connection.received().await;
    assert!(client.left().is_empty());
    (came.contains("tools/call"), was_told)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_reaches_the_server_only_if_it_was_told_as_written() {
    for stands in [true, false] {
        let mut seen = [false; 2];
        for turns in 0..30 {
            // As a task among the others, so that its turns come between theirs.
            let given_up = tokio::spawn(given_up_after(turns, stands));
            let (came, was_told) = given_up.await.expect("no panic");
            assert!(was_told || !came, "after {turns} turns: it came, untold");
            seen[usize::from(was_told)] = true;
        }
        assert_eq!(seen, [true, true], "both before and after it was written");
    }
}

#[tokio::test]
async fn dropping_the_transport_cuts_everything_without_a_word() {
    let server = Server::start().await;
    let (mut client, mut silent) = Client::opened(&server, "s").await;
    client.request(1, "tools/call");
    silent.request().await;
    client.written(1).await;
    let Client {
        transport,
        mut told,
    } = client;
    drop(transport);
    silent.closed().await;
    assert!(
        told.recv().await.is_none(),
        "the receiver is let go of in silence"
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_drop_no_task_is_left_whatever_it_was_about() {
    let server = Server::start().await;
    let (mut client, mut idle) = Client::opened(&server, "s").await;
    client.request(1, "tools/call");
    idle.request().await;
    client.request(2, "tools/call");
    let (mut silent, _) = server.request().await;
    client.request(3, "tools/call");
    let (mut stream, _) = server.request().await;
    stream.begin_events(&[]).await;
    client.notify("notifications/cancelled");
    server.request().await;
    // More than the sockets hold, to a server that does not read.
    client.request_with(4, "tools/call", &format!("{:?}", "x".repeat(32 << 20)));
    let mut stuck = server.accept().await;
    for id in 1..=4 {
        client.written(id).await;
    }
    // One that is not accepted, and one that has not begun.
    client.request(5, "tools/call");
    client.written(5).await;
    client.request(6, "tools/call");
    idle.json(&result(1, "{}")).await;
    assert_eq!(client.message().await, result(1, "{}"));
    drop(client);
    all_is_quiet().await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    for connection in [&mut idle, &mut silent, &mut stream, &mut stuck] {
        connection.closed().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_after_the_close_goes_nowhere() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.transport.close(LIMIT).await;
    assert!(matches!(client.next().await, Incoming::Ended(_)));
    client.request(1, "ping");
    client.notify("notifications/initialized");
    client.transport.abandon(RequestId(1));
    tokio::select! {
        _ = server.accept() => panic!("it went out"),
        () = all_is_quiet() => {}
    }
    assert!(client.left().is_empty());
}

#[tokio::test]
async fn a_transport_that_was_never_started_closes() {
    let server = Server::start().await;
    let transport = HttpTransport::new(server.config(), HttpClient::new());
    transport.close(LIMIT).await;
    let client = Client::of(&server).await;
    drop(client);
}
