//! What servers say on their own.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use mcpconn::{
    CallOptions, Client, ClientOptions, Dropped, Event, EventKind, HostTakes, ListKind, LogLevel,
    Scope,
};
use serde_json::{Value, json};

use crate::{LONG, answered, child, next};

/// Says one of each kind at each call.
const TALKS: &str = r#"
    *'"tools/call"'*)
        say '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","logger":"db","data":"slow"}}'
        say '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1"}}'
        say '{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}'
        say '{"jsonrpc":"2.0","method":"notifications/own"}'
        answer '{"content":[]}' ;;"#;

/// Logs 1,030 times at each call, and answers it and the one that was held until then.
const LOGS: &str = r#"
    *'"held"'*) noted=$id ;;
    *'"tools/call"'*)
        count=1; while [ $count -le 1030 ]; do
            say "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"$count\"}}"
            count=$((count + 1))
        done
        answer '{"content":[]}'; id=$noted; answer '{"content":[]}' ;;"#;

/// Logs 1,000 times 8 KiB at each call.
const FLOODS: &str = r#"
    *'"flood"'*)
        noted=$(printf '%08192d' 0); count=0; while [ $count -lt 1000 ]; do
            say "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"$noted\"}}"
            count=$((count + 1))
        done
        answer '{"content":[{"type":"text","text":"flooded"}]}' ;;
    *'"tools/call"'*) answer '{"content":[{"type":"text","text":"well"}]}' ;;"#;

/// Says 200 times that its tools are others, and how often it was asked for them.
const CHANGES: &str = r#"
    *'"tools/list"'*) count=$((count + 1)); answer '{"tools":[{"name":"new","inputSchema":{}}]}' ;;
    *'"count"'*) answer "{\"content\":[{\"type\":\"text\",\"text\":\"$count\"}]}" ;;
    *'"tools/call"'*) noted=0; while [ $noted -lt 200 ]; do
            say '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
            noted=$((noted + 1))
        done
        say '{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}'
        say '{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}'
        answer '{"content":[]}' ;;"#;

fn client(takes: HostTakes, branches: &str) -> Client {
    let options = ClientOptions {
        takes,
        ..ClientOptions::default()
    };
    let client = Client::new(options).unwrap();
    client
        .configure("", &child::config(branches, json!({})))
        .unwrap();
    client
}

fn call_in(client: &Client, scope: &Scope, tool: &str) -> u64 {
    client
        .call_tool(scope, "server", tool, "", CallOptions::default())
        .unwrap()
}

fn call(client: &Client, tool: &str) -> u64 {
    call_in(client, &Scope::default(), tool)
}

/// What came before a call's end.
fn heard(client: &Client, call: u64) -> Vec<Event> {
    let mut heard = Vec::new();
    next(client, |event| {
        heard.push(event.clone());
        event.id == call && event.is_completion()
    });
    heard
}

fn said(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Log(log) => Some(format!("log {:?}", log.level())),
            EventKind::Notification { method, .. } => Some(method.to_string()),
            EventKind::ResourceUpdated(_) => Some(format!("updated {}", event.kind.text())),
            _ => None,
        })
        .collect()
}

#[test]
fn what_a_server_says_reaches_a_host_that_takes_it_in_order() {
    let takes = HostTakes {
        logs: true,
        notifications: true,
        ..HostTakes::default()
    };
    let client = client(takes, TALKS);
    for scope in [Scope::default(), Scope::new("", "chat")] {
        let call = call_in(&client, &scope, "any");
        let heard = heard(&client, call);
        assert_eq!(
            said(&heard),
            [
                &format!("log {:?}", Some(LogLevel::Error)),
                "updated a:1",
                "notifications/elicitation/complete",
                "notifications/own",
            ]
        );
        let log = heard
            .iter()
            .find(|event| matches!(event.kind, EventKind::Log(_)))
            .unwrap();
        assert_eq!(log.kind.text(), "db: slow");
        assert_eq!(&*log.server, "server");
        assert_eq!(log.scope, heard.last().unwrap().scope);
    }
}

#[test]
fn a_host_that_takes_nothing_hears_of_its_resources_alone() {
    let client = client(HostTakes::default(), TALKS);
    let call = call(&client, "any");
    assert_eq!(said(&heard(&client, call)), ["updated a:1"]);
}

#[test]
fn a_host_that_opens_urls_hears_when_that_is_done() {
    let takes = HostTakes {
        elicitation_url: true,
        ..HostTakes::default()
    };
    let client = client(takes, TALKS);
    let call = call(&client, "any");
    assert_eq!(
        said(&heard(&client, call)),
        ["updated a:1", "notifications/elicitation/complete"]
    );
}

#[test]
fn a_slow_host_gets_the_newest_log_messages_and_is_told_of_the_others() {
    let takes = HostTakes {
        logs: true,
        ..HostTakes::default()
    };
    let client = client(takes, LOGS);
    let calls_reach = |number| {
        while client.server_status("", "server").unwrap().calls != number {
            thread::yield_now();
        }
    };
    call(&client, "held");
    calls_reach(1);
    let call = call(&client, "any");
    // Nothing is taken before all of it was said.
    calls_reach(0);
    let heard = heard(&client, call);
    let logs: Vec<_> = heard
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Log(_)))
        .map(|event| event.kind.text())
        .collect();
    assert_eq!(logs.len(), 1024);
    assert_eq!((&*logs[0], &*logs[1023]), ("7", "1030"));
    let dropped: Vec<_> = heard
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Dropped(dropped) => Some(dropped),
            _ => None,
        })
        .collect();
    let six = Dropped {
        logs: 6,
        ..Dropped::default()
    };
    assert_eq!(dropped, [six]);
}

