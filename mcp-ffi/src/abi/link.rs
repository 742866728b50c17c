//! mcpconn_link: servers whose bytes the host moves.

use std::{ffi::c_void, slice};

use super::{
    event::mcpconn_event,
    fail::{self, Failure, give},
    status::{Code, mcpconn_status},
    str::{CText, mcpconn_str},
};
use crate::client::{EventKind, Kind, Link};

/// A link to a server, whose bytes the host moves. It carries one session: a lost one is followed by another link, by
/// the rules by which any server is opened anew, and each scope has its own.
///
/// 1. MCPCONN_EVENT_LINK_OPEN asks for it. The host takes the handle by mcpconn_event_link(), attaches what it knows the
///    link by with mcpconn_link_set_token(), connects, and says mcpconn_link_opened(), at once or later; or
///    mcpconn_link_closed() with the reason.
/// 2. Each MCPCONN_EVENT_LINK_SEND has bytes to write. mcpconn_link_sent() says that they have gone: all, or as many
///    as have. Bytes that came are given to mcpconn_link_received().
/// 3. The link ends by mcpconn_link_closed(), the host's word that it is closed: when it broke, or as the answer to
///    MCPCONN_EVENT_LINK_CLOSE. Then mcpconn_link_free() gives the handle back.
///
/// A host with a socket for each link, which it polls beside mcpconn_client_fd(), takes events like this:
///
///   case MCPCONN_EVENT_LINK_OPEN:
///     conn = connect_to(mcpconn_event_json(event));
///     mcpconn_event_link(event, &conn->link);
///     mcpconn_link_set_token(conn->link, (uint64_t)(uintptr_t)conn);
///     mcpconn_link_opened(conn->link);
///     break;
///   case MCPCONN_EVENT_LINK_SEND:
///     conn = (struct conn *)(uintptr_t)mcpconn_event_token(event);
///     bytes = mcpconn_event_json(event);
///     write_all(conn->fd, bytes.ptr, bytes.len);
///     mcpconn_link_sent(conn->link, bytes.len);
///     break;
///   case MCPCONN_EVENT_LINK_CLOSE:
///     conn = (struct conn *)(uintptr_t)mcpconn_event_token(event);
///     close(conn->fd);
///     mcpconn_link_closed(conn->link, MCPCONN_OK, mcpconn_cstr(""));
///     mcpconn_link_free(conn->link);
///     free(conn);
///     break;
///
/// and gives what it reads to mcpconn_link_received(); at the end of the stream it closes and frees as above. After
/// mcpconn_link_closed() no event of the link is given any more. The library sends over a link on its own too (the
/// handshake, the list of tools): a link works only while the host takes events.
///
/// A handle is the host's until it is freed, whatever becomes of link and client: when the link is over, or the client
/// is freed, each function answers MCPCONN_ERR_CLOSED and does nothing, from whichever thread it comes, and late bytes
/// touch no other link.
#[derive(Debug)]
pub struct mcpconn_link {
    link: Link,
    server: CText,
    domain: CText,
    scope: CText,
}

impl mcpconn_link {
    fn new(link: &Link) -> Self {
        Self {
            server: CText::new(link.server()),
            domain: CText::new(link.domain()),
            scope: CText::new(link.scope().unwrap_or_default()),
            link: link.clone(),
        }
    }
}

/// The link behind a handle, if it can be used here.
///
/// # Safety
///
/// `link` must be NULL or a live handle.
unsafe fn live<'a>(link: *const mcpconn_link) -> Result<&'a Link, Failure> {
    // SAFETY: as above.
    let link = &unsafe { link.as_ref() }
        .ok_or_else(|| Failure::null("link"))?
        .link;
    if link.process() != std::process::id() {
        return Err(Failure::forked());
    }
    Ok(link)
}

