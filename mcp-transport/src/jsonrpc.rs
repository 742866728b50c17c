//! JSON-RPC 2.0 messages: reading the envelope without touching what is inside, and writing one around it.
//!
//! Params and results are never parsed here. They are pointed at inside the buffer that was read
//! ([`parse`]), and cut out of it without a copy ([`slice()`]).

use std::{borrow::Cow, fmt};

use bytes::{BufMut, Bytes, BytesMut};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    error::{Error, ErrorKind},
    json::{self, NotJson},
    text::Length,
};

/// The code of "invalid request".
pub const INVALID_REQUEST: i64 = -32600;
/// The code of "method not found".
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The code of "invalid params".
pub const INVALID_PARAMS: i64 = -32602;
/// The code of "internal error".
pub const INTERNAL_ERROR: i64 = -32603;
/// The code with which we refuse a request of a server that has too many open.
pub const BUSY: i64 = -32000;
/// The code with which we refuse a request of a server that was not answered in time, as MCP's SDKs do.
pub const TIMED_OUT: i64 = -32001;

/// The id of a request of ours; also its progress token. Counted up from 1 within a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl RequestId {
    /// Reads an id or progress token that a server echoes: as the number, as a float without
    /// fraction, or as a string of either. Anything else is not ours.
    fn from_echo(raw: &str) -> Option<Self> {
        let text = raw
            .strip_prefix('"')
            .and_then(|r| r.strip_suffix('"'))
            .unwrap_or(raw);
        if let Ok(id) = text.parse() {
            return Some(Self(id));
        }
        // `parse` alone would take "inf" and "+1" too; a JSON number begins with a digit.
        if !text.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let float: f64 = text.parse().ok()?;
        // Above 2^53 a float no longer names one integer.
        (float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&float))
            .then_some(Self(float as u64))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message from the server, with what is inside it left as it came.
///
/// `Debug` shows of params, results and errors only how long they are.
pub enum Envelope<'a> {
    /// The server asks. The id is the server's own and is echoed as it came.
    Request {
        /// The id, as raw JSON.
        id: &'a RawValue,
        /// The method.
        method: Cow<'a, str>,
        /// The params, as raw JSON.
        params: Option<&'a [u8]>,
    },
    /// The server tells.
    Notification {
        /// The method.
        method: Cow<'a, str>,
        /// The params, as raw JSON.
        params: Option<&'a [u8]>,
    },
    /// The server answers.
    Response {
        /// The id, if it can be one of ours; `None` for an id of another shape, and for `null`.
        id: Option<RequestId>,
        /// The result, or the error object, as raw JSON.
        outcome: Result<&'a [u8], &'a [u8]>,
    },
    /// A JSON-RPC batch, which revision 2025-03-26 allows: [`split_batch`] takes it apart.
    Batch,
}

impl fmt::Debug for Envelope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { id, method, params } => f
                .debug_struct("Request")
                .field("id", id)
                .field("method", method)
                .field("params", &params.map(Length))
                .finish(),
            Self::Notification { method, params } => f
                .debug_struct("Notification")
                .field("method", method)
                .field("params", &params.map(Length))
                .finish(),
            Self::Response { id, outcome } => f
                .debug_struct("Response")
                .field("id", id)
                .field("outcome", &outcome.map(Length).map_err(Length))
                .finish(),
            Self::Batch => f.write_str("Batch"),
        }
    }
}

/// An answer to a request of ours, cut out of its message.
///
/// `Debug` shows of it only how long it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// The request.
    pub id: RequestId,
    /// The result, or the error object, as raw JSON.
    pub outcome: Result<Bytes, Bytes>,
    /// The whole message, which stays in memory as long as any part of it.
    pub message: Bytes,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.outcome.as_deref();
        f.debug_struct("Answer")
            .field("id", &self.id)
            .field(
                "outcome",
                &outcome.map(Length).map_err(|error| Length(error)),
            )
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// Cuts it out without a copy. `outcome` points into the message.
    pub(crate) fn cut(message: &Bytes, id: RequestId, outcome: Result<&[u8], &[u8]>) -> Self {
        let cut = |part| slice(message, part);
        Self {
            id,
            outcome: outcome.map(cut).map_err(cut),
            message: message.clone(),
        }
    }
}

