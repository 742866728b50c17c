//! What an HTTP answer means for MCP: decisions over a status, headers and bytes that were read.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    body::{self, Encoding},
    retry_after::retry_after,
    snippet::Secrets,
};
use crate::{
    error::{Cause, Challenge, Error, ErrorKind, Outcome},
    jsonrpc::{self, RequestId},
};

/// How the body of a successful answer is to be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON-RPC message or a batch of them.
    Json,
    /// A stream of events.
    Events,
    /// Something that is no MCP.
    Foreign,
}

/// The form that the headers name. An answer without a type is taken as JSON, which it then must be.
pub(super) fn form(headers: &HeaderMap) -> Form {
    if body::encoding(headers) == Encoding::Other {
        return Form::Foreign;
    }
    match media_type(headers).as_deref() {
        None | Some("application/json") => Form::Json,
        Some("text/event-stream") => Form::Events,
        Some(kind) if kind.starts_with("application/") && kind.ends_with("+json") => Form::Json,
        Some(_) => Form::Foreign,
    }
}

fn media_type(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next()?.trim().to_ascii_lowercase();
    (!kind.is_empty()).then_some(kind)
}

/// The messages in a JSON text: itself, or the elements of a batch, each a slice of it. An array that is no JSON has
/// none.
pub(super) fn messages(text: Bytes) -> Vec<Bytes> {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        Some(b'[') => serde_json::from_slice::<Vec<&RawValue>>(&text)
            .map(|elements| {
                elements
                    .into_iter()
                    .map(|element| text.slice_ref(element.get().as_bytes()))
                    .collect()
            })
            .unwrap_or_default(),
        Some(_) => vec![text],
        None => Vec::new(),
    }
}

/// As much of a message as is asked here.
#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow, default)]
    method: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ErrorText {
    #[serde(default)]
    code: serde_json::Value,
    #[serde(default)]
    message: String,
}

fn shape(message: &[u8]) -> Option<Shape<'_>> {
    serde_json::from_slice(message).ok()
}

/// The method of a request or notification.
pub(super) fn method(message: &[u8]) -> Option<String> {
    Some(shape(message)?.method?.into_owned())
}

/// The error that a message carries.
fn error_of(message: &[u8]) -> Option<ErrorText> {
    serde_json::from_str(shape(message)?.error?.get()).ok()
}

/// The text of the error that a message carries.
fn error_text(message: &[u8]) -> Option<String> {
    error_of(message)
        .map(|error| error.message)
        .filter(|text| !text.is_empty())
}

/// Whether this is, to the letter, what servers say before they look at a request whose session they do not know.
fn is_known_expiry(error: &ErrorText) -> bool {
    matches!(
        (error.code.as_i64(), error.message.as_str()),
        (Some(-32000), "Bad Request: No valid session ID provided")
            | (Some(-32600 | -32001), "Session not found")
    )
}

/// An answer that did not bring what was asked.
pub(super) struct Answer<'a> {
    /// Scheme, host and port of the server.
    pub(super) origin: &'a str,
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
    /// The request bore a session id.
    pub(super) had_session: bool,
    /// The request, if it was one.
    pub(super) request: Option<RequestId>,
    /// What was read of the body.
    pub(super) body: &'a [u8],
    pub(super) secrets: Secrets,
}

