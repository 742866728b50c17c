//! A host in C, as far as Rust can play one: it calls the functions of the header and reads what they write.

use std::{
    ffi::{c_char, c_void},
    ptr,
};

use mcpconn::abi::{
    error::{mcpconn_error, mcpconn_error_free, mcpconn_error_message},
    pool::*,
    pool_words::*,
    status::mcpconn_status_code::*,
    str::mcpconn_str,
    text::{mcpconn_text, mcpconn_text_free, mcpconn_text_str},
};

pub(crate) const OK: i32 = MCPCONN_OK as i32;
pub(crate) const EMPTY: i32 = MCPCONN_EMPTY as i32;
pub(crate) const INVALID: i32 = MCPCONN_ERR_INVALID as i32;
pub(crate) const CONFIG: i32 = MCPCONN_ERR_CONFIG as i32;
pub(crate) const UNKNOWN_SERVER: i32 = MCPCONN_ERR_UNKNOWN_SERVER as i32;
pub(crate) const CLOSED: i32 = MCPCONN_ERR_CLOSED as i32;
pub(crate) const CAPACITY: i32 = MCPCONN_ERR_CAPACITY as i32;
pub(crate) const CANCELED: i32 = MCPCONN_ERR_CANCELED as i32;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// A status, with the text of the error if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) text: String,
}

impl Said {
    /// Checks that this is refused, and that the text says why.
    #[track_caller]
    pub(crate) fn expect(&self, status: i32, part: &str) {
        assert_eq!(self.status, status, "{}", self.text);
        assert!(self.text.contains(part), "\"{part}\" in: {}", self.text);
    }
}

/// An action, with its names and its text copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Todo {
    Open {
        id: u64,
        scope: String,
        server: String,
        epoch: u64,
    },
    Stop {
        id: u64,
        why: i32,
    },
    Close {
        id: u64,
        session: usize,
        why: i32,
    },
    Give {
        token: u64,
        call: u64,
        id: u64,
        session: usize,
        fresh: bool,
    },
    Refuse {
        token: u64,
        request: u64,
        why: i32,
        status: i32,
        busy: (u32, u32),
    },
}

/// Text as C gives it.
pub(crate) fn c(text: &str) -> mcpconn_str {
    mcpconn_str {
        ptr: text.as_ptr().cast::<c_char>(),
        len: text.len(),
    }
}

fn rust(text: mcpconn_str) -> String {
    // SAFETY: text that the library lent just now.
    let bytes = unsafe { std::slice::from_raw_parts(text.ptr.cast::<u8>(), text.len) };
    // SAFETY: it says that there is a NUL behind it.
    assert_eq!(unsafe { *text.ptr.add(text.len) }, 0);
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A pool with a time that the test makes up.
pub(crate) struct Pool {
    pub(crate) raw: *mut mcpconn_pool,
    pub(crate) now: u64,
}

// SAFETY: the header says that any thread may use a pool.
unsafe impl Sync for Pool {}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the pool is this test's, and nobody else uses it any more.
        unsafe { mcpconn_pool_free(self.raw) };
    }
}

/// Calls a function of the header with an error to fill in.
pub(crate) fn said(call: impl FnOnce(*mut *mut mcpconn_error) -> i32) -> Said {
    let mut error = ptr::null_mut();
    let status = call(&raw mut error);
    assert_eq!(status < 0, !error.is_null(), "an error with each failure");
    // SAFETY: an error that came through an out-parameter, or NULL.
    let text = rust(unsafe { mcpconn_error_message(error) });
    // SAFETY: as above, and it is not used any more.
    unsafe { mcpconn_error_free(error) };
    Said { status, text }
}

pub(crate) fn try_new(limits: &str) -> Result<Pool, Said> {
    let mut raw = ptr::null_mut();
    // SAFETY: text and out-parameters that live longer than the call.
    let said = said(|err| unsafe { mcpconn_pool_new(c(limits), &raw mut raw, err) });
    if said.status == OK {
        Ok(Pool { raw, now: SECOND })
    } else {
        assert!(raw.is_null());
        Err(said)
    }
}

/// A pool with these limits, and a server called "server" in the usual domain.
pub(crate) fn pool_with(limits: &str) -> Pool {
    let pool = try_new(limits).unwrap();
    pool.bind("", "server", "v1");
    pool
}

pub(crate) fn pool_of(capacity: usize) -> Pool {
    pool_with(&format!(
        "{{\"capacity\": {capacity}, \"idle_ttl_ms\": \"never\"}}"
    ))
}