/// Why something is no JSON-RPC message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// No JSON, or none in UTF-8, which shows at this byte.
    #[error("it is not JSON, which shows at its byte {0}")]
    Json(usize),
    /// JSON, but neither a request, a notification nor an answer.
    #[error("it is JSON but no JSON-RPC message")]
    Shape,
}

impl From<NotJson> for ParseError {
    fn from(NotJson(at): NotJson) -> Self {
        Self::Json(at)
    }
}

/// The members of an envelope, as raw JSON.
#[derive(Default)]
struct Members<'a> {
    id: Option<&'a [u8]>,
    method: Option<&'a [u8]>,
    params: Option<&'a [u8]>,
    result: Option<&'a [u8]>,
    error: Option<&'a [u8]>,
}

impl<'a> Members<'a> {
    fn of(message: &'a [u8]) -> Result<Self, ParseError> {
        let mut members = Self::default();
        let mut twice = false;
        json::object(message, |name, value| {
            if let Some(member) = members.named(&unescaped(name)) {
                twice |= member.replace(value).is_some();
            }
        })?;
        // Which of the two is meant nobody knows.
        if twice {
            return Err(ParseError::Shape);
        }
        Ok(members)
    }

    fn named(&mut self, name: &str) -> Option<&mut Option<&'a [u8]>> {
        Some(match name {
            "id" => &mut self.id,
            "method" => &mut self.method,
            "params" => &mut self.params,
            "result" => &mut self.result,
            "error" => &mut self.error,
            _ => return None,
        })
    }
}

/// Text that is borrowed where it has no escapes (a bare `Cow` inside an `Option` or a map is always copied).
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The text of a string's inside; empty where an escape is half a character.
fn unescaped(inside: &[u8]) -> Cow<'_, str> {
    if !inside.contains(&b'\\') {
        return String::from_utf8_lossy(inside);
    }
    let quoted = [b"\"", inside, b"\""].concat();
    Cow::Owned(serde_json::from_slice(&quoted).unwrap_or_default())
}

fn is_null(raw: &[u8]) -> bool {
    raw == b"null"
}

/// Reads the envelope of one message; what it returns points into `message`.
///
/// # Errors
/// When the bytes are no JSON-RPC message.
pub fn parse(message: &[u8]) -> Result<Envelope<'_>, ParseError> {
    if message.trim_ascii_start().first() == Some(&b'[') {
        return Ok(Envelope::Batch);
    }
    let is_there = |raw: &&[u8]| !is_null(raw);
    let Members {
        id,
        method,
        params,
        result,
        error,
    } = Members::of(message)?;
    let params = params.filter(is_there);
    if let Some(method) = method.filter(is_there) {
        let Text(method) = serde_json::from_slice(method).map_err(|_| ParseError::Shape)?;
        // A request that bears the same id as one of ours is still a request: the method decides.
        return Ok(match id.filter(is_there) {
            Some(id) => Envelope::Request {
                id: serde_json::from_slice(id).map_err(|_| ParseError::Shape)?,
                method,
                params,
            },
            None => Envelope::Notification { method, params },
        });
    }
    // An error of `null` beside a result is what some servers write for "no error"; a result of `null` is one.
    let outcome = match (error.filter(is_there), result) {
        (Some(error), _) => Err(error),
        (None, Some(result)) => Ok(result),
        (None, None) => return Err(ParseError::Shape),
    };
    let id = id.and_then(|id| RequestId::from_echo(std::str::from_utf8(id).ok()?));
    Ok(Envelope::Response { id, outcome })
}

/// How much of a message may stay in memory beside a part of it that is kept.
const DEAD_WEIGHT: usize = 4096;

