//! Whom a transport tells, and that the end is the last thing told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::{
    error::Error,
    transport::{Incoming, Receiver},
};

/// Tells the receiver, from any thread and also from inside another telling: what hears a message may close the
/// session or give a request up. So no lock is held while it is told, and nobody waits for another; the end is told
/// by whoever is the last to have something under way.
#[derive(Default)]
pub(super) struct Told {
    state: Mutex<State>,
    /// The receiver may want more again.
    resumed: Notify,
}

#[derive(Default)]
struct State {
    /// Nobody before the start, and after the end was told.
    receiver: Option<Arc<dyn Receiver>>,
    /// How many are telling something now.
    telling: usize,
    /// The end that waits for them.
    end: Option<Error>,
}

impl State {
    /// The end, if it is due. Tells nothing itself, for it is behind the lock.
    fn take_end(&mut self) -> Option<(Arc<dyn Receiver>, Error)> {
        if self.telling > 0 {
            return None;
        }
        let error = self.end.take()?;
        Some((self.receiver.take()?, error))
    }
}

impl Told {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells `receiver` from now on.
    pub(super) fn begin(&self, receiver: Arc<dyn Receiver>) {
        self.state().receiver = Some(receiver);
    }

    /// Tells something, unless the end was told. Once the end is asked for only `Written` still passes: what is known
    /// of a request depends on it.
    pub(super) fn tell(&self, incoming: Incoming) {
        let receiver = {
            let mut state = self.state();
            let Some(receiver) = state.receiver.clone() else {
                return;
            };
            if state.end.is_some() && !matches!(incoming, Incoming::Written(_)) {
                return;
            }
            state.telling += 1;
            receiver
        };
        let _telling = Telling(self);
        receiver.receive(incoming);
    }

    /// Waits until the receiver wants more, or nobody is told any more. To be asked before anything is read that may be
    /// long. May be dropped and called again.
    pub(super) async fn wants_more(&self) {
        // Nearly always it does.
        while !self.has_room() {
            let mut resumed = std::pin::pin!(self.resumed.notified());
            // Listening before the look that counts, so that a word between it and the wait is not missed.
            resumed.as_mut().enable();
            if !self.has_room() {
                resumed.await;
            }
        }
    }

    fn has_room(&self) -> bool {
        let receiver = self.state().receiver.clone();
        receiver.is_none_or(|receiver| receiver.wants_more())
    }

    pub(super) fn resume(&self) {
        self.resumed.notify_waiters();
    }

    /// Tells the end, once; by the time this returns, or after what is being told now.
    pub(super) fn end(&self, error: Error) {
        let due = {
            let mut state = self.state();
            if state.receiver.is_none() || state.end.is_some() {
                return;
            }
            state.end = Some(error);
            state.take_end()
        };
        if let Some((receiver, error)) = due {
            receiver.receive(Incoming::Ended(error));
        }
    }
}

/// One telling; over when it is dropped, also by a panic of the receiver.
struct Telling<'a>(&'a Told);

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        let due = {
            let mut state = self.0.state();
            state.telling -= 1;
            state.take_end()
        };
        if let Some((receiver, error)) = due {
            receiver.receive(Incoming::Ended(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::{error::ErrorKind, jsonrpc::RequestId};

    /// Ends what tells it, and says that a request was written, from inside the first message.
    struct Rash {
        told: Weak<Told>,
        heard: Mutex<Vec<String>>,
    }

    impl Receiver for Rash {
        fn receive(&self, incoming: Incoming) {
            let word = match &incoming {
                Incoming::Message(_) | Incoming::Answer(_) => "message",
                Incoming::Written(_) => "written",
                Incoming::Failed(..) => "failed",
                Incoming::Ended(_) => "ended",
            };
            self.heard.lock().expect("whole").push(word.into());
            if let (Incoming::Message(_), Some(told)) = (incoming, self.told.upgrade()) {
                told.end(Error::new(ErrorKind::Closed, "closed"));
                told.tell(Incoming::Message("late".into()));
                told.tell(Incoming::Written(RequestId(1)));
            }
        }
    }

    #[test]
    fn an_end_from_inside_a_telling_is_told_after_it_and_last() {
        let told = Arc::new(Told::default());
        let rash = Arc::new(Rash {
            told: Arc::downgrade(&told),
            heard: Mutex::default(),
        });
        told.tell(Incoming::Message("early".into()));
        told.begin(rash.clone());
        told.tell(Incoming::Message("first".into()));
        told.tell(Incoming::Written(RequestId(2)));
        told.end(Error::new(ErrorKind::Closed, "again"));
        assert_eq!(
            *rash.heard.lock().expect("whole"),
            ["message", "written", "ended"]
        );
    }
}
