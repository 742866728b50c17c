//! The handshake of the revisions up to 2025-11-25.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::{
    error::{Cause, Error, ErrorKind},
    jsonrpc,
    revision::Revision,
    text,
};

use super::{Link, Request, RequestOptions, SessionOptions};

/// What the server said of itself.
#[cfg_attr(test, derive(Debug))]
pub(super) struct Info {
    pub(super) revision: Revision,
    pub(super) server_info: Bytes,
    pub(super) capabilities: Bytes,
    pub(super) instructions: Option<String>,
}

/// Connects, and runs the handshake to its end or to the deadline.
pub(super) async fn run(link: &Arc<Link>, options: &SessionOptions) -> Result<Info, Error> {
    let begun = Instant::now();
    let deadline = options.connect_deadline;
    let within = || text::seconds(deadline.saturating_duration_since(begun));
    let mut started = link.transport.start(link.router.clone());
    // Not dropped before the transport was asked what it was about.
    match timeout_at(deadline, &mut started).await {
        Ok(started) => started?,
        Err(_) => {
            let mut message = format!("the connection was not made within {}", within());
            message.extend(link.transport.diagnosis().map(|seen| format!("; {seen}")));
            return Err(Error::new(ErrorKind::Timeout, message));
        }
    }
    // `initialize` is the one request that must never be cancelled.
    let params = initialize_params(options, &link.router.open.offers().capabilities());
    let mut call = Request::begin(
        link.clone(),
        "initialize",
        Some(&params),
        RequestOptions::default(),
        false,
    )?;
    let answer = match timeout_at(deadline, call.answer()).await {
        Ok(answer) => answer.map_err(refused)?,
        Err(_) => {
            let mut message = format!("the server did not answer `initialize` within {}", within());
            for seen in [link.router.describe_malformed(), link.transport.diagnosis()] {
                message.extend(seen.map(|seen| format!("; {seen}")));
            }
            return Err(Error::new(ErrorKind::Timeout, message));
        }
    };
    let info = read(&answer)?;
    link.transport.negotiated(info.revision);
    link.notify("notifications/initialized", None)?;
    Ok(info)
}

fn initialize_params(options: &SessionOptions, capabilities: &[u8]) -> Bytes {
    let mut params = BytesMut::with_capacity(256);
    params.put_slice(b"{\"protocolVersion\":");
    jsonrpc::put_string(&mut params, Revision::OFFERED.as_str());
    params.put_slice(b",\"capabilities\":");
    params.put_slice(capabilities);
    params.put_slice(b",\"clientInfo\":{\"name\":");
    jsonrpc::put_string(&mut params, &options.client_name);
    params.put_slice(b",\"version\":");
    jsonrpc::put_string(&mut params, &options.client_version);
    params.put_slice(b"}}");
    params.freeze()
}

/// A server that does not know `initialize`, or refuses what we offer, will not do otherwise next time.
fn refused(mut error: Error) -> Error {
    if let Some(rpc) = &error.rpc {
        error.message = format!("the server refused `initialize`: {}", error.message);
        if matches!(rpc.code, -32602..=-32600) {
            error.cause = Cause::Permanent;
        }
    }
    error
}

/// Reads the result of `initialize`.
fn read(answer: &Bytes) -> Result<Info, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer<'a> {
        protocol_version: String,
        #[serde(borrow, default)]
        capabilities: Option<&'a RawValue>,
        #[serde(borrow, default)]
        server_info: Option<&'a RawValue>,
        #[serde(default)]
        instructions: Option<String>,
    }
    let read: Answer<'_> = serde_json::from_slice(answer).map_err(|e| {
        let message = format!("the server's answer to `initialize` is not one of MCP: {e}");
        Error::new(ErrorKind::Protocol, message)
    })?;
    let Some(revision) = Revision::parse(&read.protocol_version) else {
        let message = format!(
            "the server wants to speak MCP revision {:?}; this client speaks {}",
            text::one_line(read.protocol_version.as_bytes(), 40),
            Revision::ALL.map(Revision::as_str).join(", "),
        );
        return Err(Error::new(ErrorKind::Protocol, message));
    };
    let cut = |part: Option<&RawValue>| {
        part.map_or(Bytes::from_static(b"{}"), |part| {
            jsonrpc::slice(answer, part.get().as_bytes())
        })
    };
    Ok(Info {
        revision,
        server_info: cut(read.server_info),
        capabilities: cut(read.capabilities),
        instructions: read.instructions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_revision_of_ours_is_taken() {
        let answer = Bytes::from_static(
            br#"{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"x"},"instructions":"be\nkind"}"#,
        );
        let info = read(&answer).unwrap();
        assert_eq!(info.revision, Revision::V2024_11_05);
        assert_eq!(info.capabilities, "{\"tools\":{}}");
        assert_eq!(info.server_info, "{\"name\":\"x\"}");
        assert_eq!(info.instructions.as_deref(), Some("be\nkind"));
    }

    #[test]
    fn what_a_lax_server_leaves_out_is_empty() {
        let info = read(&Bytes::from_static(br#"{"protocolVersion":"2025-06-18"}"#)).unwrap();
        assert_eq!(
            (&info.capabilities[..], &info.server_info[..]),
            (&b"{}"[..], &b"{}"[..])
        );
    }

    #[test]
    fn a_revision_that_we_do_not_speak_is_permanent_and_named() {
        let answer = Bytes::from_static(br#"{"protocolVersion":"9999-01-01","capabilities":{}}"#);
        let error = read(&answer).unwrap_err();
        assert_eq!(
            (error.kind, error.cause),
            (ErrorKind::Protocol, Cause::Permanent)
        );
        assert!(error.message.contains("9999-01-01") && error.message.contains("2025-11-25"));
    }

    #[test]
    fn an_answer_that_is_no_initialize_result_is_permanent() {
        for answer in [&b"{}"[..], b"[]", b"null", br#"{"protocolVersion":3}"#] {
            let error = read(&Bytes::from_static(answer)).unwrap_err();
            assert_eq!(error.cause, Cause::Permanent);
        }
    }
}
