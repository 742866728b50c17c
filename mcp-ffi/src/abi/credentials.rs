//! What a server is shown so that it lets the client in.

use super::{
    client::{live, mcpconn_client},
    error::mcpconn_error,
    fail,
    status::{Code, mcpconn_status},
    str::mcpconn_str,
};

/// [any] Has a header shown to a remote server with every request of all its sessions from now on, in place of what its
/// configuration says under that name; the answer to a MCPCONN_EVENT_CREDENTIALS_NEEDED, and as well before a token
/// runs out. An empty value takes it back: what the configuration says is shown again. A server that is parked for want
/// of credentials is tried as soon as the least time between two attempts (floor_ms) allows.
///
/// The value is a secret: no log, error or event of this library has it. It is kept for the server as it is configured
/// now, and is forgotten with it: when what makes its connection is configured anew, or the server is removed.
///
/// Fails with MCPCONN_ERR_INVALID for what is no header, for one that is the library's own (Content-Type,
/// Mcp-Session-Id …) and for a server that is not remote; with MCPCONN_ERR_UNKNOWN_SERVER, MCPCONN_ERR_CONFIG for
/// a server whose entry is unusable, and MCPCONN_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_set_header(
    client: *const mcpconn_client,
    domain: mcpconn_str,
    server: mcpconn_str,
    name: mcpconn_str,
    value: mcpconn_str,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let client = live(client)?;
            client.set_header(
                domain.read("domain")?,
                server.read("server")?,
                name.read("name")?,
                value.read("value")?,
            )?;
            Ok(Code::MCPCONN_OK)
        })
    }
}
