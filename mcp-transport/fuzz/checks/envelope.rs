//! Whatever bytes come: no panic, what is pointed at lies inside of them and is what any JSON reader finds there, and
//! what we write around it is one line that reads back the same.

use bytes::Bytes;
use mcp_transport::jsonrpc::{self, Envelope, RequestId};
use serde_json::{Value, value::RawValue};

pub fn check(data: &[u8]) {
    let message = Bytes::copy_from_slice(data);
    let Ok(envelope) = jsonrpc::parse(&message) else {
        assert_eq!(jsonrpc::settles(&message), None);
        return;
    };
    let whole: Option<Value> = serde_json::from_slice(&message).ok();
    let is = |member: &str, raw: &RawValue| {
        assert!(inside(&message, raw));
        if let (Some(whole), Ok(value)) = (&whole, serde_json::from_str::<Value>(raw.get())) {
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
            is("id", id);
            if let Some(params) = params {
                is("params", params);
            }
            rewrite(&method, params);
            let empty: &RawValue = serde_json::from_str("{}").expect("JSON");
            one_line(&jsonrpc::result(id, params.unwrap_or(empty)));
            one_line(&jsonrpc::error(id, -1, &method));
        }
        Envelope::Batch => {
            for part in jsonrpc::split_batch(&message).unwrap_or_default() {
                assert!(part.is_empty() || message.as_ptr_range().contains(&part.as_ptr()));
            }
        }
    }
}

fn inside(message: &Bytes, raw: &RawValue) -> bool {
    let part = jsonrpc::slice(message, raw);
    part == raw.get() && message.as_ptr_range().contains(&part.as_ptr())
}

/// Writes a request and a notification of our own with the same method and params.
fn rewrite(method: &str, params: Option<&RawValue>) {
    let params = params.map(|params| params.get().as_bytes());
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