const LIMIT: usize = 1 << 20;

/// A client that keeps little, with a server that floods it and another.
fn client_to_flood(branches: &str, ours: Value) -> Client {
    let options = ClientOptions {
        takes: HostTakes {
            logs: true,
            ..HostTakes::default()
        },
        max_queued: LIMIT,
        ..ClientOptions::default()
    };
    let client = Client::new(options).unwrap();
    let one: Value = serde_json::from_str(&child::config(branches, ours)).unwrap();
    let two: Value = serde_json::from_str(&child::config(FLOODS, json!({}))).unwrap();
    let both = json!({"server": one["server"], "other": two["server"]});
    client.configure("", &both.to_string()).unwrap();
    client
}

/// As they count.
fn bytes(logs: &[Event]) -> usize {
    let of = |event: &Event| match &event.kind {
        EventKind::Log(log) => log.params.len(),
        _ => 0,
    };
    logs.iter().map(of).sum()
}

/// Calls the other server once, and gives the log messages that come meanwhile. No call to the first ends.
fn other_is_served(client: &Client) -> Vec<Event> {
    let (home, options) = (Scope::default(), CallOptions::default());
    let other = client.call_tool(&home, "other", "any", "", options);
    let other = other.unwrap();
    let mut logs = Vec::new();
    let ended = next(client, |event| {
        if matches!(event.kind, EventKind::Log(_)) {
            logs.push(event.clone());
        }
        assert!(!event.is_completion() || event.id == other, "{event:?}");
        event.id == other
    });
    assert_eq!(ended.kind.text(), "well");
    logs
}

fn others_are_served(client: &Client, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        other_is_served(client);
    }
}

/// Holds what floods the client until no more of it comes, while the other server is served.
fn held_until_it_stops(client: &Client) -> Vec<Event> {
    let mut held = Vec::new();
    let begun = Instant::now();
    while bytes(&held) <= LIMIT || begun.elapsed() < Duration::from_millis(300) {
        assert!(begun.elapsed() < LONG, "{} logs came", held.len());
        held.extend(other_is_served(client));
    }
    // Beside the limit, the messages that came with one read.
    assert!(bytes(&held) < LIMIT + (2 << 20), "{} bytes", bytes(&held));
    held
}

#[test]
fn a_host_that_frees_nothing_holds_up_the_server_that_floods_it_and_that_alone() {
    // Its silence, while it is not read, would be a loss twice over.
    let client = client_to_flood(
        FLOODS,
        json!({"budget": {"keepalive_ms": 20, "probe_deadline_ms": 20}}),
    );
    let flood = call(&client, "flood");
    let held = held_until_it_stops(&client);

    // What it takes is freed from here on.
    let mut logs = held.len();
    drop(held);
    let ended = next(&client, |event| {
        logs += usize::from(matches!(event.kind, EventKind::Log(_)));
        assert!(!matches!(event.kind, EventKind::Dropped(_)), "{event:?}");
        event.id == flood
    });
    assert_eq!(ended.kind.text(), "flooded");
    assert_eq!(logs, 1000);
    let status = client.server_status("", "server").unwrap();
    assert_eq!(status.generation, 1, "{status:?}");
}

#[test]
fn no_session_is_opened_with_a_server_that_is_not_read() {
    // Each process that is asked to open a session leaves a dot.
    let dots = concat!(env!("CARGO_TARGET_TMPDIR"), "/opened-while-not-read");
    fs::write(dots, "").unwrap();
    let counts = format!(
        r#"*'"initialize"'*) printf . >>'{dots}'
            answer '{{"protocolVersion":"2025-06-18","capabilities":{{}},"serverInfo":{{"name":"s","version":"0"}}}}' ;;{FLOODS}"#
    );
    let client = client_to_flood(&counts, json!({}));
    // A server that proved itself opens sessions without delay.
    assert_eq!(answered(&client, call(&client, "any")), "well");
    call(&client, "flood");
    let held = held_until_it_stops(&client);
    let scoped = call_in(&client, &Scope::new("", "chat"), "any");
    others_are_served(&client, Duration::from_millis(300));
    // Its answer would not be read, and it would seem to be slow.
    assert_eq!(fs::read_to_string(dots).unwrap(), ".");
    drop(held);
    assert_eq!(answered(&client, scoped), "well");
    assert_eq!(fs::read_to_string(dots).unwrap(), "..");
}

#[test]
fn of_many_changes_of_a_list_the_host_hears_once_and_the_tools_are_asked_for_again() {
    let client = client(HostTakes::default(), CHANGES);
    call(&client, "any");
    let mut heard = Vec::new();
    next(&client, |event| {
        if let EventKind::CatalogueChanged(list) = event.kind {
            heard.push(list);
        }
        let has = |list| heard.contains(&list);
        has(ListKind::Tools) && has(ListKind::Resources) && has(ListKind::Prompts)
    });
    assert!(client.tools("").unwrap().tools.contains("new"));
    // When it connected, at the first change, and after the last.
    let asked: u32 = answered(&client, call(&client, "count")).parse().unwrap();
    assert!((1..=3).contains(&asked), "{asked}");
    for list in [ListKind::Resources, ListKind::Prompts] {
        assert_eq!(heard.iter().filter(|one| **one == list).count(), 1);
    }
}
