//! How it stands with everything of a client, for a status page.

use super::{
    client::{live, mcpconn_client},
    error::mcpconn_error,
    fail::{self, Failure, give},
    status::{Code, mcpconn_status},
    text::mcpconn_text,
};

/// [any] How it stands with everything of the client now, as a JSON object for a status page. It asks no server, looks at
/// every session, and holds no secret of the configuration. out goes through mcpconn_text_free(). Times are whole
/// milliseconds; what is not there is null; members may be added.
///
/// "servers": every configured server, by domain and name: "domain", "server"; "state" ("idle", "connecting", "unproven",
/// "proven", "waiting", "parked", "stopped") and "reason" (a mcpconn_reason in lower case, such as "never_connected"; or
/// "invalid" of a server whose entry is not usable); "charges", "attempt", "generation", "sessions" and "calls" as in
/// mcpconn_server_info; "next_try_in_ms": how long from now it is tried again; "pid" of the home session; "text": one line
/// for a person.
///
/// "sessions": every scoped session, oldest first: "session_id", for mcpconn_client_close_session();
/// "domain", "server", "scope"; "generation", null until it has opened; "state" ("waiting" for a slot, "opening", "live",
/// "draining"); "calls" in flight, or, until it has opened, those that wait for it; "queued_calls": those that wait for a
/// place on it; "idle_ms": how long no call has been in flight, null while one is; "age_ms", null until it has opened.
///
/// "pool": "capacity" in sessions, "live" ones, "busy" and "draining" ones among these; "opening" and "waiting": sessions
/// on their way; "queued_calls"; "closing": closings under way; and "tally" since the client was made: calls that found
/// a session ("reused") or one that was being opened ("joined"); sessions that "opened", openings that "failed", and those
/// "abandoned" for nobody waited any more; calls "refused" because every slot was busy, or "saturated" because their
/// session had all the calls it may have; calls that "waited" for either; sessions that were "displaced" by a new one,
/// "idle_too_long", of "lifetime_over", "lost", "closed" or "drained" by the host or "reconfigured"; and closings that were
/// given up at the limit, "overdue".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_status(
    client: *const mcpconn_client,
    out: *mut *mut mcpconn_text,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let client = live(client)?;
            if out.is_null() {
                return Err(Failure::null("out"));
            }
            give(out, mcpconn_text::new(&client.status().to_json()));
            Ok(Code::MCPCONN_OK)
        })
    }
}
