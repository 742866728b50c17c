//! mcpconn_event: what happened.

use std::sync::OnceLock;

use super::{
    error::mcpconn_error,
    fail::{self, Failure, give},
    server::mcpconn_server_info,
    session::mcpconn_session_info,
    status::{Code, mcpconn_status},
    str::{CText, mcpconn_str},
};
use crate::client::{Event, EventKind, ListKind, LogLevel};

/// What happened. One that came from mcpconn_client_next_event() is the host's: it owns what it says, may be kept,
/// given to another thread and freed after its client, and goes through mcpconn_event_free(). One that a callback
/// was given is the library's and is gone when the callback returns. Every mcpconn_str got from it lives as long as
/// it does.
#[derive(Debug)]
pub struct mcpconn_event {
    pub(crate) event: Event,
    error: Option<mcpconn_error>,
    server: CText,
    domain: OnceLock<CText>,
    scope: OnceLock<CText>,
    method: OnceLock<CText>,
    /// What was dropped, as JSON.
    counts: OnceLock<CText>,
    /// Made at the first ask: the text of a result is as long as the result.
    text: OnceLock<CText>,
}

/// The kinds of events. Values may be added: a program ignores those that it does not know.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_event_code {
    /// A call was answered: mcpconn_event_json() has the result, mcpconn_event_text() its text. It ends the call.
    MCPCONN_EVENT_RESULT = 1,
    /// A call failed: mcpconn_event_error() has why. It ends the call.
    MCPCONN_EVENT_ERROR = 2,
    /// A call reports progress: mcpconn_event_json() has the params of the notification. A host that is slow to take
    /// them gets the newest.
    MCPCONN_EVENT_PROGRESS = 3,
    /// A server asks something of the host: mcpconn_event_method() says what, mcpconn_event_json() has the params. The
    /// host says mcpconn_client_answer() or mcpconn_client_refuse() to mcpconn_event_id(), at any time and from any
    /// thread, also from inside the callback. What it has not answered after five minutes is refused. Only what the
    /// host takes comes (host_takes of the client's options), and a 65th request of one session while 64 are open is
    /// refused at once.
    MCPCONN_EVENT_REQUEST = 4,
    /// Nobody waits any more for the answer to the request of this mcpconn_event_id(): the server cancelled it, its
    /// session ended, or its time is over; mcpconn_event_text() says which. It comes after its MCPCONN_EVENT_REQUEST, at
    /// most once, and never for a request that the host has answered; a request that was not taken yet is taken back
    /// without a word.
    MCPCONN_EVENT_REQUEST_WITHDRAWN = 5,
    /// A server wants credentials, or others than those it was shown: mcpconn_client_set_header() gives them.
    /// mcpconn_event_json() has what it asks for: an object with "status" (401 for credentials, 403
    /// for such with more rights, 0 if that is not known) and "challenges", an array of objects with the "scheme" of
    /// each and its parameters as they came ("realm", "scope", "resource_metadata", "error" …). It is the server's
    /// word.
    ///
    /// Said once, however many calls are refused, until the host gives something else or calls are answered again. The
    /// calls fail with MCPCONN_ERR_AUTH and the outcome MCPCONN_OUTCOME_REJECTED or MCPCONN_OUTCOME_NOT_SENT; they do
    /// not wait for the host, who makes them again. Only one whose refusal comes after new credentials were given is
    /// sent again by itself.
    MCPCONN_EVENT_CREDENTIALS_NEEDED = 6,
    /// A server changed its state: mcpconn_event_server_info() has it, mcpconn_event_text() says it for a person. Of
    /// one session a host that is slow to take them gets the newest. Of a server that another configuration replaced nothing
    /// more is told.
    MCPCONN_EVENT_SERVER_STATE = 7,
    /// A list of a server's is new: mcpconn_event_list() says which. The tools were asked for again and are in
    /// mcpconn_client_tools(); the others are for the host to list, resources standing for their templates too. Of one
    /// list a host that is slow to take them gets the newest, and a server that changes without rest is heard once in a
    /// while.
    MCPCONN_EVENT_CATALOGUE_CHANGED = 8,
    /// A resource that the host subscribed to (resources/subscribe) may have changed: mcpconn_event_json() has the
    /// params of the notification, with its "uri", which mcpconn_event_text() is.
    MCPCONN_EVENT_RESOURCE_UPDATED = 9,
    /// A server logs something: mcpconn_event_json() has the params of the notification ("level", "logger", "data"),
    /// mcpconn_event_text() logger and data for a person, mcpconn_event_log_level() how grave it is. Only for a host
    /// that takes it (MCPCONN_TAKES_LOGS); how much a server logs is asked for by the request logging/setLevel.
    MCPCONN_EVENT_LOG = 10,
    /// The host was slow, and the oldest of a server's log messages, resource updates and other notifications were
    /// dropped, of which at most 1,024 wait for each server: mcpconn_event_json() is an object that counts them ("logs",
    /// "resource_updates", "notifications"). It comes where they would have come.
    MCPCONN_EVENT_DROPPED = 11,
    /// The host is asked to open a link: mcpconn_event_link() has it, mcpconn_event_server() the server,
    /// mcpconn_event_json() what the configuration has for the host ("link" in the server's "mcpconn", else null).
    /// mcpconn_link says what follows.
    MCPCONN_EVENT_LINK_OPEN = 12,
    /// mcpconn_event_json() has bytes to write to a link, whole with the newline that ends each message, or one message
    /// with "framing": "message". Until the event is taken, the library may take it back. mcpconn_event_token() has what
    /// mcpconn_link_set_token() attached.
    MCPCONN_EVENT_LINK_SEND = 13,
    /// The host is asked to close a link, what was written before gone or not, and says mcpconn_link_closed() when it
    /// is done: whoever closes waits for that, within the close timeout. It is the last event of the link. It comes once
    /// for each link that the host was asked to open and has not said to be closed itself, and before
    /// MCPCONN_EVENT_CLOSED; but not where the client is freed without taking its events.
    MCPCONN_EVENT_LINK_CLOSE = 14,
    /// The client is closed. It is the last event.
    MCPCONN_EVENT_CLOSED = 15,
    /// Something happened to a scoped session: mcpconn_event_session_info() has what, mcpconn_event_text() says it for a
    /// person. It comes only to a host that takes it (MCPCONN_TAKES_SESSIONS). Of one session a host that is slow to take
    /// them gets the newest.
    MCPCONN_EVENT_SESSION = 16,
    /// Any other notification of a server: mcpconn_event_method() says which, mcpconn_event_json() has its params. Only
    /// for a host that takes them (MCPCONN_TAKES_NOTIFICATIONS); one that takes elicitation with a URL
    /// gets notifications/elicitation/complete without that.
    MCPCONN_EVENT_NOTIFICATION = 17,
    /// The link takes what comes from the server again, after mcpconn_link_received() answered MCPCONN_ERR_CAPACITY.
    MCPCONN_EVENT_LINK_RESUME = 18,
}