impl Pool {
    pub(crate) fn bind(&self, domain: &str, server: &str, fingerprint: &str) -> u64 {
        let mut epoch = 0;
        // SAFETY: a live pool, and text and out-parameters that live longer than the call.
        let said = said(|err| unsafe {
            let fingerprint = c(fingerprint);
            mcpconn_pool_bind(
                self.raw,
                self.now,
                c(domain),
                c(server),
                fingerprint,
                &raw mut epoch,
                err,
            )
        });
        assert_eq!(said.status, OK, "{}", said.text);
        assert_ne!(epoch, 0);
        epoch
    }

    pub(crate) fn unbind(&self, domain: &str, server: &str) -> Said {
        // SAFETY: a live pool, and text that lives longer than the call.
        said(|err| unsafe { mcpconn_pool_unbind(self.raw, self.now, c(domain), c(server), err) })
    }

    pub(crate) fn try_acquire(
        &self,
        key: (&str, &str, &str),
        options: mcpconn_pool_acquire_options,
    ) -> Result<u64, Said> {
        let mut id = 0;
        // SAFETY: a live pool, and text, options and out-parameters that live longer than the call.
        let said = said(|err| unsafe {
            mcpconn_pool_acquire(
                self.raw,
                self.now,
                c(key.0),
                c(key.1),
                c(key.2),
                &raw const options,
                &raw mut id,
                err,
            )
        });
        if said.status == OK { Ok(id) } else { Err(said) }
    }

    /// Asks for the session of a scope of the usual server.
    pub(crate) fn acquire(&self, scope: &str, token: u64) -> u64 {
        self.try_acquire(("", "server", scope), options(token))
            .unwrap()
    }

    pub(crate) fn acquire_until(&self, scope: &str, token: u64, deadline_ns: u64) -> u64 {
        let options = mcpconn_pool_acquire_options {
            deadline_ns,
            ..options(token)
        };
        self.try_acquire(("", "server", scope), options).unwrap()
    }

    pub(crate) fn warm_up(&self, scope: &str) -> Said {
        // SAFETY: a live pool, and text that lives longer than the call.
        said(|err| unsafe {
            mcpconn_pool_warm_up(self.raw, self.now, c(""), c("server"), c(scope), 0, err)
        })
    }

    pub(crate) fn cancel(&self, request: u64) -> Said {
        // SAFETY: a live pool.
        said(|err| unsafe { mcpconn_pool_cancel(self.raw, self.now, request, err) })
    }

    pub(crate) fn release(&self, call: u64) -> Said {
        // SAFETY: a live pool.
        said(|err| unsafe { mcpconn_pool_release(self.raw, self.now, call, err) })
    }

    pub(crate) fn begin(&self, id: u64) -> Result<(u64, usize), Said> {
        let mut action = action();
        // SAFETY: a live pool, and an out-parameter that lives longer than the call.
        let said =
            said(|err| unsafe { mcpconn_pool_begin(self.raw, self.now, id, &raw mut action, err) });
        if said.status == OK {
            assert_eq!(action.kind, 4);
            Ok((action.request_id, action.session as usize))
        } else {
            Err(said)
        }
    }

    pub(crate) fn opened(&self, id: u64, session: usize) -> Said {
        // SAFETY: a live pool; the session is not a pointer to anything, and is never followed.
        said(|err| unsafe {
            mcpconn_pool_opened(self.raw, self.now, id, session as *mut c_void, err)
        })
    }

    pub(crate) fn failed(&self, id: u64, status: i32) -> Said {
        // SAFETY: a live pool.
        said(|err| unsafe { mcpconn_pool_failed(self.raw, self.now, id, status, err) })
    }

    pub(crate) fn closed(&self, id: u64) -> Said {
        // SAFETY: a live pool.
        said(|err| unsafe { mcpconn_pool_closed(self.raw, self.now, id, err) })
    }

    pub(crate) fn evict(&self, id: u64) -> Said {
        // SAFETY: a live pool.
        said(|err| unsafe { mcpconn_pool_evict(self.raw, self.now, id, err) })
    }

    pub(crate) fn close(&self, what: i32, key: (&str, &str, &str), id: u64) -> Said {
        // SAFETY: a live pool, and text that lives longer than the call.
        said(|err| unsafe {
            let (domain, server, scope) = (c(key.0), c(key.1), c(key.2));
            mcpconn_pool_close(self.raw, self.now, what, domain, server, scope, id, err)
        })
    }

    pub(crate) fn drain(&self, what: i32, key: (&str, &str, &str), deadline_ns: u64) -> Said {
        // SAFETY: a live pool, and text that lives longer than the call.
        said(|err| unsafe {
            mcpconn_pool_drain(
                self.raw,
                self.now,
                what,
                c(key.0),
                c(key.1),
                c(key.2),
                0,
                deadline_ns,
                err,
            )
        })
    }

    pub(crate) fn shutdown(&self) -> Said {
        // SAFETY: a live pool.
        said(|err| unsafe { mcpconn_pool_shutdown(self.raw, self.now, err) })
    }

