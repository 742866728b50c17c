//! Calls: tools, listing them, and cancelling.

use super::{
    client::{duration, live, mcpconn_client},
    error::mcpconn_error,
    event::mcpconn_list_code,
    fail::{self, Failure, give},
    host::Listener,
    options::{self, mcpconn_call_options},
    scope::{mcpconn_scope, scope_or_home},
    status::{Code, mcpconn_status},
    str::mcpconn_str,
    text::mcpconn_text,
};
use crate::client::{CallOptions, ListKind, PreparedCall};

/// # Safety
///
/// As for [`options::read`].
unsafe fn call_options(options: *const mcpconn_call_options) -> Result<CallOptions, Failure> {
    // SAFETY: as above.
    let options = unsafe { options::read(options) }?;
    let listener = Listener::new(options.on_event, options.user_data, options.free_user_data);
    let mut made = CallOptions {
        token: options.token,
        progress: options.progress != 0,
        same_session: options.same_session != 0,
        context: listener.into_context(),
        ..CallOptions::default()
    };
    if options.timeout_ms != 0 {
        made.timeout = duration(options.timeout_ms);
    }
    if options.idle_timeout_ms != 0 {
        made.idle_timeout = duration(options.idle_timeout_ms);
    }
    Ok(made)
}

fn list_of(code: i32) -> Result<ListKind, Failure> {
    use ListKind::{Prompts, ResourceTemplates, Resources, Tools};
    [Tools, Resources, ResourceTemplates, Prompts]
        .into_iter()
        .find(|list| mcpconn_list_code::from(*list) as i32 == code)
        .ok_or_else(|| Failure::invalid(format!("list: {code} is no mcpconn_list_code")))
}

/// Starts a call whose id the host knows before the first event can come.
///
/// # Safety
///
/// `id` must be NULL or valid for a write.
unsafe fn start(call: PreparedCall, id: *mut u64) -> Code {
    if !id.is_null() {
        // SAFETY: as above.
        unsafe { give(id, call.id()) };
    }
    call.start();
    Code::MCPCONN_OK
}

/// [any] Calls a tool. It returns at once; the call ends with exactly one MCPCONN_EVENT_RESULT or MCPCONN_EVENT_ERROR.
///
/// scope: whose session is used; NULL is the home session of the domain "deployment", which all calls without a scope
/// share. server: its name in the configuration; empty if tool is a name of mcpconn_client_tools(), which tells the
/// server too. arguments_json: an object, or empty for none; it is sent as it is. options may be NULL. id, unless NULL,
/// gets the call's id, before its first event can come.
///
/// A server that is not connected is connected first. If that fails, every call that waits for it fails with its error;
/// a call that comes while the server is waiting for its next attempt waits for it, or fails with MCPCONN_ERR_WAITING if
/// its own deadline is sooner. Two attempts of a server that has not proved itself begin at least a second apart
/// (floor_ms), and at most four of its sessions (max_unproven) are open at a time before one of them has answered a call:
/// further scopes wait for that within their deadlines. A short first call, or one without a scope, spares them that.
///
/// Fails at once, without an event, with MCPCONN_ERR_INVALID for an argument that is not what it must be,
/// MCPCONN_ERR_UNKNOWN_SERVER, MCPCONN_ERR_CAPACITY if 4096 calls are in flight or wait for their last event to be
/// taken, and MCPCONN_ERR_CLOSED. A tool that the server does not know is told by the server, in an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_call_tool(
    client: *const mcpconn_client,
    scope: *const mcpconn_scope,
    server: mcpconn_str,
    tool: mcpconn_str,
    arguments_json: mcpconn_str,
    options: *const mcpconn_call_options,
    id: *mut u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let options = call_options(options)?;
            let call = live(client)?.prepare_tool_call(
                &scope_or_home(scope),
                server.read("server")?,
                tool.read("tool")?,
                arguments_json.read("arguments_json")?,
                options,
            )?;
            Ok(start(call, id))
        })
    }
}