/// Says something of a link.
///
/// # Safety
///
/// `link` must be NULL or a live handle.
unsafe fn say(
    link: *const mcpconn_link,
    what: impl FnOnce(&Link) -> Result<(), Failure>,
) -> mcpconn_status {
    // SAFETY: the error is not asked for, and the caller vouches for the link.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            what(live(link)?)?;
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] A handle to the link that the event is about, of any MCPCONN_EVENT_LINK_*; MCPCONN_EMPTY, and out is left as it
/// was, if it is about none. The handle is the host's, outlives the event, and goes through mcpconn_link_free(); one is
/// enough, got from MCPCONN_EVENT_LINK_OPEN, and another one is of the same link.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_event_link(
    event: *const mcpconn_event,
    out: *mut *mut mcpconn_link,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            if out.is_null() {
                return Err(Failure::null("out"));
            }
            let event = event.as_ref().ok_or_else(|| Failure::null("event"))?;
            let link = match &event.event.kind {
                EventKind::LinkOpen(link)
                | EventKind::LinkSend(link, _)
                | EventKind::LinkClose(link)
                | EventKind::LinkResume(link) => link,
                _ => return Ok(Code::MCPCONN_EMPTY),
            };
            give(out, Box::into_raw(Box::new(mcpconn_link::new(link))));
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] The name of the server, with a NUL behind it; empty for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_link_server(link: *const mcpconn_link) -> mcpconn_str {
    // SAFETY: NULL or a live link, by the contract of the header.
    unsafe { link.as_ref() }.map_or(mcpconn_str::EMPTY, |link| link.server.lend())
}

/// [any] The domain that the server is configured in, with a NUL behind it; empty for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_link_domain(link: *const mcpconn_link) -> mcpconn_str {
    // SAFETY: NULL or a live link, by the contract of the header.
    unsafe { link.as_ref() }.map_or(mcpconn_str::EMPTY, |link| link.domain.lend())
}

/// [any] The scope whose session the link carries, with a NUL behind it; empty for the home session, and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_link_scope(link: *const mcpconn_link) -> mcpconn_str {
    // SAFETY: NULL or a live link, by the contract of the header.
    unsafe { link.as_ref() }.map_or(mcpconn_str::EMPTY, |link| link.scope.lend())
}

/// [any] Which session of the server the link carries, counted from 1; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_link_generation(link: *const mcpconn_link) -> u64 {
    // SAFETY: NULL or a live link, by the contract of the header.
    unsafe { link.as_ref() }.map_or(0, |link| link.link.generation())
}

/// [any] Attaches a number of the host's own, an index or a pointer: mcpconn_event_token() has it in each event of the
/// link that is taken from now on. 0 until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_link_set_token(
    link: *const mcpconn_link,
    token: u64,
) -> mcpconn_status {
    // SAFETY: NULL or a live link, by the contract of the header.
    unsafe {
        say(link, |link| {
            link.set_token(token);
            Ok(())
        })
    }
}

/// [any] Says that the link is open: what is to be sent comes from now on. Bytes may come from the server before that.
/// Said again, it changes nothing. While it is not said, the connect timeout of the server runs, by default 60 s.
///
/// MCPCONN_ERR_CLOSED: the link is over, or MCPCONN_EVENT_LINK_CLOSE has asked for its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_link_opened(link: *const mcpconn_link) -> mcpconn_status {
    // SAFETY: NULL or a live link, by the contract of the header.
    unsafe { say(link, |link| Ok(link.opened()?)) }
}

/// [any] Gives what came from the server, which is read during the call. With "framing": "line", the default, these
/// are bytes of a stream of lines and may be cut anywhere; with "message", each call gives one whole message. Bytes of
/// one link must come in order, so from one thread at a time. What is no message is skipped and counted.
///
/// MCPCONN_ERR_CAPACITY: nothing was taken, because what came before still waits for the host to take its events; give
/// the same again after MCPCONN_EVENT_LINK_RESUME. MCPCONN_ERR_CLOSED: as for mcpconn_link_opened().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_link_received(
    link: *const mcpconn_link,
    bytes: *const c_void,
    len: usize,
) -> mcpconn_status {
    let given = |link: &Link| {
        let bytes = if len == 0 {
            &[]
        } else if bytes.is_null() {
            return Err(Failure::null("bytes"));
        } else if len > isize::MAX as usize {
            let message = format!("len is {len}, more than memory can hold");
            return Err(Failure::invalid(message));
        } else {
            // SAFETY: not NULL, and the host vouches for the length, which is not more than isize::MAX.
            unsafe { slice::from_raw_parts(bytes.cast::<u8>(), len) }
        };
        Ok(link.received(bytes)?)
    };
    // SAFETY: NULL or a live link, by the contract of the header.
    unsafe { say(link, given) }
}