/// Cuts `part` out of the message that it points into, without a copy, unless the part would keep alive much more than
/// it is itself: whoever keeps it counts its length, and a server must not hide a large message behind a small part.
///
/// # Panics
/// When `part` does not point into `message`.
pub fn slice(message: &Bytes, part: &[u8]) -> Bytes {
    let slice = message.slice_ref(part);
    if message.len() - part.len() > part.len() + DEAD_WEIGHT {
        Bytes::copy_from_slice(&slice)
    } else {
        slice
    }
}

/// Takes a batch apart into its messages. The elements are not looked into.
///
/// # Errors
/// When the message is no JSON array.
pub fn split_batch(message: &Bytes) -> Result<Vec<Bytes>, ParseError> {
    let mut elements = Vec::new();
    json::array(message, |element| elements.push(slice(message, element)))?;
    Ok(elements)
}

/// The request of ours that this message settles: its id, if the message is an answer, with a
/// result or with an error.
pub fn settles(message: &[u8]) -> Option<RequestId> {
    match parse(message) {
        Ok(Envelope::Response { id, .. }) => id,
        _ => None,
    }
}

/// The members of a JSON object in their order, values raw, pointing into it.
pub(crate) fn members(object: &[u8]) -> Result<Vec<(Cow<'_, str>, &RawValue)>, serde_json::Error> {
    let Entries(entries) = serde_json::from_slice(object)?;
    Ok(entries)
}

/// The request that the params of `notifications/progress` are about.
pub(crate) fn progress_of(params: &[u8]) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct Progress<'a> {
        #[serde(borrow, rename = "progressToken")]
        token: &'a RawValue,
    }
    let progress: Progress<'_> = serde_json::from_slice(params).ok()?;
    RequestId::from_echo(progress.token.get())
}

/// The request of the server that the params of its `notifications/cancelled` are about.
pub(crate) fn canceled_of(params: &[u8]) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Canceled<'a> {
        #[serde(borrow, rename = "requestId")]
        id: &'a RawValue,
    }
    let canceled: Canceled<'_> = serde_json::from_slice(params).ok()?;
    Some(canceled.id)
}

/// What the beginning of a message says that was too long to be kept: `Some` if it is an answer, with its id if that
/// stands before the result or error.
pub(crate) fn cut_answer(head: &[u8]) -> Option<Option<RequestId>> {
    let head = std::str::from_utf8(until_broken_char(head)).ok()?;
    let mut rest = head.trim_start().strip_prefix('{')?;
    let mut id = None;
    // The members before the long one are short scalars; read them one by one.
    loop {
        rest = rest.trim_start().strip_prefix('"')?;
        let (key, after) = rest.split_once('"')?;
        rest = after.trim_start().strip_prefix(':')?.trim_start();
        match key {
            "result" | "error" => return Some(id),
            "id" | "jsonrpc" => {
                let (value, after) = rest.split_once(',')?;
                if key == "id" {
                    id = RequestId::from_echo(value.trim_end());
                }
                rest = after;
            }
            _ => return None,
        }
    }
}

/// Reads the id of an answer that was too long to be kept, from its first and its last bytes.
///
/// `None` where these do not show beyond doubt that it is an answer, and to which request.
pub(crate) fn id_of_cut_answer(head: &[u8], tail: &[u8]) -> Option<RequestId> {
    let id = cut_answer(head)?;
    if id.is_some() {
        return id;
    }
    // The id comes last in what some SDKs write. Only a member that closes the outermost object
    // counts: exactly one brace behind it, so that no nested "id" is taken for it.
    let tail = tail.trim_ascii_end().strip_suffix(b"}")?;
    let at = tail.windows(5).rposition(|w| w == b",\"id\"")?;
    let value = std::str::from_utf8(&tail[at + 5..]).ok()?;
    let value = value.trim_start().strip_prefix(':')?.trim();
    RequestId::from_echo(value)
}