impl mcpconn_event {
    pub(crate) fn new(event: Event) -> Self {
        let error = match &event.kind {
            EventKind::Error(error) => Some(Failure::from(error.clone()).into()),
            _ => None,
        };
        Self {
            server: CText::new(&event.server),
            domain: OnceLock::new(),
            scope: OnceLock::new(),
            method: OnceLock::new(),
            counts: OnceLock::new(),
            text: OnceLock::new(),
            event,
            error,
        }
    }
}

/// # Safety
///
/// `event` must be NULL or a live event.
pub(crate) unsafe fn kind<'a>(event: *const mcpconn_event) -> Option<&'a EventKind> {
    // SAFETY: as above.
    unsafe { event.as_ref() }.map(|event| &event.event.kind)
}

/// [any] What happened, a mcpconn_event_code; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_kind(event: *const mcpconn_event) -> i32 {
    use mcpconn_event_code as C;
    // SAFETY: NULL or a live event, by the contract of the header.
    let Some(kind) = (unsafe { kind(event) }) else {
        return 0;
    };
    let kind = match kind {
        EventKind::Result(_) => C::MCPCONN_EVENT_RESULT,
        EventKind::Error(_) => C::MCPCONN_EVENT_ERROR,
        EventKind::Progress(_) => C::MCPCONN_EVENT_PROGRESS,
        EventKind::Request { .. } => C::MCPCONN_EVENT_REQUEST,
        EventKind::RequestWithdrawn(_) => C::MCPCONN_EVENT_REQUEST_WITHDRAWN,
        EventKind::CredentialsNeeded(_) => C::MCPCONN_EVENT_CREDENTIALS_NEEDED,
        EventKind::ServerState(_) => C::MCPCONN_EVENT_SERVER_STATE,
        EventKind::CatalogueChanged(_) => C::MCPCONN_EVENT_CATALOGUE_CHANGED,
        EventKind::ResourceUpdated(_) => C::MCPCONN_EVENT_RESOURCE_UPDATED,
        EventKind::Log(_) => C::MCPCONN_EVENT_LOG,
        EventKind::Dropped(_) => C::MCPCONN_EVENT_DROPPED,
        EventKind::Notification { .. } => C::MCPCONN_EVENT_NOTIFICATION,
        EventKind::LinkOpen(_) => C::MCPCONN_EVENT_LINK_OPEN,
        EventKind::LinkSend(..) => C::MCPCONN_EVENT_LINK_SEND,
        EventKind::LinkClose(_) => C::MCPCONN_EVENT_LINK_CLOSE,
        EventKind::LinkResume(_) => C::MCPCONN_EVENT_LINK_RESUME,
        EventKind::Session(_) => C::MCPCONN_EVENT_SESSION,
        EventKind::Closed => C::MCPCONN_EVENT_CLOSED,
    };
    kind as i32
}

