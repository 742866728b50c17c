//! What servers ask of the host: each request is open until it is answered, refused or withdrawn, and is one of these
//! once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mcp_transport::{
    error::{self, ErrorKind},
    session::{ServerRequest, ServerRequestId},
};

use super::{
    error::{Error, Kind},
    ids::Ids,
};

/// The open requests of all servers of a client.
#[derive(Debug)]
pub(super) struct Asked {
    ids: Ids,
    state: Mutex<State>,
}

/// A request as its session names it: the number of the session, and what it calls the request.
type Theirs = (u64, ServerRequestId);

#[derive(Debug, Default)]
struct State {
    open: HashMap<u64, One>,
    named: HashMap<Theirs, Named>,
}

#[derive(Debug)]
struct One {
    request: Arc<ServerRequest>,
    theirs: Theirs,
}

#[derive(Debug)]
enum Named {
    Open(u64),
    /// It was withdrawn before it came here: the two come from different threads.
    WithdrawnBefore,
}

impl Asked {
    pub(super) fn new(ids: Ids) -> Self {
        Self {
            ids,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a session, to name its requests by.
    pub(super) fn new_session(&self) -> u64 {
        self.ids.next()
    }

    /// A session is asked. `tell` tells the host of it, under the id by which it answers.
    pub(super) fn ask(
        &self,
        session: u64,
        request: ServerRequest,
        tell: impl FnOnce(u64, &ServerRequest),
    ) {
        let theirs = (session, request.id());
        let mut state = self.state();
        if state.named.remove(&theirs).is_some() {
            // Dropped, it would be refused, but there is nobody to refuse it to any more.
            return;
        }
        let id = self.ids.next();
        let request = Arc::new(request);
        state.named.insert(theirs, Named::Open(id));
        let one = One {
            request: request.clone(),
            theirs,
        };
        state.open.insert(id, one);
        // With the lock held: a withdrawal is told after it.
        tell(id, &request);
    }

    /// Nobody waits for the answer any more. Gives the host's id of it, if the host was told of it.
    pub(super) fn withdraw(&self, session: u64, request: ServerRequestId) -> Option<u64> {
        let theirs = (session, request);
        let mut state = self.state();
        let Some(Named::Open(id)) = state.named.remove(&theirs) else {
            state.named.insert(theirs, Named::WithdrawnBefore);
            return None;
        };
        let one = state.open.remove(&id);
        drop(state);
        // Outside of the lock, for with it goes the transport's own.
        drop(one);
        Some(id)
    }

    /// Answers with this result. `false` if no such request is open.
    pub(super) fn answer(&self, id: u64, result: &str) -> Result<bool, Error> {
        self.settle(id, |request| request.answer(result.as_bytes()))
    }

    /// Answers with an error. `false` if no such request is open.
    pub(super) fn refuse(&self, id: u64, code: i32, message: &str) -> bool {
        // An error is never unreadable, as a result can be.
        self.settle(id, |request| request.refuse(code.into(), message))
            .unwrap_or(false)
    }

    fn settle(
        &self,
        id: u64,
        word: impl FnOnce(&ServerRequest) -> Result<(), error::Error>,
    ) -> Result<bool, Error> {
        let open = self.state().open.get(&id).map(|one| one.request.clone());
        let Some(request) = open else {
            return Ok(false);
        };
        match word(&request) {
            Ok(()) => {
                // Settled, it is withdrawn by nobody: this is the one who takes it off the list.
                let mut state = self.state();
                if let Some(one) = state.open.remove(&id) {
                    state.named.remove(&one.theirs);
                }
                Ok(true)
            }
            // Answered or withdrawn meanwhile; whoever did that takes it off the list.
            Err(error) if error.kind == ErrorKind::Closed => Ok(false),
            Err(error) => Err(Error::new(
                Kind::Invalid,
                format!("the answer to request {id}: {}", error.message),
            )),
        }
    }
}