/// The longest beginning of `bytes` that ends with a whole UTF-8 character.
fn until_broken_char(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes,
        Err(e) => &bytes[..e.valid_up_to()],
    }
}

/// Writes a request. With `with_progress` the id is asked for as the progress token too, beside
/// whatever `params._meta` has already.
///
/// # Errors
/// `Invalid`, when the params are no JSON object.
pub fn request(
    id: RequestId,
    method: &str,
    params: Option<&[u8]>,
    with_progress: bool,
) -> Result<Bytes, Error> {
    let mut out = begin(params.map_or(0, <[u8]>::len) + method.len() + 96);
    out.put_slice(b",\"id\":");
    put_display(&mut out, id);
    put_method(&mut out, method);
    match (params, with_progress) {
        (None, false) => {}
        (None, true) => {
            out.put_slice(b",\"params\":{\"_meta\":{\"progressToken\":");
            put_display(&mut out, id);
            out.put_slice(b"}}");
        }
        (Some(params), false) => {
            let params = object(params)?;
            out.put_slice(b",\"params\":");
            put_without_newlines(&mut out, params.as_bytes());
        }
        (Some(params), true) => {
            let params = object(params)?;
            out.put_slice(b",\"params\":");
            put_with_token(&mut out, params, id)?;
        }
    }
    out.put_u8(b'}');
    Ok(out.freeze())
}

/// Writes a notification.
///
/// # Errors
/// `Invalid`, when the params are no JSON object.
pub fn notification(method: &str, params: Option<&[u8]>) -> Result<Bytes, Error> {
    let mut out = begin(params.map_or(0, <[u8]>::len) + method.len() + 64);
    put_method(&mut out, method);
    if let Some(params) = params {
        let params = object(params)?;
        out.put_slice(b",\"params\":");
        put_without_newlines(&mut out, params.as_bytes());
    }
    out.put_u8(b'}');
    Ok(out.freeze())
}

/// Writes the answer to a request of the server; `result` is JSON.
pub fn result(id: &RawValue, result: &RawValue) -> Bytes {
    let mut out = begin(id.get().len() + result.get().len() + 32);
    out.put_slice(b",\"id\":");
    put_without_newlines(&mut out, id.get().as_bytes());
    out.put_slice(b",\"result\":");
    put_without_newlines(&mut out, result.get().as_bytes());
    out.put_u8(b'}');
    out.freeze()
}

/// Writes the empty answer, as to `ping`.
pub(crate) fn empty_result(id: &RawValue) -> Bytes {
    let mut out = begin(id.get().len() + 32);
    out.put_slice(b",\"id\":");
    put_without_newlines(&mut out, id.get().as_bytes());
    out.put_slice(b",\"result\":{}}");
    out.freeze()
}

/// Writes the refusal of a request of the server.
pub fn error(id: &RawValue, code: i64, message: &str) -> Bytes {
    let mut out = begin(id.get().len() + message.len() + 64);
    out.put_slice(b",\"id\":");
    put_without_newlines(&mut out, id.get().as_bytes());
    out.put_slice(b",\"error\":{\"code\":");
    put_display(&mut out, code);
    out.put_slice(b",\"message\":");
    put_string(&mut out, message);
    out.put_slice(b"}}");
    out.freeze()
}

fn begin(capacity: usize) -> BytesMut {
    let mut out = BytesMut::with_capacity(capacity);
    out.put_slice(b"{\"jsonrpc\":\"2.0\"");
    out
}

fn put_method(out: &mut BytesMut, method: &str) {
    out.put_slice(b",\"method\":");
    put_string(out, method);
}

fn put_display(out: &mut BytesMut, value: impl fmt::Display) {
    use fmt::Write as _;
    // Writing into memory does not fail.
    let _ = write!(out, "{value}");
}

/// Writes text as a JSON string.
pub(crate) fn put_string(out: &mut BytesMut, text: &str) {
    // Writing into memory does not fail, and a string is always JSON.
    let _ = serde_json::to_writer(out.writer(), text);
}

