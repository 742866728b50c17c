//! Whether what is open still lives: keepalive, and checks after the machine slept, in paused time.

mod fake;

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use fake::{Fate, Life, MINUTE, SECOND, settle, supervise_with};
use mcp_budget::{
    Attempt, Cause, Connect, Failure, Options, Policy, Pulse, Reason, Session, SharedGate, State,
    Supervisor, Want,
};
use tokio::time::{Instant, sleep};

/// A server whose session can be kept alive.
#[derive(Clone)]
struct Kept(Arc<Mutex<Seen>>);

struct Seen {
    pulse: Option<Pulse<Instant>>,
    answers_ping: bool,
    answers_other: bool,
    asked: Vec<(&'static str, Instant)>,
    opened: usize,
}

impl Kept {
    fn new(busy: bool) -> Self {
        Self(Arc::new(Mutex::new(Seen {
            pulse: Some(Pulse {
                heard: Instant::now(),
                busy,
                timed_out: None,
            }),
            answers_ping: false,
            answers_other: false,
            asked: Vec::new(),
            opened: 0,
        })))
    }

    fn look<R>(&self, look: impl FnOnce(&mut Seen) -> R) -> R {
        look(&mut self.0.lock().unwrap())
    }

    fn hears(&self) {
        self.look(|seen| {
            if let Some(pulse) = &mut seen.pulse {
                pulse.heard = Instant::now();
            }
        });
    }

    fn asked(&self) -> Vec<&'static str> {
        self.look(|seen| seen.asked.iter().map(|(what, _)| *what).collect())
    }

    async fn ask(&self, what: &'static str, answers: fn(&Seen) -> bool) -> Result<(), Failure> {
        let answers = self.look(|seen| {
            seen.asked.push((what, Instant::now()));
            answers(seen)
        });
        match answers {
            true => Ok(()),
            false => pending().await,
        }
    }

    /// Supervised, open and proven.
    async fn supervised(&self, gate: Option<SharedGate>) -> Supervisor<Self> {
        let options = Options {
            gate,
            seed: 1,
            ..Options::default()
        };
        let supervisor = Supervisor::spawn(self.clone(), options);
        let live = supervisor.session(Want::default()).await.unwrap();
        supervisor.proven(live.generation);
        supervisor
    }
}

impl Connect for Kept {
    type Session = Self;

    async fn connect(&self, _: Attempt) -> Result<Self, Failure> {
        self.hears();
        self.look(|seen| seen.opened += 1);
        Ok(self.clone())
    }
}

impl Session for Kept {
    async fn ended(&self) -> Failure {
        pending().await
    }

    async fn probe(&self) -> Result<(), Failure> {
        self.ask("ping", |seen| seen.answers_ping).await
    }

    async fn probe_other(&self) -> Result<(), Failure> {
        self.ask("other", |seen| seen.answers_other).await
    }

    fn pulse(&self) -> Option<Pulse<Instant>> {
        self.look(|seen| seen.pulse)
    }

    async fn close(&self) {}
}