    pub(crate) fn info(&self) -> serde_json::Value {
        let mut json: *mut mcpconn_text = ptr::null_mut();
        // SAFETY: a live pool, and an out-parameter that lives longer than the call.
        let said = said(|err| unsafe { mcpconn_pool_info(self.raw, self.now, &raw mut json, err) });
        assert_eq!(said.status, OK);
        // SAFETY: text that came through an out-parameter.
        let text = rust(unsafe { mcpconn_text_str(json) });
        // SAFETY: as above, and it is not used any more.
        unsafe { mcpconn_text_free(json) };
        serde_json::from_str(&text).unwrap()
    }

    /// What there is to do next, or when to ask again.
    pub(crate) fn next(&self) -> Result<Todo, u64> {
        let mut action = action();
        // SAFETY: a live pool, and an out-parameter that lives longer than the call.
        let status = unsafe { mcpconn_pool_next(self.raw, self.now, &raw mut action) };
        if status == EMPTY {
            assert_eq!(action.kind, 0);
            return Err(action.at_ns);
        }
        assert_eq!(status, OK);
        let (id, session) = (action.session_id, action.session as usize);
        let why = action.reason;
        Ok(match action.kind {
            1 => Todo::Open {
                id,
                scope: rust(action.scope),
                server: format!("{} {}", rust(action.domain), rust(action.server)),
                epoch: action.epoch,
            },
            2 => Todo::Stop { id, why },
            3 => Todo::Close { id, session, why },
            4 => Todo::Give {
                token: action.token,
                call: action.request_id,
                id,
                session,
                fresh: action.fresh == 1,
            },
            5 => {
                assert!(action.text.len > 0);
                rust(action.text);
                Todo::Refuse {
                    token: action.token,
                    request: action.request_id,
                    why,
                    status: action.status,
                    busy: (action.busy, action.limit),
                }
            }
            other => panic!("an action of kind {other}"),
        })
    }

    /// Checks that there is nothing to do, and says when to ask again.
    #[track_caller]
    pub(crate) fn idle_until(&self) -> u64 {
        match self.next() {
            Err(at) => at,
            Ok(todo) => panic!("there is something to do: {todo:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn expect_open(&self) -> u64 {
        match self.next() {
            Ok(Todo::Open { id, .. }) => id,
            other => panic!("nothing to open: {other:?}"),
        }
    }

    /// Checks that a token is given a session. Returns the call.
    #[track_caller]
    pub(crate) fn expect_give(&self, token: u64, session: usize) -> u64 {
        match self.next() {
            Ok(Todo::Give {
                token: to,
                call,
                session: given,
                ..
            }) => {
                assert_eq!((to, given), (token, session));
                call
            }
            other => panic!("nobody is given a session: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn expect_refuse(&self, token: u64, why: mcpconn_pool_reason, status: i32) {
        match self.next() {
            Ok(Todo::Refuse {
                token: to,
                why: reason,
                status: with,
                ..
            }) => assert_eq!((to, reason, with), (token, why as i32, status)),
            other => panic!("nobody is refused: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn expect_close(&self, id: u64, session: usize, why: mcpconn_pool_reason) {
        let why = why as i32;
        assert_eq!(self.next(), Ok(Todo::Close { id, session, why }));
    }

    #[track_caller]
    pub(crate) fn expect_stop(&self, id: u64, why: mcpconn_pool_reason) {
        let why = why as i32;
        assert_eq!(self.next(), Ok(Todo::Stop { id, why }));
    }

    /// Has the session of a scope opened and given. Returns the call and the session's id.
    #[track_caller]
    pub(crate) fn given(&self, scope: &str, session: usize) -> (u64, u64) {
        self.acquire(scope, 99);
        let id = self.expect_open();
        assert_eq!(self.opened(id, session).status, OK);
        (self.expect_give(99, session), id)
    }
}

pub(crate) fn options(token: u64) -> mcpconn_pool_acquire_options {
    mcpconn_pool_acquire_options {
        struct_size: size_of::<mcpconn_pool_acquire_options>(),
        token,
        epoch: 0,
        deadline_ns: 0,
    }
}

/// As MCPCONN_POOL_ACTION_INIT makes it.
pub(crate) fn action() -> mcpconn_pool_action {
    let text = mcpconn_str {
        ptr: ptr::null(),
        len: 0,
    };
    mcpconn_pool_action {
        struct_size: size_of::<mcpconn_pool_action>(),
        kind: 0,
        reason: 0,
        status: 0,
        fresh: 0,
        token: 0,
        request_id: 0,
        session_id: 0,
        session: ptr::null_mut(),
        epoch: 0,
        at_ns: 0,
        busy: 0,
        limit: 0,
        domain: text,
        server: text,
        scope: text,
        text,
    }
}
