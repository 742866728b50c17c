//! mcpconn_budget: the reconnect budget alone, for a host that has an MCP client of its own.

use std::time::Duration;

use mcp_budget::{Action, Budget, Cause, Loss, Reason, Refusal, Timestamp};

use super::{
    error::mcpconn_error,
    fail::{self, Failure, give},
    options,
    server::mcpconn_server_info,
    status::{Code, mcpconn_status},
    str::mcpconn_str,
};
use crate::client::{ServerStatus, budget_policy};

/// A reconnect budget of one server: told what happened and when, it answers what to do and when. It has no thread, no
/// input or output, no clock and no callback; one thread at a time may use it. Every now_ns is of a monotonic clock of
/// the host's, in nanoseconds; one that lies before the last is taken as the last. It goes through
/// mcpconn_budget_free().
#[derive(Debug)]
pub struct mcpconn_budget(Budget);

/// What a budget is told.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_budget_word {
    /// The home session is needed: it is opened as soon as may be, and kept.
    MCPCONN_BUDGET_WANTED = 1,
    /// Calls wait for the home session: the delays that spare a server nobody waits for do not hold. An attempt that
    /// fails clears it, for then all who wait are told.
    MCPCONN_BUDGET_CALLS_WAIT = 2,
    /// No call waits for the home session any more.
    MCPCONN_BUDGET_NO_CALL_WAITS = 3,
    /// A call was refused because the server is parked: its probe comes sooner.
    MCPCONN_BUDGET_CALL_REFUSED = 4,
    /// Try now: ends waiting and parking for one attempt.
    MCPCONN_BUDGET_WAKE = 5,
    /// The session of this generation is open. That proves nothing.
    MCPCONN_BUDGET_OPENED = 6,
    /// The session of this generation answered a request of the host, also with an error.
    MCPCONN_BUDGET_PROVEN = 7,
    /// The attempt of this generation failed, or its session ended; cause and not_before_ns say more.
    MCPCONN_BUDGET_LOST = 8,
    /// The host closed the session of this generation, or gave its opening up: no loss and no charge.
    MCPCONN_BUDGET_CLOSED = 9,
    /// It is over: nothing is opened any more.
    MCPCONN_BUDGET_STOP = 10,
}

/// How grave a loss is. Of several causes that come together the gravest decides, which is the least number.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_cause {
    /// A panic or the owner's own cancellation: never reconnect.
    MCPCONN_CAUSE_FATAL = 1,
    /// Credentials are needed.
    MCPCONN_CAUSE_AUTH = 2,
    /// Trying again cannot help: command missing, bad URL, no MCP server.
    MCPCONN_CAUSE_PERMANENT = 3,
    /// It broke; trying again may help.
    MCPCONN_CAUSE_TRANSIENT = 4,
    /// The fault is on our side: descriptors, memory, no network. It costs no charge.
    MCPCONN_CAUSE_LOCAL = 5,
    /// A normal end after a proven life, such as expiry. It costs no charge.
    MCPCONN_CAUSE_ROUTINE = 6,
}

/// What a budget answers to do.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_action_code {
    /// Open a session, and tell MCPCONN_BUDGET_OPENED or MCPCONN_BUDGET_LOST with its generation.
    MCPCONN_ACTION_CONNECT = 1,
    /// Ask the home session for any answer, and tell MCPCONN_BUDGET_PROVEN or MCPCONN_BUDGET_LOST.
    MCPCONN_ACTION_PROBE = 2,
}

/// What is to be done, and when. Begin with MCPCONN_ACTION_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct mcpconn_action {
    /// sizeof(mcpconn_action), so that a later library knows what this program knew.
    pub struct_size: usize,
    /// A mcpconn_action_code; 0 if there is nothing to do now.
    pub kind: i32,
    /// Of an attempt: its number since the last proof, from 1.
    pub attempt: u32,
    /// The generation of the session that it is about; counted from 1 over all sessions of the budget.
    pub generation: u64,
    /// If there is nothing to do now: when to ask again, on the host's clock; UINT64_MAX for not before something is
    /// told.
    pub at_ns: u64,
}

impl mcpconn_action {
    /// Checks what [`write`](Self::write) would find wrong with `out`, before an action is taken that would get lost.
    ///
    /// # Safety
    ///
    /// `out` must be NULL or readable for its first member.
    unsafe fn check(out: *const Self) -> Result<(), Failure> {
        // SAFETY: as above.
        unsafe { options::check_sized("mcpconn_action", out) }
    }

    /// # Safety
    ///
    /// `out` must be NULL or valid for reads and writes of as many bytes as its first member says.
    unsafe fn write(self, out: *mut Self) -> Result<(), Failure> {
        // SAFETY: as above.
        unsafe { options::write_sized("mcpconn_action", self, out) }
    }

    fn connect(attempt: mcp_budget::Attempt) -> Self {
        Self {
            struct_size: 0,
            kind: mcpconn_action_code::MCPCONN_ACTION_CONNECT as i32,
            attempt: attempt.number,
            generation: attempt.generation,
            at_ns: 0,
        }
    }

