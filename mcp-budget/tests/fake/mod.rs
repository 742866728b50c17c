//! A server that does as the test says, and what was seen of it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::{
    collections::HashSet,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_budget::{
    Attempt, Cause, Connect, Failure, Live, Options, Policy, Session, Supervisor, Transition,
    Unavailable, Want,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep},
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// What becomes of an attempt.
#[derive(Clone)]
pub(crate) enum Fate {
    Opens(Life),
    Fails(Cause, &'static str),
    OpensWhen(Arc<Notify>, Life),
    Hangs,
    Panics(&'static str),
}

/// What becomes of a session.
#[derive(Clone, Copy)]
pub(crate) enum Life {
    Long,
    Mute,
    Dies(Duration),
    Panics(&'static str),
    CannotBeClosed,
}

/// A server and all that was seen of it.
pub(crate) struct Server {
    pub(crate) fate: Box<dyn Fn(usize) -> Fate + Send + Sync>,
    pub(crate) seen: Mutex<Seen>,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) attempts: Vec<(Instant, Attempt)>,
    pub(crate) given_up: usize,
    pub(crate) open: HashSet<u64>,
    pub(crate) closed: Vec<u64>,
    pub(crate) probed: Vec<u64>,
}

#[derive(Clone)]
pub(crate) struct Connector(pub(crate) Arc<Server>);

#[derive(Clone)]
pub(crate) struct FakeSession {
    pub(crate) server: Arc<Server>,
    pub(crate) generation: u64,
    pub(crate) life: Life,
    pub(crate) dead: watch::Sender<bool>,
}

pub(crate) fn failure(cause: Cause, text: &'static str) -> Failure {
    Failure::new(cause, text)
}

impl Connector {
    pub(crate) fn new(fate: impl Fn(usize) -> Fate + Send + Sync + 'static) -> Self {
        Self(Arc::new(Server {
            fate: Box::new(fate),
            seen: Mutex::default(),
        }))
    }

    pub(crate) fn seen<R>(&self, look: impl FnOnce(&mut Seen) -> R) -> R {
        look(&mut self.0.seen.lock().unwrap())
    }

    pub(crate) fn attempts(&self) -> usize {
        self.seen(|seen| seen.attempts.len())
    }

    /// Waits until there were so many attempts.
    pub(crate) async fn attempted(&self, attempts: usize) {
        while self.attempts() < attempts {
            sleep(SECOND / 100).await;
        }
    }
}

pub(crate) struct GivenUp(Option<Connector>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        if let Some(connector) = self.0.take() {
            connector.seen(|seen| seen.given_up += 1);
        }
    }
}

impl Connect for Connector {
    type Session = FakeSession;

    async fn connect(&self, attempt: Attempt) -> Result<FakeSession, Failure> {
        let nth = self.seen(|seen| {
            seen.attempts.push((Instant::now(), attempt));
            seen.attempts.len()
        });
        let mut given_up = GivenUp(Some(self.clone()));
        let result = match (self.0.fate)(nth) {
            Fate::Opens(life) => Ok(life),
            Fate::OpensWhen(released, life) => {
                released.notified().await;
                Ok(life)
            }
            Fate::Fails(cause, text) => Err(failure(cause, text)),
            Fate::Hangs => pending().await,
            Fate::Panics(text) => panic!("{text}"),
        };
        given_up.0 = None;
        let life = result?;
        self.seen(|seen| seen.open.insert(attempt.generation));
        Ok(FakeSession {
            server: Arc::clone(&self.0),
            generation: attempt.generation,
            life,
            dead: watch::Sender::new(false),
        })
    }
}

impl FakeSession {
    pub(crate) fn kill(&self) {
        self.dead.send_replace(true);
    }
}

impl Session for FakeSession {
    async fn ended(&self) -> Failure {
        match self.life {
            Life::Dies(after) => sleep(after).await,
            Life::Panics(text) => panic!("{text}"),
            Life::Long | Life::Mute | Life::CannotBeClosed => {
                let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
            }
        }
        failure(Cause::Transient, "the pipe broke")
    }

    async fn probe(&self) -> Result<(), Failure> {
        self.server
            .seen
            .lock()
            .unwrap()
            .probed
            .push(self.generation);
        match self.life {
            Life::Mute => pending().await,
            _ => Ok(()),
        }
    }

    async fn close(&self) {
        if let Life::CannotBeClosed = self.life {
            pending().await
        }
        let mut seen = self.server.seen.lock().unwrap();
        seen.open.remove(&self.generation);
        seen.closed.push(self.generation);
    }
}

pub(crate) fn supervise(
    fate: impl Fn(usize) -> Fate + Send + Sync + 'static,
) -> (Supervisor<Connector>, Connector, Steps) {
    supervise_by(Policy::default(), fate)
}

pub(crate) type Steps = Arc<Mutex<Vec<Transition>>>;

pub(crate) fn supervise_by(
    policy: Policy,
    fate: impl Fn(usize) -> Fate + Send + Sync + 'static,
) -> (Supervisor<Connector>, Connector, Steps) {
    let options = Options {
        policy,
        ..Options::default()
    };
    supervise_with(options, fate)
}

/// The options' seed and observer are set here.
pub(crate) fn supervise_with(
    options: Options,
    fate: impl Fn(usize) -> Fate + Send + Sync + 'static,
) -> (Supervisor<Connector>, Connector, Steps) {
    let connector = Connector::new(fate);
    let steps = Steps::default();
    let seen = Arc::clone(&steps);
    let options = Options {
        seed: 1,
        observer: Some(Box::new(move |step| seen.lock().unwrap().push(*step))),
        ..options
    };
    (
        Supervisor::spawn(connector.clone(), options),
        connector,
        steps,
    )
}

pub(crate) async fn home(
    supervisor: &Supervisor<Connector>,
) -> Result<Live<FakeSession>, Unavailable> {
    supervisor.session(Want::default()).await
}

pub(crate) fn after(time: Duration) -> Option<Instant> {
    Some(Instant::now() + time)
}

/// Lets everything run that can run now.
pub(crate) async fn settle() {
    sleep(SECOND / 1000).await;
}
