//! The client against servers that do as the test says, and its promises to the host.

mod child;
mod closes;
mod composition;
mod credentials;
mod deadlines;
mod expiry;
mod faults;
mod host;
mod limits;
mod link;
mod listening;
mod lists;
mod methods;
mod news;
mod notifications;
mod reconcile;
mod requests;
mod secrets;
mod server;
mod silence;
mod standing;
mod threads;
mod together;

use std::time::{Duration, Instant};

use mcpconn::{CallOptions, Client, ClientOptions, Error, Event, EventKind, Scope};

/// No step of a test takes longer.
const LONG: Duration = Duration::from_secs(30);

fn client(config: &str) -> Client {
    let client = Client::new(ClientOptions::default()).unwrap();
    client.configure("", config).unwrap();
    client
}

/// Options with this deadline.
fn within(limit: Duration) -> CallOptions {
    CallOptions {
        timeout: Some(limit),
        ..CallOptions::default()
    }
}

/// Calls a tool of `server` on the session of a scope.
fn begin(client: &Client, scope: &str, tool: &str) -> u64 {
    begin_with(client, scope, tool, CallOptions::default())
}

fn begin_with(client: &Client, scope: &str, tool: &str, options: CallOptions) -> u64 {
    let scope = Scope::new("", scope);
    client
        .call_tool(&scope, "server", tool, "", options)
        .unwrap()
}

/// The next event that is wanted; the others are dropped.
fn next(client: &Client, mut wanted: impl FnMut(&Event) -> bool) -> Event {
    let begun = Instant::now();
    loop {
        match client.next_event() {
            Some(event) if wanted(&event) => return event,
            Some(_) => {}
            None => {
                let left = LONG.saturating_sub(begun.elapsed());
                assert!(client.wait(Some(left)).unwrap(), "no such event");
            }
        }
    }
}

/// The event that ends this call.
fn completion(client: &Client, id: u64) -> Event {
    next(client, |event| event.id == id && event.is_completion())
}

/// The text of a call that was answered.
fn answered(client: &Client, id: u64) -> String {
    match completion(client, id).kind {
        EventKind::Result(answer) => answer.text().into(),
        other => panic!("the call was not answered: {other:?}"),
    }
}

/// The error of a call that failed.
#[track_caller]
fn error_of(client: &Client, id: u64) -> Error {
    match completion(client, id).kind {
        EventKind::Error(error) => error,
        other => panic!("the call did not fail: {other:?}"),
    }
}
