//! The calls in flight.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, oneshot};

use super::{
    call::Stop,
    error::{Error, Kind},
};

/// The most calls in flight: a completion is kept until the host takes it, so that they must be bounded.
pub(super) const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Calls {
    state: Mutex<State>,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What stops each call that was not stopped yet.
    in_flight: HashMap<u64, Option<oneshot::Sender<Stop>>>,
    last_id: u64,
    closed: bool,
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a call: its id, and what it listens to.
    pub(super) fn admit(&self) -> Result<(u64, oneshot::Receiver<Stop>), Error> {
        let mut state = self.state();
        if state.closed {
            return Err(Error::closed());
        }
        if state.in_flight.len() >= MOST {
            let message = format!(
                "{MOST} calls are in flight, the most that a client takes; take their events"
            );
            return Err(Error::new(Kind::Capacity, message));
        }
        let (stop, stopped) = oneshot::channel();
        state.last_id += 1;
        let id = state.last_id;
        state.in_flight.insert(id, Some(stop));
        Ok((id, stopped))
    }

    pub(super) fn remove(&self, id: u64) {
        let mut state = self.state();
        state.in_flight.remove(&id);
        if state.in_flight.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    /// Asks a call to end. `false` if it is not in flight or was asked before.
    pub(super) fn cancel(&self, id: u64) -> bool {
        let stop = self.state().in_flight.get_mut(&id).and_then(Option::take);
        stop.is_some_and(|stop| stop.send(Stop::Canceled).is_ok())
    }

    /// Admits no call any more, and asks all to end. `false` if that was done before.
    pub(super) fn close(&self) -> bool {
        let stops: Vec<_> = {
            let mut state = self.state();
            if std::mem::replace(&mut state.closed, true) {
                return false;
            }
            state
                .in_flight
                .values_mut()
                .filter_map(Option::take)
                .collect()
        };
        for stop in stops {
            // A call that has just ended does not listen any more.
            let _ = stop.send(Stop::ClientClosed);
        }
        true
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Completes once no call is in flight.
    pub(super) async fn all_ended(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.state().in_flight.is_empty() {
                return;
            }
            emptied.await;
        }
    }
}