/// [any] Says that so many bytes more have gone to the server, of those that the events MCPCONN_EVENT_LINK_SEND had. It
/// is to be said as soon as it is so: while more than 64 KiB have not gone, no further event comes, and the calls to
/// this server wait, and no other's. It also decides what is known of a call when the link breaks: one whose bytes had
/// not all gone was not sent, and may be sent again over another link.
///
/// MCPCONN_ERR_INVALID: there are not so many that have not gone, and nothing was counted. MCPCONN_ERR_CLOSED: the link
/// is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_link_sent(
    link: *const mcpconn_link,
    bytes: u64,
) -> mcpconn_status {
    // SAFETY: NULL or a live link, by the contract of the header.
    unsafe { say(link, |link| Ok(link.sent(bytes)?)) }
}

/// [any] Says that the link is closed, or could not be opened: the last word about it. What was received before is
/// heard first. text says why, for a person, and may be empty. why says what that means for the next link:
///
/// - MCPCONN_OK: it ended in good order, as idle connections do. A server that has proved itself is opened again when it
///   is needed.
/// - MCPCONN_ERR_TRANSPORT, or any other status but these: it broke, or did not come about, and is tried again within the
///   server's budget.
/// - MCPCONN_ERR_LOCAL: this side lacks something. It is tried again, and not held against the server.
/// - MCPCONN_ERR_CONFIG, MCPCONN_ERR_PROTOCOL: trying again cannot help. MCPCONN_ERR_AUTH: credentials are needed.
///
/// As the answer to MCPCONN_EVENT_LINK_CLOSE it may be any of them. MCPCONN_ERR_INVALID: why is no status, or text no
/// UTF-8, and nothing happened. MCPCONN_ERR_CLOSED: the link is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_link_closed(
    link: *const mcpconn_link,
    why: mcpconn_status,
    text: mcpconn_str,
) -> mcpconn_status {
    let closed = |link: &Link| {
        let why = reason(why)?;
        // SAFETY: the host vouches for the text, by the contract of the header.
        let text = unsafe { text.read("text") }?;
        Ok(link.closed(why, text)?)
    };
    // SAFETY: NULL or a live link, by the contract of the header.
    unsafe { say(link, closed) }
}

fn reason(why: mcpconn_status) -> Result<Option<Kind>, Failure> {
    const OK: i32 = Code::MCPCONN_OK as i32;
    const CONFIG: i32 = Code::MCPCONN_ERR_CONFIG as i32;
    const PROTOCOL: i32 = Code::MCPCONN_ERR_PROTOCOL as i32;
    const AUTH: i32 = Code::MCPCONN_ERR_AUTH as i32;
    const LOCAL: i32 = Code::MCPCONN_ERR_LOCAL as i32;
    const TIMEOUT: i32 = Code::MCPCONN_ERR_TIMEOUT as i32;
    const FIRST: i32 = Code::MCPCONN_ERR_INVALID as i32;
    const LAST: i32 = Code::MCPCONN_ERR_WAITING as i32;
    Ok(match why {
        OK => None,
        CONFIG => Some(Kind::Config),
        PROTOCOL => Some(Kind::Protocol),
        AUTH => Some(Kind::Auth),
        LOCAL => Some(Kind::Local),
        TIMEOUT => Some(Kind::Timeout),
        LAST..=FIRST => Some(Kind::Transport),
        _ => {
            let message = format!("why is {why}, which is neither MCPCONN_OK nor an error");
            return Err(Failure::invalid(message));
        }
    })
}

/// [any] Frees the handle, before or after the client, and closes nothing: a link whose last handle is freed without
/// mcpconn_link_closed() stays open until it times out. NULL is fine, and in a forked child it is fine too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_link_free(link: *mut mcpconn_link) {
    if !link.is_null() {
        // SAFETY: a link of ours that the host owns and gives back, by the contract of the header.
        fail::or((), || drop(unsafe { Box::from_raw(link) }));
    }
}
