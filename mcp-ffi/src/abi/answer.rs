//! What the host answers to the requests of servers.

use super::{
    client::{live, mcpconn_client},
    error::mcpconn_error,
    fail,
    status::{Code, mcpconn_status},
    str::mcpconn_str,
};

/// [any] Answers a request of a server, the mcpconn_event_id() of a MCPCONN_EVENT_REQUEST. result_json is an object of
/// the shape that MCP gives the method's result; it is sent as it is.
///
/// MCPCONN_OK: this is the request's one answer. MCPCONN_EMPTY: no such request is open (any more): it was answered or
/// refused before, or nobody waits for it. Fails with MCPCONN_ERR_INVALID if result_json is no JSON object; the request
/// then stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_answer(
    client: *const mcpconn_client,
    request_id: u64,
    result_json: mcpconn_str,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let result = result_json.read("result_json")?;
            Ok(Code::ok_or_empty(live(client)?.answer(request_id, result)?))
        })
    }
}

/// [any] Answers a request of a server with an error of JSON-RPC: code, such as -1 for "the user rejected it" or -32603
/// for "it failed", and message, which the server is told. Statuses as of mcpconn_client_answer().
///
/// A user who declines an elicitation is no error: answer it with {"action": "decline"}.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_refuse(
    client: *const mcpconn_client,
    request_id: u64,
    code: i32,
    message: mcpconn_str,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let message = message.read("message")?;
            Ok(Code::ok_or_empty(
                live(client)?.refuse(request_id, code, message),
            ))
        })
    }
}

/// [any] The host's roots have changed: every open session of every server is told, and may ask for them anew. For a
/// host that takes roots (MCPCONN_TAKES_ROOTS).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_roots_changed(
    client: *const mcpconn_client,
) -> mcpconn_status {
    // SAFETY: NULL or a live client, by the contract of the header.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            live(client)?.roots_changed();
            Ok(Code::MCPCONN_OK)
        })
    }
}
