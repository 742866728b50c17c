//! Random histories of a host: no token is lost or answered twice, and nothing is left.

use std::collections::{HashMap, HashSet};

use mcpconn::abi::pool_words::{mcpconn_pool_acquire_options, mcpconn_pool_reason::*};

use crate::host::*;

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len())])
    }
}

const SCOPES: [&str; 4] = ["a", "b", "c", "d"];
const SERVERS: [(&str, &str); 3] = [("", "server"), ("", "other"), ("personal", "server")];

struct Host {
    pool: Pool,
    random: Random,
    token: u64,
    session: usize,
    epochs: Vec<u64>,
    /// Accepted and not answered.
    asked: HashMap<u64, u64>,
    /// Given and not released: of which session.
    calls: HashMap<u64, u64>,
    opening: Vec<u64>,
    open: HashMap<u64, usize>,
    closing: Vec<u64>,
    answered: HashSet<u64>,
    gone: Vec<u64>,
    seen: HashMap<&'static str, u32>,
}

impl Host {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let limits = format!(
            r#"{{"capacity": {}, "openings": {}, "sessions_per_server": {}, "calls_per_session": {}, "idle_ttl_ms": {},
                "max_lifetime_ms": {}, "wait_ms": {}}}"#,
            random.below(4),
            1 + random.below(3),
            ["\"unlimited\"", "1", "2"][random.below(3)],
            ["\"unlimited\"", "1", "2"][random.below(3)],
            ["\"never\"", "20000", "0"][random.below(3)],
            ["\"never\"", "60000"][random.below(2)],
            ["0", "5000", "\"forever\""][random.below(3)],
        );
        let pool = pool_with(&limits);
        Self {
            pool,
            random,
            token: 0,
            session: 0,
            epochs: vec![0],
            asked: HashMap::new(),
            calls: HashMap::new(),
            opening: Vec::new(),
            open: HashMap::new(),
            closing: Vec::new(),
            answered: HashSet::new(),
            gone: Vec::new(),
            seen: HashMap::new(),
        }
    }

    fn one(&mut self, of: impl IntoIterator<Item = u64>) -> Option<u64> {
        let mut of: Vec<_> = of.into_iter().collect();
        of.sort_unstable();
        self.random.one_of(&of)
    }

    fn step(&mut self) {
        self.pool.now += self.random.below(3) as u64 * SECOND;
        let server = SERVERS[self.random.below(SERVERS.len())];
        let scope = SCOPES[self.random.below(SCOPES.len())];
        let (domain, server_name) = server;
        match self.random.below(60) {
            0..=1 => {
                let fingerprint = ["v1", "v2"][self.random.below(2)];
                let epoch = self.pool.bind(domain, server_name, fingerprint);
                self.epochs.push(epoch);
            }
            2 => drop(self.pool.unbind(domain, server_name)),
            3 => {
                let (what, key) = [
                    (1, (domain, "", scope)),
                    (2, (domain, server_name, "")),
                    (3, (domain, server_name, scope)),
                    (5, (domain, "", "")),
                    (6, ("", "", "")),
                ][self.random.below(5)];
                if self.random.below(2) == 0 {
                    assert!(self.pool.close(what, key, 0).status >= 0);
                } else {
                    let deadline = [0, self.pool.now + 9 * SECOND, u64::MAX][self.random.below(3)];
                    assert!(self.pool.drain(what, key, deadline).status >= 0);
                }
            }
            4 => drop(self.pool.warm_up(scope)),
            5..=22 => self.acquire((domain, server_name, scope)),
            23..=30 => {
                if let Some(call) = self.one(self.calls.keys().copied().collect::<Vec<_>>()) {
                    self.calls.remove(&call);
                    assert_eq!(self.pool.release(call).status, OK);
                    assert_eq!(self.pool.release(call).status, INVALID);
                }
            }
            31..=32 => {
                let asked = self.asked.values().copied().collect::<Vec<_>>();
                if let Some(request) = self.one(asked) {
                    assert!(self.pool.cancel(request).status >= 0);
                }
            }
            33..=41 => self.end_opening(),
            42..=47 => {
                if let Some(id) = self.one(self.closing.clone()) {
                    self.closing.retain(|closing| *closing != id);
                    assert!(self.pool.closed(id).status >= 0);
                    self.gone.push(id);
                }
            }
            48 => {
                let open = self.open.keys().copied().collect::<Vec<_>>();
                if let Some(id) = self.one(open) {
                    assert!(self.pool.evict(id).status >= 0);
                }
            }
            49 => {
                let open = self.open.keys().copied().collect::<Vec<_>>();
                if let Some(id) = self.one(open) {
                    self.open.remove(&id);
                    assert!(self.pool.closed(id).status >= 0);
                    self.gone.push(id);
                }
            }
            50..=52 => {
                let open = self.open.keys().copied().collect::<Vec<_>>();
                if let Some(id) = self.one(open) {
                    if let Ok((call, session)) = self.pool.begin(id) {
                        assert_eq!(self.open[&id], session);
                        self.calls.insert(call, id);
                    }
                }
            }
            53..=54 => {
                // Late words about what is over.
                if let Some(id) = self.one(self.gone.clone()) {
                    assert_eq!(self.pool.closed(id).status, EMPTY);
                    assert_eq!(self.pool.evict(id).status, EMPTY);
                    assert_eq!(self.pool.failed(id, -1).status, EMPTY);
                    assert_eq!(self.pool.opened(id, 1).status, EMPTY);
                    assert!(self.pool.begin(id).is_err());
                }
            }
            _ => {}
        }
        if self.random.below(3) > 0 {
            self.obey();
        }
    }

    fn acquire(&mut self, key: (&str, &str, &str)) {
        self.token += 1;
        let options = mcpconn_pool_acquire_options {
            epoch: self.random.one_of(&self.epochs).unwrap() * (self.random.below(4) / 3) as u64,
            deadline_ns: [0, 1, self.pool.now + 4 * SECOND, u64::MAX][self.random.below(4)],
            ..options(self.token)
        };
        match self.pool.try_acquire(key, options) {
            Ok(request) => assert_eq!(self.asked.insert(self.token, request), None),
            Err(said) => said.expect(UNKNOWN_SERVER, key.1),
        }
    }

    fn end_opening(&mut self) {
        let Some(id) = self.one(self.opening.clone()) else {
            return;
        };
        self.opening.retain(|opening| *opening != id);
        if self.random.below(5) == 0 {
            assert!(self.pool.failed(id, -7).status >= 0);
            self.gone.push(id);
            return;
        }
        self.session += 1;
        match self.pool.opened(id, self.session).status {
            OK => assert_eq!(self.open.insert(id, self.session), None),
            EMPTY => self.closing.push(id),
            other => panic!("{other}"),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn answer(&mut self, token: u64, request: u64) {
        assert_eq!(
            self.asked.remove(&token),
            Some(request),
            "accepted, and not answered"
        );
        assert!(self.answered.insert(token), "answered once");
    }

    fn obey(&mut self) {
        loop {
            match self.pool.next() {
                Err(at) => {
                    assert!(at > self.pool.now, "what is due is done");
                    return;
                }
                Ok(Todo::Open { id, .. }) => {
                    assert!(!self.opening.contains(&id));
                    self.opening.push(id);
                }
                Ok(Todo::Stop { id, .. }) => {
                    assert!(self.opening.contains(&id), "it is being opened");
                    self.count("stop");
                    if self.random.below(2) == 0 {
                        self.opening.retain(|opening| *opening != id);
                        self.closing.push(id);
                    }
                }
                Ok(Todo::Close { id, session, why }) => {
                    assert_eq!(
                        self.open.remove(&id),
                        Some(session),
                        "it is open, and told once"
                    );
                    let busy = self.calls.values().any(|of| *of == id);
                    let pressure = [
                        MCPCONN_POOL_REASON_DISPLACED as i32,
                        MCPCONN_POOL_REASON_IDLE as i32,
                        MCPCONN_POOL_REASON_LIFETIME as i32,
                    ];
                    assert!(!(busy && pressure.contains(&why)), "no call is cut");
                    self.closing.push(id);
                    self.count("close");
                }
                Ok(Todo::Give {
                    token,
                    call,
                    id,
                    session,
                    ..
                }) => {
                    assert_eq!(self.open.get(&id), Some(&session), "what is given is open");
                    self.answer(token, call);
                    assert_eq!(self.calls.insert(call, id), None);
                    self.count("give");
                }
                Ok(Todo::Refuse {
                    token,
                    request,
                    status,
                    ..
                }) => {
                    self.answer(token, request);
                    self.count(match status {
                        CAPACITY => "capacity",
                        CANCELED => "canceled",
                        CLOSED => "closed",
                        -7 => "failed",
                        other => panic!("refused with {other}"),
                    });
                }
            }
        }
    }

    /// Ends everything in order.
    fn end(&mut self) {
        self.pool.shutdown();
        self.obey();
        assert!(self.asked.is_empty(), "every token is answered");
        assert!(self.open.is_empty(), "every session is told to close");
        for id in std::mem::take(&mut self.opening) {
            assert_eq!(self.pool.opened(id, 1).status, EMPTY);
            self.closing.push(id);
        }
        for id in std::mem::take(&mut self.closing) {
            assert!(self.pool.closed(id).status >= 0);
        }
        for call in std::mem::take(&mut self.calls).into_keys() {
            assert_eq!(self.pool.release(call).status, OK);
        }
        assert_eq!(self.pool.idle_until(), u64::MAX);
        let info = self.pool.info();
        for none in [
            "live",
            "busy",
            "opening",
            "waiting",
            "queued_calls",
            "closing",
            "requests",
        ] {
            assert_eq!(info[none], 0, "{none}");
        }
    }
}

#[test]
fn no_token_is_lost_or_answered_twice_and_nothing_is_left() {
    let mut seen = HashMap::<_, u32>::new();
    for seed in 0..300 {
        let mut host = Host::new(seed);
        for _ in 0..600 {
            host.step();
        }
        host.end();
        for (what, times) in host.seen {
            *seen.entry(what).or_default() += times;
        }
    }
    for what in [
        "give", "close", "stop", "capacity", "canceled", "closed", "failed",
    ] {
        assert!(seen.get(what).is_some_and(|times| *times > 500), "{seen:?}");
    }
}
