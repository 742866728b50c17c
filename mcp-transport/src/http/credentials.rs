//! What changes about the headers of a binding while it is in use, and what its 401s mean.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::watch;

use crate::error::Error;

/// How many former headers are kept in mind.
const FORMER: usize = 8;

/// Hears of an error.
type Tell = Box<dyn Fn(&Error) + Send + Sync>;

/// Shared by all sessions of a binding.
pub(super) struct Credentials {
    /// Headers in place of the configuration's.
    replaced: watch::Sender<Vec<(HeaderName, HeaderValue)>>,
    /// The last of those that were replaced themselves: a server may still repeat them.
    former: Mutex<VecDeque<(HeaderName, HeaderValue)>>,
    /// The method whose 401 was last taken as the loss of a session.
    suspected: Mutex<Option<String>>,
    is_suspected: AtomicBool,
    /// Hears of standing streams that are refused for want of credentials.
    of_streams: OnceLock<Tell>,
}

impl Credentials {
    pub(super) fn new() -> Self {
        Self {
            replaced: watch::Sender::new(Vec::new()),
            former: Mutex::default(),
            suspected: Mutex::default(),
            is_suspected: AtomicBool::new(false),
            of_streams: OnceLock::new(),
        }
    }

    /// Sends `value` in place of the header's values from now on; `None` takes that back.
    pub(super) fn replace(&self, name: HeaderName, value: Option<HeaderValue>) {
        self.replaced.send_modify(|replaced| {
            if let Some(at) = replaced.iter().position(|(kept, _)| *kept == name) {
                let mut former = self.former();
                former.truncate(FORMER - 1);
                former.push_front(replaced.swap_remove(at));
            }
            replaced.extend(value.map(|value| (name, value)));
        });
        self.trust();
    }

    /// Tells of every replacement from now on.
    pub(super) fn changes(&self) -> watch::Receiver<Vec<(HeaderName, HeaderValue)>> {
        self.replaced.subscribe()
    }

    pub(super) fn apply(&self, headers: &mut HeaderMap) {
        for (name, value) in self.replaced.borrow().iter() {
            headers.insert(name, value.clone());
        }
    }

    /// Adds all that were sent in place of those that the headers are.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        let former = self.former();
        for (name, value) in self.replaced.borrow().iter().chain(former.iter()) {
            headers.append(name, value.clone());
        }
    }

    /// Has this called from now on with what refuses a standing stream; the first stays.
    pub(super) fn hear_of_streams(&self, tell: impl Fn(&Error) + Send + Sync + 'static) {
        let _ = self.of_streams.set(Box::new(tell));
    }

    pub(super) fn tell_of_stream(&self, error: &Error) {
        if let Some(tell) = self.of_streams.get() {
            tell(error);
        }
    }

    fn former(&self) -> MutexGuard<'_, VecDeque<(HeaderName, HeaderValue)>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A 401 met a request that bore a session id. Servers answer so that have lost the session, with the credentials
    /// they had for it: true if that is still to be tried. A new session that meets it for the same method again
    /// wants credentials indeed.
    pub(super) fn may_be_expiry(&self, method: &str) -> bool {
        let mut suspected = self.suspected();
        if suspected.is_some() {
            return false;
        }
        *suspected = Some(method.to_owned());
        self.is_suspected.store(true, Ordering::Release);
        true
    }

    /// A request with a session id was let in.
    pub(super) fn let_in(&self, method: impl FnOnce() -> Option<String>) {
        if !self.is_suspected.load(Ordering::Acquire) {
            return;
        }
        // That the server lets in others, as the handshake of the new session, says nothing of the one refused.
        if *self.suspected() == method() {
            self.trust();
        }
    }

    fn trust(&self) {
        *self.suspected() = None;
        self.is_suspected.store(false, Ordering::Release);
    }

    fn suspected(&self) -> MutexGuard<'_, Option<String>> {
        self.suspected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_401_is_taken_as_expiry_once_until_the_same_method_was_let_in() {
        let credentials = Credentials::new();
        assert!(credentials.may_be_expiry("tools/call"));
        assert!(!credentials.may_be_expiry("tools/call"));
        credentials.let_in(|| Some("tools/list".into()));
        assert!(!credentials.may_be_expiry("tools/list"));
        credentials.let_in(|| Some("tools/call".into()));
        assert!(credentials.may_be_expiry("tools/call"));
        assert!(!credentials.may_be_expiry("tools/call"));
        credentials.replace(HeaderName::from_static("a"), None);
        assert!(credentials.may_be_expiry("tools/call"));
    }
}
