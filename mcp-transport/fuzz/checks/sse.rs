//! However a stream of events is cut, the decoder finds what a slow one finds that was written apart from it.

use bytes::Bytes;
use mcp_transport::sse::Decoder;

/// An event: kind, data, and the id that it set itself.
pub type Event = (Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// What a stream comes to: its events, the last id in force (none if it is empty), and the last retry.
pub type Decoded = (Vec<Event>, Option<Vec<u8>>, Option<u64>);

/// As the HTML standard says it ("9.2.6 Interpreting an event stream"), over the whole stream and byte by byte.
pub fn reference(stream: &[u8]) -> Decoded {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        match stream[at] {
            b'\r' | b'\n' => {
                lines.push(std::mem::take(&mut line));
                if stream[at] == b'\r' && stream.get(at + 1) == Some(&b'\n') {
                    at += 1;
                }
            }
            other => line.push(other),
        }
        at += 1;
    }
    // What follows the last line end is no line.
    let mut events = Vec::new();
    let mut last_id: Vec<u8> = Vec::new();
    let mut retry = None;
    let (mut kind, mut data, mut id) = (Vec::new(), Vec::new(), None);
    let mut has_data = false;
    for line in lines {
        if line.is_empty() {
            if let Some(id) = &id {
                last_id = Vec::clone(id);
            }
            if has_data {
                // The buffer ends with the line feed of its last line.
                data.pop();
                events.push((kind, data, id));
            }
            (kind, data, id, has_data) = (Vec::new(), Vec::new(), None, false);
            continue;
        }
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().unwrap_or_default();
        let value = parts.next().unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"event" => kind = value.to_vec(),
            b"data" => {
                has_data = true;
                data.extend_from_slice(value);
                data.push(b'\n');
            }
            b"id" if !value.contains(&0) => id = Some(value.to_vec()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let mut sum: Option<u64> = Some(0);
                for digit in value {
                    sum = sum
                        .and_then(|sum| sum.checked_mul(10))
                        .and_then(|sum| sum.checked_add(u64::from(digit - b'0')));
                }
                retry = sum.or(retry);
            }
            _ => {}
        }
    }
    (events, (!last_id.is_empty()).then_some(last_id), retry)
}

pub fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = Decoder::new(1 << 20);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.feed(Bytes::copy_from_slice(piece));
        while let Some(event) = decoder.next_event().expect("within the limit") {
            let id = event.id.map(|id| id.to_vec());
            events.push((event.kind.to_vec(), event.data.to_vec(), id));
        }
    }
    let retry = decoder
        .retry()
        .map(|retry| u64::try_from(retry.as_millis()).expect("it came as one"));
    (events, decoder.last_event_id().map(<[u8]>::to_vec), retry)
}

/// The first byte says how the rest is cut.
pub fn check(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else {
        return;
    };
    let expected = reference(stream);
    assert_eq!(decode([stream].into_iter()), expected);
    assert_eq!(decode(stream.chunks(usize::from(cut % 16) + 1)), expected);
}
