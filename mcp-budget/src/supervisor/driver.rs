//! The task that waits for one binding.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::watch,
    task::{AbortHandle, JoinError, JoinSet},
    time::{Instant, sleep_until, timeout},
};

use super::{
    Connect, Failure, Observer, Options, Session, Shared, SharedGate, alive, deadline_after,
    desk::Orders, gate::GatePass, leave::Granted,
};
use crate::{
    echo::Echo,
    gate::Urgency,
    loss::Cause,
    openings::Side,
    transition::{Reason, State, Transition},
};

/// Runs the driver of a binding as a task of the current runtime.
pub(super) fn spawn<C: Connect>(connector: Arc<C>, shared: Arc<Shared<C>>, options: Options) {
    let gate = shared.look(|desk, _| desk.gate());
    let driver = Driver {
        connector,
        shared,
        checks: gate.as_ref().map(|(gate, _)| gate.checks()),
        gate,
        echo: Echo::default(),
        observer: options.observer,
        close_limit: options.close_limit,
        tasks: JoinSet::new(),
        attempt: None,
        queueing: [None, None],
        listening: Listening::default(),
    };
    tokio::spawn(driver.run());
}

/// Everything foreign runs in a task of its own: it can be given up at any time, and its panic is an answer like any
/// other.
struct Driver<C: Connect> {
    connector: Arc<C>,
    shared: Arc<Shared<C>>,
    gate: Option<(SharedGate, u64)>,
    /// Where it hears that it should check.
    checks: Option<watch::Receiver<u64>>,
    echo: Echo,
    observer: Option<Observer>,
    close_limit: Duration,
    tasks: JoinSet<Outcome<C::Session>>,
    attempt: Option<AbortHandle>,
    /// The tasks that wait before the gate, and how urgently: for the home session, and for scoped ones.
    queueing: [Option<(Urgency, AbortHandle)>; 2],
    listening: Listening,
}

/// The tasks that wait for word from the open home session.
#[derive(Default)]
struct Listening {
    generation: Option<u64>,
    tasks: Vec<AbortHandle>,
}

/// What a task came to.
enum Outcome<S> {
    Admitted(Side, GatePass),
    Attempted(u64, Result<S, Failure>),
    Ended(u64, Failure),
    Probed(u64, Result<(), Failure>),
    Checked(u64, Result<(), Failure>),
    Closed,
}