/// JSON has raw newlines between its tokens only, so that a blank in their place changes nothing;
/// a line on stdio must not have any.
fn put_without_newlines(out: &mut BytesMut, json: &[u8]) {
    let start = out.len();
    out.put_slice(json);
    for byte in &mut out[start..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

/// Checks that the caller's params are one JSON object, so that they cannot break the message that
/// they become part of.
fn object(params: &[u8]) -> Result<&str, Error> {
    let raw: &RawValue = serde_json::from_slice(params)
        .map_err(|e| Error::new(ErrorKind::Invalid, format!("params are not JSON: {e}")))?;
    if raw.get().starts_with('{') {
        Ok(raw.get())
    } else {
        Err(Error::new(
            ErrorKind::Invalid,
            "params must be a JSON object",
        ))
    }
}

/// Copies an object, with `_meta.progressToken` set; everything else in it stays byte for byte.
fn put_with_token(out: &mut BytesMut, params: &str, id: RequestId) -> Result<(), Error> {
    let Entries(entries) = serde_json::from_str(params).map_err(|e| {
        Error::new(
            ErrorKind::Invalid,
            format!("params are not a JSON object: {e}"),
        )
    })?;
    let meta = entries.iter().rev().find(|(key, _)| key == "_meta");
    let Some((_, meta)) = meta else {
        out.put_slice(b"{\"_meta\":{\"progressToken\":");
        put_display(out, id);
        out.put_u8(b'}');
        if !entries.is_empty() {
            out.put_u8(b',');
        }
        put_without_newlines(out, &params.as_bytes()[1..]);
        return Ok(());
    };
    // Where the raw value lies inside the params that it was borrowed from.
    let start = meta.get().as_ptr() as usize - params.as_ptr() as usize;
    let end = start + meta.get().len();
    put_without_newlines(out, &params.as_bytes()[..start]);
    out.put_slice(b"{\"progressToken\":");
    put_display(out, id);
    if !is_null(meta.get().as_bytes()) {
        let Entries(others) = serde_json::from_str(meta.get())
            .map_err(|_| Error::new(ErrorKind::Invalid, "params._meta must be a JSON object"))?;
        for (key, value) in others.iter().filter(|(key, _)| key != "progressToken") {
            out.put_u8(b',');
            put_string(out, key);
            out.put_u8(b':');
            put_without_newlines(out, value.get().as_bytes());
        }
    }
    out.put_u8(b'}');
    put_without_newlines(out, &params.as_bytes()[end..]);
    Ok(())
}

/// The members of an object in their order, values raw.
struct Entries<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Members<'a> {
            type Value = Entries<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((Text(key), value)) = map.next_entry()? {
                    entries.push((key, value));
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Members(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn text(json: &[u8]) -> String {
        std::str::from_utf8(json).unwrap().to_owned()
    }

    fn response(message: &str) -> (Option<RequestId>, Result<String, String>) {
        match parse(message.as_bytes()).unwrap() {
            Envelope::Response { id, outcome } => (id, outcome.map(text).map_err(text)),
            other => panic!("not a response: {other:?}"),
        }
    }

    fn value(message: &[u8]) -> Value {
        serde_json::from_slice(message).unwrap()
    }

    #[test]
    fn a_small_part_of_a_large_message_does_not_keep_all_of_it() {
        let message = Bytes::from(vec![b'x'; 3 * DEAD_WEIGHT]);
        let (small, large) = (&message[5..7], &message[DEAD_WEIGHT..]);
        assert_eq!(slice(&message, small), small);
        assert_ne!(slice(&message, small).as_ptr(), small.as_ptr());
        assert_eq!(slice(&message, large).as_ptr(), large.as_ptr());
    }

    #[test]
    fn an_id_is_understood_as_number_float_and_string() {
        for echo in ["7", "7.0", "\"7\"", "\"7.0\"", "0.7e1", "70e-1"] {
            let message = format!(r#"{{"jsonrpc":"2.0","id":{echo},"result":{{}}}}"#);
            assert_eq!(settles(message.as_bytes()), Some(RequestId(7)), "{echo}");
        }
    }

    #[test]
    fn an_id_of_another_shape_is_foreign() {
        for echo in [
            "null",
            "-7",
            "7.5",
            "\"x7\"",
            "\"\"",
            "\"inf\"",
            "\"NaN\"",
            "[7]",
            "true",
            "1e300",
            "\"server-error\"",
        ] {
            let message = format!(r#"{{"jsonrpc":"2.0","id":{echo},"result":{{}}}}"#);
            assert_eq!(response(&message).0, None, "{echo}");
        }
    }

    #[test]
    fn an_id_too_large_for_a_float_is_exact_as_a_number() {
        let message = format!(r#"{{"id":{},"result":1}}"#, u64::MAX);
        assert_eq!(settles(message.as_bytes()), Some(RequestId(u64::MAX)));
    }

    #[test]
    fn a_request_of_the_server_with_an_id_of_ours_is_a_request() {
        let message = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        assert!(matches!(parse(message), Ok(Envelope::Request { method, .. }) if method == "ping"));
        assert_eq!(settles(message), None);
    }

    #[test]
    fn a_result_of_null_is_an_answer_and_an_error_of_null_is_none() {
        assert_eq!(response(r#"{"id":1,"result":null}"#).1, Ok("null".into()));
        assert_eq!(
            response(r#"{"id":1,"result":2,"error":null}"#).1,
            Ok("2".into())
        );
        assert_eq!(
            response(r#"{"id":1,"result":null,"error":{"code":1}}"#).1,
            Err(r#"{"code":1}"#.into())
        );
    }

    #[test]
    fn what_is_inside_stays_byte_for_byte_and_is_not_copied() {
        let text = "{\"result\": {\"a\" : \"\u{2028}\u{2029}\\u0041\", \"n\":1.0e+2 } ,\"id\":3}\r";
        let message = Bytes::from(text);
        let Ok(Envelope::Response {
            outcome: Ok(raw), ..
        }) = parse(&message)
        else {
            panic!()
        };
        let result = slice(&message, raw);
        assert_eq!(
            result,
            "{\"a\" : \"\u{2028}\u{2029}\\u0041\", \"n\":1.0e+2 }"
        );
        let inside = message.as_ptr() as usize..message.as_ptr() as usize + message.len();
        assert!(inside.contains(&(result.as_ptr() as usize)));
    }

    #[test]
    fn a_method_with_escapes_is_read() {
        let message = br#"{"method":"notifications\/progress","params":{"progressToken":"4"}}"#;
        let Ok(Envelope::Notification { method, params }) = parse(message) else {
            panic!()
        };
        assert_eq!(method, "notifications/progress");
        assert_eq!(progress_of(params.unwrap()), Some(RequestId(4)));
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for bytes in [
            &b""[..],
            b"{",
            b"{}",
            b"hello",
            b"42",
            b"{\"id\":1}",
            b"{\"id\":1,\"result\":\"\x97\"}",
            b"{\"id\":1,\"result\":1} trailing",
        ] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_batch_is_taken_apart() {
        let message = Bytes::from_static(br#" [{"id":1,"result":{}}, {"method":"x"}]"#);
        assert!(matches!(parse(&message), Ok(Envelope::Batch)));
        let parts = split_batch(&message).unwrap();
        assert_eq!(
            parts,
            [&br#"{"id":1,"result":{}}"#[..], br#"{"method":"x"}"#]
        );
        assert!(split_batch(&Bytes::from_static(b"[INFO] started")).is_err());
    }

    #[test]
    fn a_progress_token_is_put_beside_what_meta_has() {
        let id = RequestId(9);
        let cases = [
            (None, json!({"_meta": {"progressToken": 9}})),
            (Some("{}"), json!({"_meta": {"progressToken": 9}})),
            (
                Some(r#"{"a":1}"#),
                json!({"a": 1, "_meta": {"progressToken": 9}}),
            ),
            (
                Some(r#"{"_meta":{"k":"v\n","progressToken":"old"},"a":[1]}"#),
                json!({"a": [1], "_meta": {"k": "v\n", "progressToken": 9}}),
            ),
            (
                Some(r#"{"_meta":null,"a":1}"#),
                json!({"a": 1, "_meta": {"progressToken": 9}}),
            ),
            (
                Some(r#"{"\u005fmeta":{"x/y":{"_meta":1}}}"#),
                json!({"_meta": {"progressToken": 9, "x/y": {"_meta": 1}}}),
            ),
        ];
        for (params, expected) in cases {
            let message = request(id, "m", params.map(str::as_bytes), true).unwrap();
            let message = value(&message);
            assert_eq!(message["params"], expected, "{params:?}");
            assert_eq!(message["id"], 9);
        }
    }

    #[test]
    fn numbers_beside_the_token_keep_their_digits() {
        let params = br#"{ "n" : 1.10000000000000000000001, "_meta" : { "m": 1e2 } }"#;
        let message = request(RequestId(1), "m", Some(params), true).unwrap();
        let text = std::str::from_utf8(&message).unwrap();
        assert!(text.contains("\"n\" : 1.10000000000000000000001"), "{text}");
        assert!(text.contains("\"m\":1e2"), "{text}");
    }

    #[test]
    fn no_message_of_ours_has_a_raw_newline() {
        let params = b"{\n  \"a\": \"x\\ny\",\r\n  \"_meta\": {\n\"b\": [\n1]}\n}\n";
        for with_progress in [false, true] {
            let message = request(RequestId(1), "m\n", Some(params), with_progress).unwrap();
            assert!(!message.contains(&b'\n') && !message.contains(&b'\r'));
            assert_eq!(value(&message)["params"]["a"], "x\ny");
            assert_eq!(value(&message)["method"], "m\n");
        }
    }

    #[test]
    fn params_that_are_no_object_are_the_callers_mistake() {
        for params in [
            "",
            "[1]",
            "1",
            "{",
            "{}}",
            "{\"a\":\u{1}}",
            r#"{"_meta":3}"#,
        ] {
            let error = request(RequestId(1), "m", Some(params.as_bytes()), true).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid, "{params}");
        }
        assert!(notification("m", Some(b"\xff")).is_err());
    }

    #[test]
    fn answers_echo_the_id_as_it_came() {
        let id: &RawValue = serde_json::from_str(r#""ab\"c""#).unwrap();
        let refused = value(&error(id, METHOD_NOT_FOUND, "no \"such\" method"));
        assert_eq!(
            refused,
            json!({"jsonrpc": "2.0", "id": "ab\"c",
                   "error": {"code": -32601, "message": "no \"such\" method"}})
        );
        let empty: &RawValue = serde_json::from_str("{}").unwrap();
        assert_eq!(value(&result(id, empty))["result"], json!({}));
    }

    #[test]
    fn the_id_of_a_cut_answer_is_found_at_either_end() {
        let found = |head: &str, tail: &str| id_of_cut_answer(head.as_bytes(), tail.as_bytes());
        let python = r#"{"jsonrpc":"2.0","id":5,"result":{"a":"#;
        assert_eq!(found(python, "xxx"), Some(RequestId(5)));
        let typescript = r#"{"result":{"content":["#;
        let end = r#"]},"jsonrpc":"2.0","id":6}"#;
        assert_eq!(found(typescript, end), Some(RequestId(6)));
        assert_eq!(found(typescript, r#"{"x":1,"id":6}}"#), None);
        assert_eq!(found(r#"{"method":"m","params":{"#, r#"},"id":6}"#), None);
        assert_eq!(
            found(r#"{"jsonrpc":"2.0","id":5,"method":"m","params":{"#, "}}"),
            None
        );
        assert_eq!(found("no json", "at all"), None);
    }
}