    fn nothing_before(at: Option<Timestamp>) -> Self {
        Self {
            struct_size: 0,
            kind: 0,
            attempt: 0,
            generation: 0,
            at_ns: at.map_or(u64::MAX, Timestamp::as_nanos),
        }
    }
}

fn cause(value: i32) -> Result<Cause, Failure> {
    Ok(match value {
        1 => Cause::Fatal,
        2 => Cause::Auth,
        3 => Cause::Permanent,
        4 => Cause::Transient,
        5 => Cause::Local,
        6 => Cause::Routine,
        other => {
            return Err(Failure::invalid(format!(
                "cause: {other} is no mcpconn_cause"
            )));
        }
    })
}

/// # Safety
///
/// `budget` must be NULL or a live budget that no other thread uses.
unsafe fn live<'a>(budget: *mut mcpconn_budget) -> Result<&'a mut Budget, Failure> {
    // SAFETY: as above.
    let budget = unsafe { budget.as_mut() }.ok_or_else(|| Failure::null("budget"))?;
    Ok(&mut budget.0)
}

/// [any] Makes a budget that nothing has happened to. seed spreads the delays: the same seed makes the same, so give
/// each server its own. policy_json is an object with any of these constants, or empty for the defaults; 0 is 0:
///
/// - max_retries: the charges that a server may bear; one more parks it. With 0 nothing is reconnected after a loss, and
///   only a wake tries again. Default 5.
/// - max_initial_retries: the same for a server that was never connected. Default 3.
/// - max_unproven: how many scoped sessions may be unproven at a time where no session was ever proven. Default 4.
/// - backoff_ms, backoff_max_ms: the first delay after a failure, and to what further ones double it. Default 1000 and
///   60000.
/// - backoff_max_proven_ms: to what they double it where nobody waits and the server cannot be parked, such as one that
///   proves itself and dies young. Default 300000.
/// - jitter_percent: by how much of itself each delay is moved up or down. Default 20.
/// - floor_ms: the least time between the starts of two attempts, whatever asked for them. Default 1000.
/// - healthy_after_ms: the age at which an unproven home session is probed, and an answer proves it. Default 180000.
/// - probe_deadline_ms: how long a probe may stay unanswered before the session is taken as lost. Default 20000.
/// - stable_after_ms: the life of a proven session that clears the delays of reconnects nobody waits for. Default 600000.
/// - park_probe_ms, park_probe_max_ms: from parking to the first probe, and to what failed ones double that. Default
///   300000 and 3600000.
/// - auth_probe_ms: between the probes of a server that was proven once and wants credentials. Default 3600000.
/// - not_before_max_ms: how long a server's wish to be left alone (Retry-After) is heeded. Default 3600000.
/// - keepalive_ms: the silence after which a session is pinged, or "never". Default 60000.
/// - check_spread_ms: over how long the checks are spread after the machine slept. Default 10000.
/// - breaker_failures, breaker_open_ms: how many calls in a row may time out before the server gets a rest, or 0 for no
///   such rest, and how long that is. Default 3 and 60000. A budget alone does not count calls.
///
/// Fails with MCPCONN_ERR_CONFIG if the policy cannot be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_budget_new(
    policy_json: mcpconn_str,
    seed: u64,
    out: *mut *mut mcpconn_budget,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            if out.is_null() {
                return Err(Failure::null("out"));
            }
            let policy = budget_policy(policy_json.read("policy_json")?)?;
            let budget = Box::new(mcpconn_budget(Budget::new(policy, seed)));
            give(out, Box::into_raw(budget));
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [one] Says what happened: what is a mcpconn_budget_word. generation names the session for those that are about one;
/// cause is a mcpconn_cause and not_before_ns the least time from now to the next attempt that the server asked for (0
/// for none), both for MCPCONN_BUDGET_LOST alone.
///
/// MCPCONN_EMPTY: that changed nothing, for it is about an old session. After MCPCONN_BUDGET_OPENED it means that nobody
/// wants the session any more: close it. Ask mcpconn_budget_next() afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_budget_tell(
    budget: *mut mcpconn_budget,
    now_ns: u64,
    what: i32,
    generation: u64,
    cause: i32,
    not_before_ns: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    use mcpconn_budget_word as Word;
    const WANTED: i32 = Word::MCPCONN_BUDGET_WANTED as i32;
    const CALLS_WAIT: i32 = Word::MCPCONN_BUDGET_CALLS_WAIT as i32;
    const NO_CALL_WAITS: i32 = Word::MCPCONN_BUDGET_NO_CALL_WAITS as i32;
    const CALL_REFUSED: i32 = Word::MCPCONN_BUDGET_CALL_REFUSED as i32;
    const WAKE: i32 = Word::MCPCONN_BUDGET_WAKE as i32;
    const OPENED: i32 = Word::MCPCONN_BUDGET_OPENED as i32;
    const PROVEN: i32 = Word::MCPCONN_BUDGET_PROVEN as i32;
    const LOST: i32 = Word::MCPCONN_BUDGET_LOST as i32;
    const CLOSED: i32 = Word::MCPCONN_BUDGET_CLOSED as i32;
    const STOP: i32 = Word::MCPCONN_BUDGET_STOP as i32;
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let budget = live(budget)?;
            let now = Timestamp::from_nanos(now_ns);
            let mut changed = true;
            match what {
                WANTED => budget.hold(now),
                CALLS_WAIT => budget.attend(now, true),
                NO_CALL_WAITS => budget.attend(now, false),
                CALL_REFUSED => budget.knock(now),
                WAKE => budget.wake(now),
                STOP => budget.stop(now, Reason::Shutdown),
                OPENED => changed = budget.opened(now, generation),
                PROVEN => changed = budget.proven(now, generation),
                CLOSED => changed = budget.closed(now, generation),
                LOST => {
                    let mut loss = Loss::new(self::cause(cause)?);
                    if not_before_ns != 0 {
                        loss = loss.not_before(Duration::from_nanos(not_before_ns));
                    }
                    changed = budget.lost(now, generation, loss);
                }
                other => {
                    return Err(Failure::invalid(format!(
                        "what: {other} is no mcpconn_budget_word"
                    )));
                }
            }
            Ok(Code::ok_or_empty(changed))
        })
    }
}

