//! Whatever bytes come: no panic, what is pointed at lies inside of them and is what any JSON reader finds there, and
//! what we write around it is one line that reads back the same.

use bytes::Bytes;
use mcp_transport::jsonrpc::{self, Envelope, ParseError, RequestId};
use serde_json::{Value, value::RawValue};

pub fn check(data: &[u8]) {
    let message = Bytes::copy_from_slice(data);
    let is_json =
        std::str::from_utf8(data).is_ok_and(|text| serde_json::from_str::<&RawValue>(text).is_ok());
    let envelope = match jsonrpc::parse(&message) {
        Ok(envelope) => envelope,
        Err(error) => {
            assert_eq!(jsonrpc::settles(&message), None);
            let is_object = data.trim_ascii_start().starts_with(b"{");
            assert_eq!(error == ParseError::Shape, is_json && is_object, "{error}");
            return;
        }
    };
    assert!(is_json || matches!(envelope, Envelope::Batch));
    let whole: Option<Value> = serde_json::from_slice(&message).ok();
    let is = |member: &str, raw: &[u8]| {
        assert!(inside(&message, raw));
        assert!(serde_json::from_slice::<&RawValue>(raw).is_ok());
        if let (Some(whole), Ok(value)) = (&whole, serde_json::from_slice::<Value>(raw)) {
            assert_eq!(whole[member], value);
        }
    };
    match envelope {
        Envelope::Response { id, outcome } => {
            assert_eq!(jsonrpc::settles(&message), id);
            match outcome {
                Ok(result) => is("result", result),
                Err(error) => is("error", error),
            }
        }
        Envelope::Notification { method, params } => {
            assert_eq!(jsonrpc::settles(&message), None);
            if let Some(params) = params {
                is("params", params);
            }
            rewrite(&method, params);
        }
        Envelope::Request { id, method, params } => {
            assert_eq!(jsonrpc::settles(&message), None);
            is("id", id.get().as_bytes());
            if let Some(params) = params {
                is("params", params);
            }
            rewrite(&method, params);
            let empty: &RawValue = serde_json::from_str("{}").expect("JSON");
            let params = params.map_or(empty, |params| {
                serde_json::from_slice(params).expect("JSON")
            });
            one_line(&jsonrpc::result(id, params));
            one_line(&jsonrpc::error(id, -1, &method));
        }
        Envelope::Batch => {
            let parts = jsonrpc::split_batch(&message);
            assert_eq!(parts.is_ok(), is_json);
            for part in parts.unwrap_or_default() {
                assert!(part.is_empty() || message.as_ptr_range().contains(&part.as_ptr()));
            }
        }
    }
}

fn inside(message: &Bytes, raw: &[u8]) -> bool {
    let part = jsonrpc::slice(message, raw);
    part == raw && message.as_ptr_range().contains(&part.as_ptr())
}

/// Writes a request and a notification of our own with the same method and params.
fn rewrite(method: &str, params: Option<&[u8]>) {
    for with_progress in [false, true] {
        if let Ok(bytes) = jsonrpc::request(RequestId(7), method, params, with_progress) {
            one_line(&bytes);
            let Ok(Envelope::Request {
                id, method: again, ..
            }) = jsonrpc::parse(&bytes)
            else {
                panic!("no request: {bytes:?}");
            };
            assert_eq!((id.get(), &*again), ("7", method));
        }
    }
    if let Ok(bytes) = jsonrpc::notification(method, params) {
        one_line(&bytes);
        assert!(
            matches!(jsonrpc::parse(&bytes), Ok(Envelope::Notification { method: again, .. }) if again == method)
        );
    }
}

fn one_line(bytes: &[u8]) {
    assert!(!bytes.contains(&b'\n') && !bytes.contains(&b'\r'));
    assert!(serde_json::from_slice::<&RawValue>(bytes).is_ok());
}
