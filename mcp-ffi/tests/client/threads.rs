//! Calls of several threads, and who drives them meanwhile: another thread of the host's, the background thread, or
//! nobody for a while.

use std::{collections::HashMap, sync::Barrier, thread, time::Duration};

use mcpconn::{CallOptions, Client, Error, EventKind, Kind, ListKind, Scope};
use serde_json::json;

use crate::{LONG, answered, begin, child, client};

/// Says of each call and listing the how manieth it is.
const COUNTS: &str = r#"
    *'"tools/call"'*) count=$((count + 1)); answer "{\"content\":[{\"type\":\"text\",\"text\":\"$count\"}]}" ;;
    *'"resources/list"'*) count=$((count + 1)); answer "{\"resources\":[{\"uri\":\"$count\",\"name\":\"$count\"}]}" ;;
"#;

fn list(client: &Client) -> u64 {
    client
        .list(
            &Scope::default(),
            "server",
            ListKind::Resources,
            CallOptions::default(),
        )
        .unwrap()
}

/// The number that the server gave to a call or listing.
fn number(client: &Client, id: u64) -> u32 {
    let text = answered(client, id);
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn calls_and_listings_of_one_thread_reach_the_server_in_their_order_whoever_drives() {
    let client = client(&child::config(COUNTS, json!({})));
    let first = begin(&client, "", "count");
    assert_eq!(number(&client, first), 1);
    let mut last = 1;
    for round in 0..100 {
        let mut ids = Vec::new();
        for step in 0..6 {
            ids.push(match (round + step) % 3 {
                0 => list(&client),
                _ => begin(&client, "", "count"),
            });
            match round % 3 {
                // Shorter or longer than the background thread lingers.
                0 if step == 2 => thread::sleep(Duration::from_millis(round % 4)),
                1 if step % 2 == 0 => drop(client.wait(Some(Duration::from_micros(50)))),
                _ => {}
            }
        }
        let mut numbers = HashMap::new();
        while numbers.len() < ids.len() {
            let event = crate::next(&client, |event| event.is_completion());
            let EventKind::Result(answer) = event.kind else {
                panic!("{event:?}")
            };
            let digits: String = answer
                .text()
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            numbers.insert(event.id, digits.parse::<u32>().unwrap());
        }
        for id in ids {
            last += 1;
            assert_eq!(numbers[&id], last, "round {round}");
        }
    }
}

/// A completion of the host's: whose call, and how it ended.
type Ends = HashMap<u64, Result<(), Error>>;

/// Takes events until the last, by waiting or, every other round, by looking alone, so that threads take turns to drive.
fn take_all(client: &Client, waits: bool) -> Ends {
    let mut ends = Ends::new();
    loop {
        while let Some(event) = client.next_event() {
            let end = match event.kind {
                EventKind::Result(_) => Ok(()),
                EventKind::Error(error) => Err(error),
                EventKind::Closed => {
                    assert!(client.next_event().is_none());
                    return ends;
                }
                _ => continue,
            };
            assert!(ends.insert(event.id, end).is_none(), "a second end");
        }
        match waits {
            true => drop(client.wait(Some(LONG))),
            false => thread::yield_now(),
        }
    }
}

#[test]
fn calls_that_many_threads_begin_while_the_client_closes_each_end_once_and_before_the_last_event() {
    for round in 0..20 {
        let client = client(&child::config(COUNTS, json!({})));
        let first = begin(&client, "", "count");
        assert_eq!(number(&client, first), 1);
        let at_once = Barrier::new(5);
        let call = || {
            let mut begun = Vec::new();
            at_once.wait();
            loop {
                let scope = Scope::default();
                match client.call_tool(&scope, "server", "count", "", CallOptions::default()) {
                    Ok(id) => begun.push(id),
                    Err(error) if error.kind == Kind::Capacity => thread::yield_now(),
                    Err(error) => {
                        assert_eq!(error.kind, Kind::Closed, "{error}");
                        return begun;
                    }
                }
            }
        };
        let (begun, ends) = thread::scope(|scope| {
            let callers: Vec<_> = (0..3).map(|_| scope.spawn(call)).collect();
            let taker = scope.spawn(|| take_all(&client, round % 2 == 0));
            scope.spawn(|| {
                at_once.wait();
                for _ in 0..round * 20 {
                    thread::yield_now();
                }
                client.close(Some(Duration::from_millis(500)));
            });
            at_once.wait();
            let begun: Vec<_> = callers
                .into_iter()
                .flat_map(|caller| caller.join().unwrap())
                .collect();
            (begun, taker.join().unwrap())
        });
        assert_eq!(begun.len(), ends.len(), "round {round}");
        for id in begun {
            if let Err(error) = &ends[&id] {
                assert_eq!(error.kind, Kind::Closed, "{error}");
            }
        }
    }
}