/// [one] What to do now; ask until MCPCONN_EMPTY, when out says when to ask again if nothing is told before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_budget_next(
    budget: *mut mcpconn_budget,
    now_ns: u64,
    out: *mut mcpconn_action,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            mcpconn_action::check(out)?;
            let budget = live(budget)?;
            let (action, code) = match budget.poll(Timestamp::from_nanos(now_ns)) {
                Some(Action::Connect(attempt)) => {
                    (mcpconn_action::connect(attempt), Code::MCPCONN_OK)
                }
                Some(Action::Probe { generation }) => {
                    let probe = mcpconn_action {
                        kind: mcpconn_action_code::MCPCONN_ACTION_PROBE as i32,
                        generation,
                        ..mcpconn_action::nothing_before(None)
                    };
                    (probe, Code::MCPCONN_OK)
                }
                None => (
                    mcpconn_action::nothing_before(budget.timeout()),
                    Code::MCPCONN_EMPTY,
                ),
            };
            action.write(out)?;
            Ok(code)
        })
    }
}

/// [one] Asks leave to open one session beside the home session now, as for a scope. MCPCONN_OK: out is an attempt, to be
/// told of as one of mcpconn_budget_next(). MCPCONN_EMPTY: not now, and out says when to ask again.
/// MCPCONN_ERR_PARKED: not before the server is woken, or, if out says a time, not before that. MCPCONN_ERR_CLOSED: never
/// again. out is written with all of these.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_budget_leave(
    budget: *mut mcpconn_budget,
    now_ns: u64,
    out: *mut mcpconn_action,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            mcpconn_action::check(out)?;
            let budget = live(budget)?;
            let (action, code) = match budget.leave(Timestamp::from_nanos(now_ns)) {
                Ok(attempt) => (mcpconn_action::connect(attempt), Code::MCPCONN_OK),
                Err(Refusal::Wait(at)) => (mcpconn_action::nothing_before(at), Code::MCPCONN_EMPTY),
                Err(Refusal::Parked(at)) => {
                    (mcpconn_action::nothing_before(at), Code::MCPCONN_ERR_PARKED)
                }
                Err(Refusal::Stopped) => (
                    mcpconn_action::nothing_before(None),
                    Code::MCPCONN_ERR_CLOSED,
                ),
            };
            action.write(out)?;
            Ok(code)
        })
    }
}

/// [one] Where it stands: state, reason, charges, attempt, sessions, generation and next_try_in_ms of out are written,
/// the rest is as if there were no process and no call. Begin out with MCPCONN_SERVER_INFO_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_budget_info(
    budget: *mut mcpconn_budget,
    now_ns: u64,
    out: *mut mcpconn_server_info,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            let budget = live(budget)?;
            let standing = budget.standing();
            let status = ServerStatus {
                state: standing.state,
                reason: standing.reason,
                charges: standing.charges,
                attempt: standing.attempt,
                generation: standing.generation,
                next_try: standing
                    .next_try
                    .map(|at| at.since(Timestamp::from_nanos(now_ns))),
                pid: None,
                sessions: u32::try_from(budget.open_scoped()).unwrap_or(u32::MAX),
                calls: 0,
                text: String::new(),
            };
            mcpconn_server_info::write(&status, out)?;
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [one] Frees it; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_budget_free(budget: *mut mcpconn_budget) {
    if !budget.is_null() {
        // SAFETY: a budget of ours that the host owns and gives back, by the contract of the header.
        fail::or((), || drop(unsafe { Box::from_raw(budget) }));
    }
}
