//! Everything at once: hostile servers over links, a host that is slow, answers from other threads, and closes in the
//! middle of it all. What must hold, however these fall together, is checked as it happens.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use mcpconn::{
    CallOptions, Client, ClientOptions, Context, EventKind, HostTakes, Kind, Link, ListKind,
    PoolLimits, Scope,
};
use serde_json::{Value, json};

use crate::LONG;

const SERVERS: [&str; 3] = ["one", "two", "three"];
/// In place of servers that are closed and opened again, one that comes and goes.
const GUEST: &str = "guest";
const CALLERS: u64 = 2;
const STEPS: usize = 150;

/// The same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed >> 33) % sides
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len() as u64) as usize]
    }
}

fn config(names: &[&str]) -> String {
    let budget = json!({
        "floor_ms": 1, "backoff_ms": 1, "backoff_max_ms": 2, "backoff_max_proven_ms": 2, "max_retries": 100_000,
        "max_initial_retries": 100_000, "breaker_failures": 100_000,
    });
    let ours = json!({"budget": budget, "close_timeout_ms": 20, "connect_timeout_ms": 100});
    let servers = names.iter().map(|name| {
        let entry = json!({"type": "host", "mcpconn": ours});
        ((*name).to_owned(), entry)
    });
    Value::Object(servers.collect()).to_string()
}

fn options(seed: u64) -> ClientOptions {
    ClientOptions {
        pool: PoolLimits {
            capacity: 4,
            wait: (seed % 3 == 0).then_some(Duration::from_millis(20)),
            ..PoolLimits::default()
        },
        close_timeout: Duration::from_secs(5),
        // Less than some results have.
        max_queued: if seed % 2 == 0 { 500 } else { 100_000 },
        takes: HostTakes {
            roots: true,
            elicitation_form: true,
            logs: true,
            notifications: true,
            sessions: true,
            ..HostTakes::default()
        },
        answer_within: Duration::from_millis(40),
        ..ClientOptions::default()
    }
}

/// What the servers' thread is told.
enum Word {
    Opened(u64, Link),
    Sent(u64, Vec<u8>),
    Resume(u64),
    Close(u64, Link),
}

/// The other end of one link.
struct Peer {
    link: Link,
    /// What was not taken yet.
    unfed: VecDeque<Vec<u8>>,
    refused: bool,
    over: bool,
    asked: u64,
    open: HashSet<String>,
    /// The call that waits for an answer of the host's.
    held: Option<Value>,
}

impl Peer {
    fn says(&mut self, message: &Value) {
        let line = format!("{message}\n");
        // Cut somewhere.
        let (first, rest) = line.as_bytes().split_at(line.len() / 2);
        self.unfed.extend([first.to_vec(), rest.to_vec()]);
        self.feed();
    }

    fn feed(&mut self) {
        while !self.refused && !self.over {
            let Some(next) = self.unfed.front() else {
                return;
            };
            match self.link.received(next) {
                Ok(()) => drop(self.unfed.pop_front()),
                Err(error) if error.kind == Kind::Capacity => self.refused = true,
                Err(error) => {
                    assert_eq!(error.kind, Kind::Closed, "{error}");
                    self.over = true;
                }
            }
        }
    }