#[tokio::test(start_paused = true)]
async fn a_silent_session_is_asked_twice_and_then_replaced() {
    let server = Kept::new(false);
    let supervisor = server.supervised(None).await;
    sleep(SECOND * 99).await;
    assert_eq!(server.asked(), ["ping", "other"]);
    assert_eq!(supervisor.status().state, State::Proven);
    sleep(SECOND * 3).await;
    let status = supervisor.status();
    assert_eq!(
        (status.state, server.look(|seen| seen.opened)),
        (State::Unproven, 2)
    );
    assert!(status.error.unwrap().contains("silent"));
    assert_eq!(status.counters.lost, 1);
    assert_eq!(status.counters.of(Cause::Transient), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_answers_either_question_lives_and_is_asked_once_an_interval() {
    for (ping, other) in [(true, false), (false, true)] {
        let server = Kept::new(false);
        server.look(|seen| (seen.answers_ping, seen.answers_other) = (ping, other));
        let supervisor = server.supervised(None).await;
        sleep(MINUTE * 60).await;
        assert_eq!(supervisor.status().state, State::Proven);
        assert_eq!(server.look(|seen| seen.opened), 1);
        let asked = server.asked().len();
        assert!((40..=100).contains(&asked), "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_from_which_bytes_come_is_never_asked() {
    let server = Kept::new(false);
    let supervisor = server.supervised(None).await;
    for _ in 0..100 {
        sleep(SECOND * 50).await;
        server.hears();
    }
    assert_eq!(server.asked(), [""; 0]);
    assert_eq!(supervisor.status().state, State::Proven);
}

#[tokio::test(start_paused = true)]
async fn a_busy_session_is_given_up_only_after_a_call_of_it_timed_out() {
    let server = Kept::new(true);
    let supervisor = server.supervised(None).await;
    sleep(MINUTE * 60).await;
    assert_eq!(server.asked(), [""; 0]);
    server.look(|seen| seen.pulse.as_mut().unwrap().timed_out = Some(Instant::now()));
    sleep(MINUTE + SECOND * 42).await;
    assert_eq!(server.asked(), ["ping", "other"]);
    assert_eq!(server.look(|seen| seen.opened), 2);
    drop(supervisor);
}

#[tokio::test(start_paused = true)]
async fn a_session_without_a_pulse_is_not_kept_alive() {
    let server = Kept::new(false);
    server.look(|seen| seen.pulse = None);
    let supervisor = server.supervised(None).await;
    sleep(MINUTE * 600).await;
    assert_eq!(server.asked(), [""; 0]);
    assert_eq!(supervisor.status().state, State::Proven);
}

#[tokio::test(start_paused = true)]
async fn a_check_finds_dead_sessions_at_different_moments_and_through_the_gate() {
    let gate = SharedGate::default();
    let mut servers = Vec::new();
    for n in 0..10 {
        let server = Kept::new(false);
        server.look(|seen| {
            seen.pulse = None;
            seen.answers_ping = n % 2 == 0;
        });
        let options = Options {
            gate: Some(gate.clone()),
            seed: n,
            ..Options::default()
        };
        let supervisor = Supervisor::spawn(server.clone(), options);
        let live = supervisor.session(Want::default()).await.unwrap();
        supervisor.proven(live.generation);
        servers.push((supervisor, server));
    }
    let begun = Instant::now();
    gate.check_all();
    sleep(SECOND * 40).await;
    let mut moments = Vec::new();
    for (n, (_, server)) in servers.iter().enumerate() {
        let opened = server.look(|seen| seen.opened);
        assert_eq!(opened, if n % 2 == 0 { 1 } else { 2 });
        let at = server.look(|seen| seen.asked[0].1) - begun;
        assert!(at <= SECOND * 11);
        moments.push(at);
    }
    moments.sort();
    assert!(moments[9] - moments[0] > SECOND * 3, "they are spread");
}

#[tokio::test(start_paused = true)]
async fn a_check_tries_what_is_parked_once() {
    let gate = SharedGate::default();
    let options = Options {
        gate: Some(gate.clone()),
        ..Options::default()
    };
    let (supervisor, connector, _) =
        supervise_with(options, |_| Fate::Opens(Life::Dies(Duration::ZERO)));
    supervisor.start();
    sleep(MINUTE * 2).await;
    assert_eq!(supervisor.status().reason, Reason::Spent);
    let attempts = connector.attempts();
    gate.check_all();
    gate.check_all();
    sleep(SECOND * 15).await;
    assert_eq!(connector.attempts(), attempts + 1);
    assert_eq!(supervisor.status().counters.wakes, 1);
}

#[tokio::test(start_paused = true)]
async fn a_check_tries_nothing_that_is_never_probed() {
    let without_retries = Policy {
        max_retries: 0,
        ..Policy::default()
    };
    for (policy, cause) in [
        (without_retries, Cause::Transient),
        (Policy::default(), Cause::Auth),
    ] {
        let options = Options {
            policy: Policy {
                max_initial_retries: 0,
                ..policy
            },
            ..Options::default()
        };
        let (supervisor, connector, _) = supervise_with(options, move |_| Fate::Fails(cause, "no"));
        supervisor.start();
        settle().await;
        assert_eq!(supervisor.status().state, State::Parked);
        supervisor.check();
        sleep(MINUTE).await;
        assert_eq!(connector.attempts(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_happened_is_counted() {
    let (supervisor, _, _) = supervise_with(Options::default(), |nth| match nth {
        1 => Fate::Fails(Cause::Local, "no descriptors"),
        2 => Fate::Fails(Cause::Transient, "refused"),
        3 => Fate::Opens(Life::Dies(SECOND)),
        _ => Fate::Opens(Life::Long),
    });
    supervisor.start();
    sleep(MINUTE).await;
    let live = supervisor.session(Want::default()).await.unwrap();
    supervisor.proven(live.generation);
    drop(supervisor.leave(None).await.unwrap());
    let counted = supervisor.status().counters;
    assert_eq!((counted.attempts, counted.opened), (5, 2));
    assert_eq!((counted.failed, counted.lost, counted.closed), (2, 1, 1));
    assert_eq!((counted.charges, counted.proofs, counted.parks), (2, 1, 0));
    assert_eq!(counted.of(Cause::Local), 1);
    assert_eq!(counted.of(Cause::Transient), 2);
}
