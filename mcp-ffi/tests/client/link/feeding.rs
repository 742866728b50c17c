use std::{
    sync::{Arc, Barrier, mpsc},
    thread,
};

use mcpconn::{Client, EventKind, Kind, Link};
use serde_json::json;

use super::{answer, answered, asked_to_call, call, client, refused_as, serve};

#[test]
fn many_threads_may_feed_one_link_while_another_takes_events() {
    const THREADS: usize = 4;
    const CALLS: usize = 200;
    let client = Arc::new(client(json!({"framing": "message"})));
    let (work, queue) = mpsc::channel::<(Link, bytes::Bytes)>();
    let queue = Arc::new(std::sync::Mutex::new(queue));
    let begin = Arc::new(Barrier::new(THREADS));
    let feeders: Vec<_> = (0..THREADS)
        .map(|_| {
            let (queue, begin) = (queue.clone(), begin.clone());
            thread::spawn(move || {
                begin.wait();
                loop {
                    let next = queue.lock().unwrap().recv();
                    let Ok((link, bytes)) = next else { return };
                    link.sent(bytes.len() as u64).unwrap();
                    if let Some(answer) = answer(&bytes) {
                        link.received(answer.as_bytes()).unwrap();
                    }
                }
            })
        })
        .collect();
    let calls: Vec<u64> = (0..CALLS).map(|n| call(&client, &n.to_string())).collect();
    let mut texts = std::collections::HashMap::new();
    while texts.len() < CALLS {
        let event = crate::next(&client, |_| true);
        match event.kind {
            EventKind::LinkSend(link, bytes) => work.send((link, bytes)).unwrap(),
            EventKind::Result(answer) => {
                assert!(texts.insert(event.id, answer.text().to_owned()).is_none());
            }
            EventKind::Error(error) => panic!("{error}"),
            _ => serve(&event),
        }
    }
    for (n, id) in calls.iter().enumerate() {
        assert_eq!(texts[id], n.to_string());
    }
    drop(work);
    for feeder in feeders {
        feeder.join().unwrap();
    }
}

#[test]
fn feeding_and_closing_at_once_ends_each_call_once() {
    for _ in 0..50 {
        let client = client(super::brisk());
        let id = call(&client, "either way");
        let (link, bytes) = asked_to_call(&client);
        link.sent(bytes.len() as u64).unwrap();
        let begin = Arc::new(Barrier::new(2));
        let feeder = thread::spawn({
            let (link, begin) = (link.clone(), begin.clone());
            let answer = answer(&bytes).unwrap() + "\n";
            move || {
                begin.wait();
                let _ = link.received(answer.as_bytes());
            }
        });
        begin.wait();
        link.closed(Some(Kind::Transport), "reset").unwrap();
        feeder.join().unwrap();
        super::completion(&client, id);
        client.close(None);
        super::next(&client, |event| {
            assert_ne!(event.id, id, "a second end: {event:?}");
            matches!(event.kind, EventKind::Closed)
        });
    }
}

#[test]
fn a_link_outlives_its_client_as_a_name_that_does_nothing() {
    let kept: Link = {
        let client: Client = client(json!({}));
        let id = call(&client, "x");
        let (link, bytes) = asked_to_call(&client);
        link.sent(bytes.len() as u64).unwrap();
        link.received((answer(&bytes).unwrap() + "\n").as_bytes())
            .unwrap();
        assert_eq!(answered(&client, id), "x");
        link
    };
    assert_eq!(kept.server(), "server");
    for said in [
        kept.opened(),
        kept.received(b"{}\n"),
        kept.sent(0),
        kept.closed(None, ""),
    ] {
        refused_as(said, Kind::Closed);
    }
}