/// [any] The token that the host gave the call or the link; 0 if the event is about neither.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_token(event: *const mcpconn_event) -> u64 {
    // SAFETY: NULL or a live event, by the contract of the header.
    unsafe { event.as_ref() }.map_or(0, |event| event.event.token)
}

/// [any] The id of the call, or of the server's request; 0 if the event is about neither.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_id(event: *const mcpconn_event) -> u64 {
    // SAFETY: NULL or a live event, by the contract of the header.
    unsafe { event.as_ref() }.map_or(0, |event| event.event.id)
}

/// [any] The name of the server that the event is about, with a NUL behind it; empty for the client itself and for a
/// call to all servers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_server(event: *const mcpconn_event) -> mcpconn_str {
    // SAFETY: NULL or a live event, by the contract of the header.
    unsafe { event.as_ref() }.map_or(mcpconn_str::EMPTY, |event| event.server.lend())
}

/// [any] The domain of that server, with a NUL behind it; empty for the client itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_domain(event: *const mcpconn_event) -> mcpconn_str {
    // SAFETY: NULL or a live event, by the contract of the header.
    unsafe { event.as_ref() }.map_or(mcpconn_str::EMPTY, |event| {
        let domain = || CText::new(&event.event.domain);
        event.domain.get_or_init(domain).lend()
    })
}

/// [any] The scope whose session the event is about, with a NUL behind it; empty for a home session and for the client
/// itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_scope(event: *const mcpconn_event) -> mcpconn_str {
    // SAFETY: NULL or a live event, by the contract of the header.
    unsafe { event.as_ref() }.map_or(mcpconn_str::EMPTY, |event| {
        let scope = || CText::new(event.event.scope.as_deref().unwrap_or_default());
        event.scope.get_or_init(scope).lend()
    })
}

/// [any] The method, with a NUL behind it, of a MCPCONN_EVENT_REQUEST ("roots/list", "sampling/createMessage" or
/// "elicitation/create") or MCPCONN_EVENT_NOTIFICATION; else empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_method(event: *const mcpconn_event) -> mcpconn_str {
    // SAFETY: NULL or a live event, by the contract of the header.
    let Some(event) = (unsafe { event.as_ref() }) else {
        return mcpconn_str::EMPTY;
    };
    let method = || {
        CText::new(match &event.event.kind {
            EventKind::Request { kind, .. } => kind.method(),
            EventKind::Notification { method, .. } => method,
            _ => "",
        })
    };
    event.method.get_or_init(method).lend()
}