    fn asks(&mut self, number: u64, dice: &mut Dice) -> String {
        self.asked += 1;
        let id = format!("{number}-{}", self.asked);
        self.open.insert(id.clone());
        let method = dice.pick(&["roots/list", "elicitation/create", "sampling/createMessage"]);
        self.says(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}}));
        id
    }

    fn ends(&mut self, why: Option<Kind>) {
        self.over = true;
        // It may have been asked to close, and been given up.
        let _ = self.link.closed(why, "");
    }

    fn answers(&mut self, id: &Value, result: &Value) {
        self.says(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Does with a message what comes to its mind.
    fn hears(&mut self, number: u64, message: &Value, dice: &mut Dice) {
        let id = &message["id"];
        let Some(method) = message["method"].as_str() else {
            let id = id.as_str().expect("an answer to a request of ours");
            // A request of another session is never answered here, and none twice.
            assert!(self.open.remove(id), "{number} was told of {id}: {message}");
            if let Some(call) = self.held.take() {
                self.answers(&call, &json!({"content": []}));
            }
            return;
        };
        if id.is_null() {
            return;
        }
        let notification = |method: &str, params: Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
        match method {
            "initialize" => match dice.roll(12) {
                0 => self.ends(Some(Kind::Transport)),
                1 => {}
                _ => self.answers(
                    id,
                    &json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "resources": {"subscribe": true}},
                        "serverInfo": {"name": "hostile", "version": "0"}}),
                ),
            },
            "tools/list" => {
                let more = (dice.roll(3) == 0).then(|| dice.roll(5).to_string());
                self.answers(id, &json!({"tools": [{"name": "t", "inputSchema": {}}], "nextCursor": more}));
            }
            "tools/call" => match dice.roll(12) {
                0 => {}
                1 => self.ends(Some(Kind::Transport)),
                2 => self.ends(None),
                3 => {
                    self.answers(id, &json!({"content": [{"type": "text", "text": "x".repeat(3000)}]}));
                    self.answers(id, &json!({"content": []}));
                }
                4 | 5 => {
                    self.held = Some(id.clone());
                    self.asks(number, dice);
                }
                6 => {
                    let asked = self.asks(number, dice);
                    self.says(&notification("notifications/cancelled", json!({"requestId": asked})));
                    // Whether it was answered before it was taken back is not known.
                    self.answers(id, &json!({"content": []}));
                }
                7 => {
                    for n in 0..30 {
                        self.says(&notification("notifications/message", json!({"level": "info", "data": n})));
                        self.says(&notification("notifications/tools/list_changed", json!({})));
                        self.says(&notification("notifications/progress", json!({"progressToken": id, "progress": n})));
                        // Never one that an earlier flood had.
                        self.asked += 1;
                        let ping = format!("{number}-{}", self.asked);
                        self.open.insert(ping.clone());
                        self.says(&json!({"jsonrpc": "2.0", "id": ping, "method": "ping"}));
                    }
                    for _ in 0..70 {
                        self.asks(number, dice);
                    }
                    self.answers(id, &json!({"content": []}));
                    self.says(&notification("notifications/progress", json!({"progressToken": id, "progress": 99})));
                }
                8 => self.says(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "no"}})),
                _ => self.answers(id, &json!({"content": [{"type": "text", "text": "done"}]})),
            },
            _ => self.answers(id, &json!({})),
        }
    }
}

/// All servers, on a thread of their own.
fn serve(words: &mpsc::Receiver<Word>, unfed: &Mutex<usize>, mut dice: Dice) {
    let mut peers: HashMap<u64, Peer> = HashMap::new();
    for word in words {
        match word {
            Word::Opened(number, link) => {
                let peer = Peer {
                    link,
                    unfed: VecDeque::new(),
                    refused: false,
                    over: false,
                    asked: 0,
                    open: HashSet::new(),
                    held: None,
                };
                peers.insert(number, peer);
            }
            Word::Sent(number, bytes) => {
                if let Some(peer) = peers.get_mut(&number).filter(|peer| !peer.over) {
                    let _ = peer.link.sent(bytes.len() as u64);
                    let message = serde_json::from_slice(&bytes).expect("a message");
                    peer.hears(number, &message, &mut dice);
                }
            }
            Word::Resume(number) => {
                if let Some(peer) = peers.get_mut(&number) {
                    peer.refused = false;
                    peer.feed();
                }
            }
            Word::Close(number, link) => {
                peers.remove(&number);
                // Some hosts forget.
                if dice.roll(4) > 0 {
                    let _ = link.closed(None, "");
                }
            }
        }
        // A link that is over unheard says so at the next word.
        let live = peers
            .values_mut()
            .filter(|peer| !peer.over && (peer.unfed.is_empty() || peer.link.opened().is_ok()));
        *unfed.lock().unwrap() = live.map(|peer| peer.unfed.len()).sum();
    }
}

/// What all threads know.
#[derive(Default)]
struct Book {
    begun: Mutex<HashSet<u64>>,
    ended: Mutex<HashSet<u64>>,
    answered: Mutex<HashSet<u64>>,
    withdrawn: Mutex<HashSet<u64>>,
    sessions: Mutex<Vec<u64>>,
    /// The callers have gone, and the client is not closed yet.
    quiet: AtomicBool,
}

impl Book {
    fn in_flight(&self) -> usize {
        let ended = self.ended.lock().unwrap().len();
        self.begun.lock().unwrap().len() - ended
    }
}

