//! The calls in flight, and those whose completion the host has not taken.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, oneshot};

use super::{
    call::{Stop, Voice},
    error::{Error, Kind, Outcome},
    ids::Ids,
    origin::Origin,
};

/// The most calls at a time, from their admission until the host takes their completion: all of it is kept so long.
pub(super) const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Calls {
    ids: Ids,
    state: Mutex<State>,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct State {
    in_flight: HashMap<u64, InFlight>,
    /// Calls whose completion was not taken yet: those in flight, and those that ended.
    open: usize,
    closed: bool,
}

#[derive(Debug)]
struct InFlight {
    /// What stops it, if it was not stopped yet.
    stop: Option<oneshot::Sender<Stop>>,
    /// Whose session it uses.
    origin: Origin,
    /// By which it is ended if it was not started yet: its owner may never do that.
    prepared: Option<Voice>,
}

impl Calls {
    pub(super) fn new(ids: Ids) -> Self {
        Self {
            ids,
            ..Self::default()
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a call: its id, and what it listens to.
    pub(super) fn admit(&self, origin: Origin) -> Result<(u64, oneshot::Receiver<Stop>), Error> {
        let mut state = self.state();
        if state.closed {
            return Err(Error::closed());
        }
        if state.open >= MOST {
            let message = format!(
                "{MOST} calls are in flight or wait for their completion to be taken, the most that a client has; \
                 take its events"
            );
            return Err(Error::new(Kind::Capacity, message));
        }
        let (stop, stopped) = oneshot::channel();
        state.open += 1;
        let id = self.ids.next();
        let stop = Some(stop);
        let call = InFlight {
            stop,
            origin,
            prepared: None,
        };
        state.in_flight.insert(id, call);
        Ok((id, stopped))
    }

    /// A call was admitted and waits for its start.
    pub(super) fn prepared(&self, voice: Voice) {
        let closed = {
            let mut state = self.state();
            let closed = state.closed;
            if let (false, Some(call)) = (closed, state.in_flight.get_mut(&voice.id)) {
                call.prepared = Some(voice.clone());
            }
            closed
        };
        if closed {
            self.end_prepared(&voice);
        }
    }

    /// It starts, and ends by itself.
    pub(super) fn started(&self, id: u64) {
        if let Some(call) = self.state().in_flight.get_mut(&id) {
            call.prepared = None;
        }
    }

    fn end_prepared(&self, voice: &Voice) {
        voice.end(Err(Stop::ClientClosed.error(Outcome::NotSent)));
        self.remove(voice.id);
    }

    /// The completion of a call was taken.
    pub(super) fn taken(&self) {
        let mut state = self.state();
        state.open = state.open.saturating_sub(1);
    }

    /// A call ended, and its completion is in the queue.
    pub(super) fn remove(&self, id: u64) {
        let mut state = self.state();
        state.in_flight.remove(&id);
        if state.in_flight.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    /// Asks a call to end. `false` if it is not in flight.
    pub(super) fn cancel(&self, id: u64) -> bool {
        let stop = match self.state().in_flight.get_mut(&id) {
            Some(call) => call.stop.take(),
            None => return false,
        };
        // One that was asked before is on its way out.
        stop.is_none_or(|stop| stop.send(Stop::Canceled).is_ok())
    }

    /// Asks those calls to end that were made there.
    pub(super) fn stop_those(&self, why: Stop, there: impl Fn(&Origin) -> bool) {
        let stops: Vec<_> = {
            let mut state = self.state();
            let calls = state.in_flight.values_mut();
            calls
                .filter(|call| there(&call.origin))
                .filter_map(|call| call.stop.take())
                .collect()
        };
        for stop in stops {
            // A call that has just ended does not listen any more.
            let _ = stop.send(why);
        }
    }

    /// Admits no call any more, asks all to end, and ends those that were not started. `false` if that was done before.
    pub(super) fn close(&self) -> bool {
        if std::mem::replace(&mut self.state().closed, true) {
            return false;
        }
        self.stop_those(Stop::ClientClosed, |_| true);
        let prepared: Vec<_> = {
            let mut state = self.state();
            let calls = state.in_flight.values_mut();
            calls.filter_map(|call| call.prepared.take()).collect()
        };
        for voice in &prepared {
            self.end_prepared(voice);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_in_flight_may_be_cancelled_again_and_one_that_ended_may_not() {
        let calls = Calls::default();
        let (id, mut stopped) = calls.admit(Origin::default()).unwrap();
        assert!(calls.cancel(id));
        assert!(calls.cancel(id));
        assert!(matches!(stopped.try_recv(), Ok(Stop::Canceled)));
        calls.remove(id);
        assert!(!calls.cancel(id));
    }

    #[test]
    fn a_call_counts_until_its_completion_is_taken() {
        let calls = Calls::default();
        for _ in 0..MOST {
            calls.admit(Origin::default()).unwrap();
        }
        calls.remove(1);
        assert_eq!(
            calls.admit(Origin::default()).unwrap_err().kind,
            Kind::Capacity
        );
        calls.taken();
        calls.admit(Origin::default()).unwrap();
    }
}