/// [any] As JSON, the bytes that came: the result of a MCPCONN_EVENT_RESULT, or the params of what a server said
/// (progress, a request, a log message, a resource update, a notification), empty if there were none. What a
/// MCPCONN_EVENT_CREDENTIALS_NEEDED asks for, and the counts of a MCPCONN_EVENT_DROPPED. Of a MCPCONN_EVENT_LINK_OPEN
/// what the configuration has for the host, of a MCPCONN_EVENT_LINK_SEND what is to be written, which is JSON as long as
/// the link carries MCP. Else empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_json(event: *const mcpconn_event) -> mcpconn_str {
    // SAFETY: NULL or a live event, by the contract of the header.
    let Some(event) = (unsafe { event.as_ref() }) else {
        return mcpconn_str::EMPTY;
    };
    mcpconn_str::lend_bytes(match &event.event.kind {
        EventKind::Result(answer) => &answer.json,
        EventKind::Progress(params)
        | EventKind::ResourceUpdated(params)
        | EventKind::Request { params, .. }
        | EventKind::Notification { params, .. } => params,
        EventKind::Log(log) => &log.params,
        EventKind::CredentialsNeeded(needed) => needed.json(),
        EventKind::Dropped(dropped) => {
            let counts = event.counts.get_or_init(|| CText::new(&dropped.to_json()));
            return counts.lend();
        }
        EventKind::LinkOpen(link) => link.data().as_bytes(),
        EventKind::LinkSend(_, bytes) => bytes,
        _ => &[],
    })
}

/// [any] The event's text for a person: the text blocks of a tool's result joined with newlines, the message of an
/// error, the sentence of a server state, of a session or of a want of credentials, logger and data of a log message, the
/// URI of a resource update, why a request was withdrawn, what was dropped; else empty. It has a NUL behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_text(event: *const mcpconn_event) -> mcpconn_str {
    fail::or(mcpconn_str::EMPTY, || {
        // SAFETY: NULL or a live event, by the contract of the header.
        let Some(event) = (unsafe { event.as_ref() }) else {
            return mcpconn_str::EMPTY;
        };
        let text = || CText::new(&event.event.kind.text());
        let text = event.text.get_or_init(text);
        text.lend()
    })
}

/// The lists of a server.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_list_code {
    /// tools/list.
    MCPCONN_LIST_TOOLS = 1,
    /// resources/list.
    MCPCONN_LIST_RESOURCES = 2,
    /// resources/templates/list.
    MCPCONN_LIST_RESOURCE_TEMPLATES = 3,
    /// prompts/list.
    MCPCONN_LIST_PROMPTS = 4,
}

impl From<ListKind> for mcpconn_list_code {
    fn from(list: ListKind) -> Self {
        match list {
            ListKind::Tools => Self::MCPCONN_LIST_TOOLS,
            ListKind::Resources => Self::MCPCONN_LIST_RESOURCES,
            ListKind::ResourceTemplates => Self::MCPCONN_LIST_RESOURCE_TEMPLATES,
            ListKind::Prompts => Self::MCPCONN_LIST_PROMPTS,
        }
    }
}

/// [any] Which list is new, of a MCPCONN_EVENT_CATALOGUE_CHANGED, a mcpconn_list_code; else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_list(event: *const mcpconn_event) -> i32 {
    // SAFETY: NULL or a live event, by the contract of the header.
    match unsafe { kind(event) } {
        Some(EventKind::CatalogueChanged(list)) => mcpconn_list_code::from(*list) as i32,
        _ => 0,
    }
}

/// How grave a log message is, as in RFC 5424; the greater, the graver.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_log_level {
    /// Details for who looks for a fault.
    MCPCONN_LOG_DEBUG = 1,
    /// What is done.
    MCPCONN_LOG_INFO = 2,
    /// What is worth to be noticed, and normal.
    MCPCONN_LOG_NOTICE = 3,
    /// What may be wrong.
    MCPCONN_LOG_WARNING = 4,
    /// What went wrong.
    MCPCONN_LOG_ERROR = 5,
    /// A part of the server fails.
    MCPCONN_LOG_CRITICAL = 6,
    /// Somebody must do something now.
    MCPCONN_LOG_ALERT = 7,
    /// The server cannot be used.
    MCPCONN_LOG_EMERGENCY = 8,
}

impl From<LogLevel> for mcpconn_log_level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Debug => Self::MCPCONN_LOG_DEBUG,
            LogLevel::Info => Self::MCPCONN_LOG_INFO,
            LogLevel::Notice => Self::MCPCONN_LOG_NOTICE,
            LogLevel::Warning => Self::MCPCONN_LOG_WARNING,
            LogLevel::Error => Self::MCPCONN_LOG_ERROR,
            LogLevel::Critical => Self::MCPCONN_LOG_CRITICAL,
            LogLevel::Alert => Self::MCPCONN_LOG_ALERT,
            LogLevel::Emergency => Self::MCPCONN_LOG_EMERGENCY,
        }
    }
}