fn call(client: &Client, book: &Book, context: &Arc<()>, dice: &mut Dice) {
    let names = [SERVERS[0], SERVERS[1], SERVERS[2], GUEST];
    let (server, scope) = (dice.pick(&names), dice.pick(&["", "a", "b", "c", "d", "e"]));
    let scope = Scope::new("", scope);
    let options = CallOptions {
        timeout: Some(Duration::from_millis(1 + dice.roll(80))),
        idle_timeout: (dice.roll(4) == 0).then_some(Duration::from_millis(30)),
        progress: dice.roll(2) == 0,
        same_session: dice.roll(4) == 0,
        context: Some(Context(context.clone())),
        ..CallOptions::default()
    };
    let prepared = match dice.roll(8) {
        0 => client.prepare_list_tools("", if dice.roll(2) == 0 { "" } else { server }, options),
        1 => client.prepare_list(&scope, server, ListKind::Tools, options),
        2 => client.prepare_request(
            &scope,
            server,
            "resources/subscribe",
            r#"{"uri":"a:1"}"#,
            options,
        ),
        3 => client.prepare_request(
            &scope,
            server,
            "resources/unsubscribe",
            r#"{"uri":"a:1"}"#,
            options,
        ),
        _ => client.prepare_tool_call(&scope, server, "t", "", options),
    };
    match prepared {
        Ok(prepared) => {
            let id = prepared.id();
            assert!(book.begun.lock().unwrap().insert(id));
            match dice.roll(20) {
                0 => drop(prepared),
                1 => {
                    prepared.start();
                    client.cancel(id);
                }
                _ => drop(prepared.start()),
            }
        }
        Err(error) => assert!(
            matches!(
                error.kind,
                Kind::Closed | Kind::UnknownServer | Kind::Capacity
            ),
            "{error}"
        ),
    }
}

/// One step of whoever uses the client.
fn step(client: &Client, book: &Book, context: &Arc<()>, dice: &mut Dice) {
    let server = dice.pick(&SERVERS);
    let limit = (dice.roll(2) == 0).then(|| Duration::from_millis(dice.roll(30)));
    // Each may find the client closed, or the session gone.
    match dice.roll(200) {
        0 => drop(client.close_server("", server)),
        1 => drop(client.drain_server("", server, limit)),
        2 => client.close_scope(&Scope::new("", dice.pick(&["a", "b"]))),
        3 => client.drain_scope(&Scope::new("", dice.pick(&["c", "d"])), limit),
        4 => client.close_all(),
        5 => client.drain_all(limit),
        6 => {
            let number = book.sessions.lock().unwrap().last().copied();
            client.close_session(number.unwrap_or(u64::MAX));
        }
        7 => drop(client.configure("", &config(&SERVERS))),
        8 => {
            let [one, two, three] = SERVERS;
            drop(client.configure("", &config(&[one, two, three, GUEST])));
        }
        9 => drop(client.set_header("", server, "Authorization", "x")),
        10 => client.wake_all(),
        11 => client.network_changed(),
        12 => client.roots_changed(),
        13 => drop(client.notify(&Scope::new("", "a"), server, "notifications/x", "")),
        14 => drop(client.status()),
        15 => drop(client.tools("")),
        16 => {
            client.cancel(dice.roll(5000));
        }
        _ => call(client, book, context, dice),
    }
}

/// Takes the client's events until the last one, and gives some of them to be kept.
fn take_events(
    client: &Client,
    book: &Book,
    words: &mpsc::Sender<Word>,
    requests: &mpsc::Sender<u64>,
    mut dice: Dice,
) -> Vec<mcpconn::Event> {
    let mut kept = Vec::new();
    let mut last_link = 0;
    loop {
        let quiet = book.quiet.load(SeqCst);
        if !quiet && dice.roll(50) == 0 {
            for _ in 0..dice.roll(2000) {
                thread::yield_now();
            }
        }
        let Some(event) = client.next_event() else {
            match client.wait(Some(LONG)) {
                Ok(something) => assert!(something, "nothing ever comes"),
                Err(error) => panic!("it ended without a last event: {error}"),
            }
            continue;
        };
        if event.is_completion() {
            let id = event.id;
            assert!(book.begun.lock().unwrap().contains(&id), "no call {id}");
            assert!(book.ended.lock().unwrap().insert(id), "{id} ended twice");
        }
        match &event.kind {
            EventKind::Progress(_) => {
                assert!(!book.ended.lock().unwrap().contains(&event.id), "{event:?}");
            }
            EventKind::Request { .. } => requests.send(event.id).unwrap(),
            EventKind::RequestWithdrawn(_) => {
                assert!(book.withdrawn.lock().unwrap().insert(event.id), "{event:?}");
            }
            EventKind::Session(news) => book.sessions.lock().unwrap().push(news.session_id),
            EventKind::LinkOpen(link) => {
                last_link += 1;
                link.set_token(last_link);
                match dice.roll(12) {
                    0 => drop(link.closed(Some(Kind::Transport), "")),
                    1 => {}
                    _ => {
                        words.send(Word::Opened(last_link, link.clone())).unwrap();
                        // It may be unwanted again.
                        let _ = link.opened();
                    }
                }
            }
            EventKind::LinkSend(_, bytes) => {
                words.send(Word::Sent(event.token, bytes.to_vec())).unwrap();
            }
            EventKind::LinkResume(_) => words.send(Word::Resume(event.token)).unwrap(),
            EventKind::LinkClose(link) => {
                words.send(Word::Close(event.token, link.clone())).unwrap();
            }
            EventKind::Closed => break,
            _ => {}
        }
        if !quiet && kept.len() < 50 && dice.roll(20) == 0 {
            kept.push(event);
        } else if quiet {
            // Now there is room for all that the servers have to say.
            kept.clear();
        }
    }
    assert!(client.next_event().is_none() && client.is_closed());
    kept
}