impl Answer<'_> {
    /// Whether the status alone decides, also where the body is a JSON-RPC answer to the request.
    pub(super) fn is_decided_by_status(&self) -> bool {
        match self.status.as_u16() {
            401 | 403 | 405 | 406 | 415 | 421 | 429 => true,
            404 => self.had_session,
            _ => self.is_expiry(),
        }
    }

    /// Whether the server no longer knows the session that the request bore: 404, and what servers say that do not
    /// keep to it.
    ///
    /// A request that met expiry is sent again, so an error that answers this very request, and may come from a tool
    /// that ran, counts only to the letter. What answers no request of ours is looked at for the words.
    fn is_expiry(&self) -> bool {
        if !self.had_session || !self.status.is_client_error() {
            return false;
        }
        match self.status.as_u16() {
            404 => return true,
            401 | 403 | 429 => return false,
            _ => {}
        }
        let body = self.body.trim_ascii();
        let error = error_of(body);
        if self.request.is_some() && jsonrpc::settles(body) == self.request {
            return error.is_some_and(|error| is_known_expiry(&error));
        }
        let text = match error {
            Some(error) => error.message,
            // A batch, or cut where the reading ended: whom it answers is not known.
            None if body.starts_with(b"[") || (body.starts_with(b"{") && shape(body).is_none()) => {
                return false;
            }
            None => String::from_utf8_lossy(body).into_owned(),
        };
        let text = text.to_ascii_lowercase();
        text.contains("session not found") || text.contains("no valid session id")
    }

    /// What a status outside of 2xx means for the request, and for the connection if it depended on it.
    pub(super) fn refusal(&self) -> Error {
        let origin = self.origin;
        let status = named(self.status);
        let words = self.words();
        if self.is_expiry() {
            return self.expiry();
        }
        let challenge = Challenge::of(self.status.as_u16(), self.headers).map(Arc::new);
        let (kind, cause, outcome, what) = match self.status.as_u16() {
            401 => (
                ErrorKind::Auth,
                Cause::Auth,
                Outcome::Rejected,
                "wants credentials, or others than those it was given",
            ),
            403 if challenge.is_some() => (
                ErrorKind::Auth,
                Cause::Auth,
                Outcome::Rejected,
                "wants credentials with more rights",
            ),
            403 => (
                ErrorKind::Protocol,
                Cause::Permanent,
                Outcome::Rejected,
                "forbids it",
            ),
            404 => (
                ErrorKind::Protocol,
                Cause::Permanent,
                Outcome::Unknown,
                "has no MCP endpoint at this URL",
            ),
            405 | 406 | 415 => (
                ErrorKind::Protocol,
                Cause::Permanent,
                Outcome::Rejected,
                "does not speak Streamable HTTP at this URL",
            ),
            421 => (
                ErrorKind::Protocol,
                Cause::Permanent,
                Outcome::Rejected,
                "does not serve this host name",
            ),
            429 => (
                ErrorKind::Transport,
                Cause::Transient,
                Outcome::Rejected,
                "is asked too often",
            ),
            408 | 425 | 500..=599 => (
                ErrorKind::Transport,
                Cause::Transient,
                Outcome::Unknown,
                "failed",
            ),
            _ => (
                ErrorKind::Protocol,
                Cause::Permanent,
                Outcome::Unknown,
                "refused the message",
            ),
        };
        Error {
            retry_after: retry_after(self.headers),
            challenge: challenge.filter(|_| kind == ErrorKind::Auth),
            ..Error::new(
                kind,
                format!("the server at {origin} {what} ({status}){words}"),
            )
            .with_cause(cause)
            .with_outcome(outcome)
        }
    }

    /// The server no longer knows the session that the request bore.
    pub(super) fn expiry(&self) -> Error {
        Error::new(
            ErrorKind::Expired,
            format!(
                "the server at {} no longer knows the session ({}){}",
                self.origin,
                named(self.status),
                self.words()
            ),
        )
        .with_outcome(Outcome::Rejected)
    }

    /// What it means that a successful answer is no MCP.
    pub(super) fn foreign(&self) -> Error {
        let kind = match body::encoding(self.headers) {
            Encoding::Other => "something encoded that was not asked for".into(),
            Encoding::Identity | Encoding::Gzip => media_type(self.headers)
                .map_or_else(|| "something untyped".into(), |kind| printable(&kind)),
        };
        Error::new(
            ErrorKind::Protocol,
            format!(
                "the server at {} answered with {} where JSON or an event stream was due ({}){}",
                self.origin,
                kind,
                named(self.status),
                self.words()
            ),
        )
        .with_outcome(Outcome::Unknown)
    }

    /// What it means that a JSON answer, or none at all, did not settle the request.
    pub(super) fn unsettled(&self) -> Error {
        let what = if self.body.iter().all(u8::is_ascii_whitespace) {
            "without a message"
        } else if error_text(self.body).is_some() {
            "with an error for no request of ours"
        } else {
            "with something that answers no request of ours"
        };
        Error::new(
            ErrorKind::Protocol,
            format!(
                "the server at {} answered {what} ({}){}",
                self.origin,
                named(self.status),
                self.words()
            ),
        )
        .with_outcome(Outcome::Unknown)
    }

    /// What the server said about it, quoted.
    fn words(&self) -> String {
        if body::encoding(self.headers) == Encoding::Other {
            return String::new();
        }
        match error_text(self.body) {
            Some(text) => self.secrets.snippet(text.as_bytes(), false),
            None => {
                let is_html = media_type(self.headers).is_some_and(|kind| kind.contains("html"))
                    || self.body.trim_ascii_start().starts_with(b"<");
                self.secrets.snippet(self.body, is_html)
            }
        }
    }
}

fn named(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("HTTP {} {reason}", status.as_u16()),
        None => format!("HTTP {}", status.as_u16()),
    }
}

/// A media type comes from outside too.
fn printable(kind: &str) -> String {
    kind.chars()
        .filter(|c| c.is_ascii_graphic())
        .take(60)
        .collect()
}