/// [any] Sends a request of any method but those that are the client's own ("initialize"): resources/read, prompts/get,
/// resources/subscribe, completion/complete, logging/setLevel (the messages come to a host that takes them,
/// MCPCONN_TAKES_LOGS), tools/list with a cursor, and what a server has of its own. It returns at once; the call ends with exactly one MCPCONN_EVENT_RESULT, whose JSON is the result as it came, or
/// MCPCONN_EVENT_ERROR. params_json: an object, or empty for none; it is sent as it is. The rest as of
/// mcpconn_client_call_tool().
///
/// Subscriptions to resources and the log level of a home session outlive it: a new one is asked for them again, with a
/// MCPCONN_EVENT_RESOURCE_UPDATED for each, and while a subscription stands, the home session is opened again whenever
/// it is lost. Those of a scoped session go with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_request(
    client: *const mcpconn_client,
    scope: *const mcpconn_scope,
    server: mcpconn_str,
    method: mcpconn_str,
    params_json: mcpconn_str,
    options: *const mcpconn_call_options,
    id: *mut u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let options = call_options(options)?;
            let call = live(client)?.prepare_request(
                &scope_or_home(scope),
                server.read("server")?,
                method.read("method")?,
                params_json.read("params_json")?,
                options,
            )?;
            Ok(start(call, id))
        })
    }
}

/// [any] Asks a server for one of its lists, a mcpconn_list_code, page by page to its end. It returns at once; the call
/// ends with exactly one MCPCONN_EVENT_RESULT, whose JSON is an array of the items as they came and whose text is one
/// line an item, or MCPCONN_EVENT_ERROR. An item without what names it is left out, and takes no other along. A server
/// that does not know the method has none: the array is empty. The rest as of mcpconn_client_call_tool().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_list(
    client: *const mcpconn_client,
    scope: *const mcpconn_scope,
    server: mcpconn_str,
    list: i32,
    options: *const mcpconn_call_options,
    id: *mut u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let options = call_options(options)?;
            let call = live(client)?.prepare_list(
                &scope_or_home(scope),
                server.read("server")?,
                list_of(list)?,
                options,
            )?;
            Ok(start(call, id))
        })
    }
}

/// [any] Sends a notification on the session of this scope (NULL: the home session) that is open now; it has no answer,
/// and may still be lost with the connection. params_json: an object, or empty for none; it is sent as it is.
///
/// MCPCONN_EMPTY: no session is open, and none is opened for it. Fails with MCPCONN_ERR_INVALID for an argument that is
/// not what it must be and for those that are the client's own ("notifications/initialized",
/// "notifications/cancelled"), with MCPCONN_ERR_UNKNOWN_SERVER, and with MCPCONN_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_notify(
    client: *const mcpconn_client,
    scope: *const mcpconn_scope,
    server: mcpconn_str,
    method: mcpconn_str,
    params_json: mcpconn_str,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let sent = live(client)?.notify(
                &scope_or_home(scope),
                server.read("server")?,
                method.read("method")?,
                params_json.read("params_json")?,
            )?;
            Ok(Code::ok_or_empty(sent))
        })
    }
}

/// [any] Asks a server for its tools, connecting to it if need be; an empty server asks every server of the domain. It
/// returns at once; the call ends with exactly one MCPCONN_EVENT_RESULT, whose JSON is that of mcpconn_client_tools()
/// and whose text is one line a tool, or, for a single server, with MCPCONN_EVENT_ERROR if it cannot be had.
///
/// Fails at once as mcpconn_client_call_tool() does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_list_tools(
    client: *const mcpconn_client,
    domain: mcpconn_str,
    server: mcpconn_str,
    options: *const mcpconn_call_options,
    id: *mut u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let options = call_options(options)?;
            let call = live(client)?.prepare_list_tools(
                domain.read("domain")?,
                server.read("server")?,
                options,
            )?;
            Ok(start(call, id))
        })
    }
}

/// [any] The tools of a domain's servers that are known now, as one JSON array ready for a model: each has "name" (of
/// letters, digits, _ and -, at most 64; it depends on server and tool alone), "description" and "input_schema". It
/// asks no server. The names go to mcpconn_client_call_tool() as they are, with an empty server.
///
/// missing, unless NULL, gets a JSON array with an object for each server whose tools are not in it: "server", "state"
/// and "message". Both go through mcpconn_text_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_tools(
    client: *const mcpconn_client,
    domain: mcpconn_str,
    tools: *mut *mut mcpconn_text,
    missing: *mut *mut mcpconn_text,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            if tools.is_null() {
                return Err(Failure::null("tools"));
            }
            let known = live(client)?.tools(domain.read("domain")?)?;
            give(tools, mcpconn_text::new(&known.tools));
            if !missing.is_null() {
                give(missing, mcpconn_text::new(&known.missing));
            }
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] Asks for the end of a call. It completes nothing itself: the call's one completion tells whether the cancel or
/// the answer came first. MCPCONN_EMPTY: no such call is in flight (any more).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_cancel(
    client: *const mcpconn_client,
    id: u64,
) -> mcpconn_status {
    // SAFETY: NULL or a live client, by the contract of the header.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            Ok(Code::ok_or_empty(live(client)?.cancel(id)))
        })
    }
}