/// How the client ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    /// When all calls have ended and all that the servers said was taken.
    InQuiet,
    InTheMiddle,
}

fn play(seed: u64, end: End) {
    let (book, context) = (Book::default(), Arc::new(()));
    let client = Client::new(options(seed)).unwrap();
    client.configure("", &config(&SERVERS)).unwrap();
    let (words, heard) = mpsc::channel();
    let (requests, asked) = mpsc::channel::<u64>();
    let unfed = Mutex::new(0);
    let dice = |of: u64| Dice(seed * 100 + of);
    let kept = thread::scope(|scope| {
        let (client, book, context, unfed) = (&client, &book, &context, &unfed);
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let mut dice = dice(caller);
                scope.spawn(move || {
                    for _ in 0..STEPS {
                        step(client, book, context, &mut dice);
                        // Not so fast that nothing ever comes to be.
                        let begun = Instant::now();
                        while book.in_flight() > 12 {
                            assert!(begun.elapsed() < LONG, "seed {seed}: no call ends");
                            thread::sleep(Duration::from_micros(200));
                        }
                    }
                })
            })
            .collect();
        let mut answers = dice(10);
        scope.spawn(move || {
            for id in asked {
                let times = answers.roll(3);
                for _ in 0..times {
                    let taken = match answers.roll(3) {
                        0 => client.refuse(id, -1, "no"),
                        1 => client.answer(id, "{}").unwrap(),
                        _ => client.answer(id, "7").is_ok_and(|taken| taken),
                    };
                    assert!(!taken || book.answered.lock().unwrap().insert(id), "{id}");
                }
            }
        });
        scope.spawn(move || serve(&heard, unfed, dice(11)));
        let taker = scope.spawn(move || take_events(client, book, &words, &requests, dice(12)));
        for caller in callers {
            caller.join().unwrap();
        }
        if end == End::InQuiet {
            book.quiet.store(true, SeqCst);
            let begun = Instant::now();
            let left = || (book.in_flight(), *unfed.lock().unwrap());
            while left() != (0, 0) {
                assert!(begun.elapsed() < LONG, "seed {seed}: {:?} left", left());
                assert!(!taker.is_finished());
                // Something happens, so that links which are over are found to be.
                let options = CallOptions {
                    timeout: Some(Duration::from_millis(50)),
                    ..CallOptions::default()
                };
                let probe =
                    client.prepare_list(&Scope::default(), SERVERS[0], ListKind::Tools, options);
                let probe = probe.unwrap();
                book.begun.lock().unwrap().insert(probe.id());
                probe.start();
                thread::sleep(Duration::from_millis(5));
            }
        }
        client.close(None);
        taker.join().unwrap()
    });
    assert_eq!(
        *book.begun.lock().unwrap(),
        *book.ended.lock().unwrap(),
        "seed {seed}"
    );
    let answered = book.answered.lock().unwrap();
    assert!(
        answered.is_disjoint(&book.withdrawn.lock().unwrap()),
        "seed {seed}"
    );
    let weak: Weak<()> = Arc::downgrade(&context);
    drop((client, context));
    drop(kept);
    assert!(
        weak.upgrade().is_none(),
        "seed {seed}: something is left of a call"
    );
}

#[test]
fn whatever_falls_together_each_call_ends_once_and_the_last_event_is_the_last() {
    let seeds = std::env::var("MCPCONN_SEEDS").map_or(3, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        play(
            seed,
            if seed % 2 == 0 {
                End::InTheMiddle
            } else {
                End::InQuiet
            },
        );
    }
}