/// [any] How grave it is, of a MCPCONN_EVENT_LOG, a mcpconn_log_level; 0 if the server says nothing that MCP knows, and
/// for any other event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_log_level(event: *const mcpconn_event) -> i32 {
    // SAFETY: NULL or a live event, by the contract of the header.
    match unsafe { kind(event) } {
        Some(EventKind::Log(log)) => log
            .level()
            .map_or(0, |level| mcpconn_log_level::from(level) as i32),
        _ => 0,
    }
}

/// [any] 1 if the event is the result of a tool that says that it failed (`isError`), else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_is_tool_error(event: *const mcpconn_event) -> i32 {
    // SAFETY: NULL or a live event, by the contract of the header.
    match unsafe { kind(event) } {
        Some(EventKind::Result(answer)) => i32::from(answer.is_tool_error()),
        _ => 0,
    }
}

/// [any] Which session of the server answered, or a MCPCONN_EVENT_SESSION is about, counted from 1 since the server was
/// configured or what makes its connection changed; 0 for other events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_generation(event: *const mcpconn_event) -> u64 {
    // SAFETY: NULL or a live event, by the contract of the header.
    match unsafe { kind(event) } {
        Some(EventKind::Result(answer)) => answer.generation,
        Some(EventKind::Session(news)) => news.generation,
        _ => 0,
    }
}

/// [any] 1 if the session was replaced during the call that this result answers: what the server kept for it is
/// gone. Else 0, also if it was replaced before the call: a host that relies on what a server keeps compares
/// mcpconn_event_generation() with that of the call before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_session_replaced(event: *const mcpconn_event) -> i32 {
    // SAFETY: NULL or a live event, by the contract of the header.
    match unsafe { kind(event) } {
        Some(EventKind::Result(answer)) => i32::from(answer.replaced),
        _ => 0,
    }
}

/// [any] Why the call failed; NULL if the event is no MCPCONN_EVENT_ERROR. It lives as long as the event and is not
/// to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_error(event: *const mcpconn_event) -> *const mcpconn_error {
    // SAFETY: NULL or a live event, by the contract of the header.
    let error = unsafe { event.as_ref() }.and_then(|event| event.error.as_ref());
    error.map_or(std::ptr::null(), |error| error)
}

/// [any] How it stands with the server, of a MCPCONN_EVENT_SERVER_STATE; MCPCONN_EMPTY if it is none. Begin out with
/// MCPCONN_SERVER_INFO_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_server_info(
    event: *const mcpconn_event,
    out: *mut mcpconn_server_info,
) -> mcpconn_status {
    // SAFETY: the error is not asked for.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            // SAFETY: NULL or a live event, by the contract of the header.
            match kind(event) {
                Some(EventKind::ServerState(status)) => {
                    // SAFETY: NULL or a struct of the host's, by the contract of the header.
                    mcpconn_server_info::write(status, out).map(|()| Code::MCPCONN_OK)
                }
                _ => Ok(Code::MCPCONN_EMPTY),
            }
        })
    }
}

/// [any] What happened to which session, of a MCPCONN_EVENT_SESSION; MCPCONN_EMPTY if it is none. Begin out with
/// MCPCONN_SESSION_INFO_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_session_info(
    event: *const mcpconn_event,
    out: *mut mcpconn_session_info,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            let Some(EventKind::Session(news)) = kind(event) else {
                return Ok(Code::MCPCONN_EMPTY);
            };
            mcpconn_session_info::write(news, out)?;
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] Frees an event that came from mcpconn_client_next_event(), before or after its client; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_free(event: *mut mcpconn_event) {
    if !event.is_null() {
        // SAFETY: an event of ours that the host owns and gives back, by the contract of the header.
        fail::or((), || drop(unsafe { Box::from_raw(event) }));
    }
}

/// Hands an event to the host.
///
/// # Safety
///
/// `out` must be valid for a write.
pub(crate) unsafe fn hand_out(event: Event, out: *mut *mut mcpconn_event) {
    // SAFETY: the caller vouches for `out`.
    unsafe { give(out, Box::into_raw(Box::new(mcpconn_event::new(event)))) };
}