impl<C: Connect> Driver<C> {
    async fn run(mut self) {
        loop {
            self.shared.with_quietly(|_, _| ());
            let orders = self.shared.look(|desk, _| desk.take_orders());
            let (wake_at, stopped) = (orders.wake_at, orders.stopped);
            self.carry_out(orders);
            if stopped {
                break;
            }
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                Some(ended) = self.tasks.join_next() => self.conclude(ended),
                () = shared.changed.notified() => {}
                () = told(&mut self.checks) => {
                    shared.with_quietly(|desk, now| desk.check(now));
                }
                () = until(wake_at) => {}
            }
        }
        self.wind_down().await;
    }

    fn carry_out(&mut self, orders: Orders<C::Session>) {
        for transition in &orders.transitions {
            self.tell(transition);
        }
        for session in orders.close {
            self.close(session);
        }
        if self.listening.generation != orders.home {
            self.listening.stop();
        }
        for (side, urgency) in orders.asks {
            self.queue(side, urgency);
        }
        if let Some(attempt) = self.attempt.take_if(|_| orders.give_up) {
            attempt.abort();
        }
        if let Some(granted) = orders.connect {
            self.connect(granted);
        }
        if let Some((generation, session)) = orders.probe {
            self.probe(generation, session);
        }
        if let Some((generation, session)) = orders.check {
            self.check(generation, session);
        }
    }

    fn tell(&mut self, transition: &Transition) {
        self.log(transition);
        if let Some(observer) = &self.observer {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| observer(transition))) {
                tracing::error!(panic = message(&*panic), "an observer panicked");
            }
        }
    }

    /// What says the same for hours is said once an hour, and then how often it was not; all of it at trace level.
    fn log(&mut self, transition: &Transition) {
        let Transition {
            state,
            reason,
            attempt,
            charges,
            generation,
            ..
        } = transition;
        let now = self.shared.clock.now();
        match (self.echo.worth(now, transition), state) {
            (Some(unsaid), State::Parked | State::Stopped) => {
                tracing::info!(%state, %reason, attempt, charges, generation, unsaid, "binding");
            }
            (Some(unsaid), _) => {
                tracing::debug!(%state, %reason, attempt, charges, generation, unsaid, "binding");
            }
            (None, _) => {
                tracing::trace!(%state, %reason, attempt, charges, generation, "binding");
            }
        }
    }

    /// Queues at the gate, or gives the place there up. Who gets more urgent queues anew.
    fn queue(&mut self, side: Side, urgency: Option<Urgency>) {
        let place = &mut self.queueing[side as usize];
        if place.as_ref().map(|(urgency, _)| *urgency) == urgency {
            return;
        }
        if let Some((_, task)) = place.take() {
            task.abort();
        }
        if let (Some((gate, server)), Some(urgency)) = (self.gate.clone(), urgency) {
            let task = self
                .tasks
                .spawn(async move { Outcome::Admitted(side, gate.pass(server, urgency).await) });
            *place = Some((urgency, task));
        }
    }

    fn connect(&mut self, (attempt, pass): Granted) {
        let connector = Arc::clone(&self.connector);
        let task = self.tasks.spawn(async move {
            let attempted = connector.connect(attempt).await;
            drop(pass);
            Outcome::Attempted(attempt.generation, attempted)
        });
        self.attempt = Some(task);
    }

    fn listen(&mut self, generation: u64, session: C::Session) {
        self.listening.generation = Some(generation);
        let watched = session.clone();
        let task = self
            .tasks
            .spawn(async move { Outcome::Ended(generation, session.ended().await) });
        self.listening.tasks.push(task);
        let shared = Arc::clone(&self.shared);
        let task = self.tasks.spawn(async move {
            let policy = || shared.look(|desk, _| desk.budget_mut().policy().clone());
            Outcome::Ended(
                generation,
                alive::watch(shared.clock, watched, policy).await,
            )
        });
        self.listening.tasks.push(task);
    }

    /// Asks whether the session still lives, when everybody else is asked that too.
    fn check(&mut self, generation: u64, session: C::Session) {
        let gate = self.gate.clone();
        let deadline = self.probe_deadline();
        let task = self.tasks.spawn(async move {
            let _pass = match gate {
                Some((gate, server)) => Some(gate.pass(server, Urgency::Probe).await),
                None => None,
            };
            let answered = match timeout(deadline, session.probe()).await {
                Ok(answered) => answered,
                // A server at work may not find the time to answer.
                Err(_) if session.pulse().is_some_and(|pulse| pulse.busy) => Ok(()),
                Err(_) => Err(Failure::unanswered()),
            };
            Outcome::Checked(generation, answered)
        });
        self.listening.tasks.push(task);
    }

    fn probe_deadline(&self) -> Duration {
        self.shared
            .look(|desk, _| desk.budget_mut().policy().probe_deadline)
    }

    fn probe(&mut self, generation: u64, session: C::Session) {
        let deadline = self.probe_deadline();
        let task = self.tasks.spawn(async move {
            let answered = timeout(deadline, session.probe()).await;
            let answered = answered.unwrap_or_else(|_| Err(Failure::unanswered()));
            Outcome::Probed(generation, answered)
        });
        self.listening.tasks.push(task);
    }

    fn close(&mut self, session: C::Session) {
        let limit = self.close_limit;
        self.tasks.spawn(async move {
            let _ = timeout(limit, session.close()).await;
            Outcome::Closed
        });
    }

    fn conclude(&mut self, ended: Result<Outcome<C::Session>, JoinError>) {
        let shared = Arc::clone(&self.shared);
        match ended {
            Ok(Outcome::Admitted(side, pass)) => {
                // If this is of a place that was given up meanwhile, the newer one is not needed.
                if let Some((_, task)) = self.queueing[side as usize].take() {
                    task.abort();
                }
                shared.with_quietly(|desk, _| desk.admitted(side, pass));
            }
            Ok(Outcome::Attempted(generation, Ok(session))) => {
                let wanted = shared.with_quietly({
                    let session = session.clone();
                    move |desk, now| desk.connected(now, generation, session)
                });
                if wanted {
                    self.listen(generation, session);
                }
            }
            Ok(Outcome::Attempted(generation, Err(failure))) => {
                shared.with_quietly(|desk, now| desk.attempt_failed(now, generation, failure));
            }
            Ok(Outcome::Probed(generation, Ok(()))) => {
                shared.with_quietly(|desk, now| desk.budget_mut().proven(now, generation));
            }
            Ok(Outcome::Ended(generation, failure))
            | Ok(Outcome::Probed(generation, Err(failure)))
            | Ok(Outcome::Checked(generation, Err(failure))) => {
                shared.with_quietly(|desk, now| desk.home_lost(now, generation, failure));
            }
            Ok(Outcome::Closed | Outcome::Checked(_, Ok(()))) => {}
            Err(error) => {
                if let Ok(panic) = error.try_into_panic() {
                    let text = format!("panic: {}", message(&*panic));
                    let failure = Failure::new(Cause::Fatal, text);
                    shared.with_quietly(|desk, now| desk.panicked(now, failure));
                }
            }
        }
    }

    /// Closes what is open, within the limit of the shutdown, and cuts the rest.
    async fn wind_down(mut self) {
        let shared = Arc::clone(&self.shared);
        let longest = deadline_after(self.close_limit);
        self.listening.stop();
        if let Some(attempt) = self.attempt.take() {
            attempt.abort();
        }
        for side in [Side::Home, Side::Scoped] {
            self.queue(side, None);
        }
        loop {
            let by = shared
                .look(|desk, _| desk.stop_by())
                .map_or(longest, |by| by.min(longest));
            tokio::select! {
                ended = self.tasks.join_next() => match ended {
                    // An attempt may have come through before it was given up; its session is closed.
                    Some(ended) => {
                        self.conclude(ended);
                        let orders = shared.look(|desk, _| desk.take_orders());
                        self.carry_out(orders);
                    }
                    None => break,
                },
                () = shared.changed.notified() => {}
                () = sleep_until(by) => break,
            }
        }
    }
}

impl<C: Connect> Drop for Driver<C> {
    /// However the driver ends, also with its runtime, nobody is left waiting.
    fn drop(&mut self) {
        self.shared
            .with_quietly(|desk, now| desk.budget_mut().stop(now, Reason::Shutdown));
        self.shared.done.send_replace(true);
    }
}

impl Listening {
    fn stop(&mut self) {
        self.generation = None;
        for task in self.tasks.drain(..) {
            task.abort();
        }
    }
}

/// Completes when everybody at the gate is told to check.
async fn told(checks: &mut Option<watch::Receiver<u64>>) {
    let told = match checks {
        Some(checks) => checks.changed().await.is_ok(),
        None => false,
    };
    if !told {
        std::future::pending().await
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "without a message"
    }
}
