//! The decoder of event streams beside a slow one, written apart from it: the same events for seeded random streams,
//! however they are cut.

use bytes::Bytes;
use mcp_transport::sse::Decoder;

/// An event: kind, data, and the id that it set itself.
type Event = (Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// What a stream comes to: its events, the last id in force (none if it is empty), and the last retry.
type Decoded = (Vec<Event>, Option<Vec<u8>>, Option<u64>);

/// As the HTML standard says it ("9.2.6 Interpreting an event stream"), over the whole stream and byte by byte.
fn reference(stream: &[u8]) -> Decoded {
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

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("below a usize")
    }
}

/// Pieces that streams are made of, the meaningful ones often.
const PIECES: [&[u8]; 34] = [
    b"\n",
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b"\r\n\r\n",
    b"\r\r",
    b"data",
    b"data:",
    b"data: ",
    b"data: {\"a\":1}",
    b"event",
    b"event:",
    b"event: message",
    b"event: x",
    b"id",
    b"id:",
    b"id: 7",
    b"id: \x00",
    b"retry: 15",
    b"retry: x",
    b"retry:",
    b"retry: 99999999999999999999999",
    b":",
    b": comment",
    b" ",
    b"x",
    b"\xef\xbb\xbf",
    b"\xef",
    b"\xff",
    b"\x00",
    b"\xe2\x80\xa8",
    b"Data: no",
    b"12345",
];

fn stream(random: &mut Random) -> Vec<u8> {
    let mut stream = Vec::new();
    if random.below(8) == 0 {
        stream.extend_from_slice(b"\xef\xbb\xbf");
    }
    for _ in 0..random.below(40) {
        stream.extend_from_slice(PIECES[random.below(PIECES.len())]);
    }
    stream
}

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Decoded {
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

/// The stream in pieces cut at random points, some of them empty.
fn cut<'a>(mut rest: &'a [u8], random: &mut Random) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(random.below(rest.len().min(20) + 1));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

#[test]
fn random_streams_have_the_events_of_the_reference_however_they_are_cut() {
    let mut count = 0;
    for seed in 0..10_000 {
        let mut random = Random(seed);
        let stream = stream(&mut random);
        let expected = reference(&stream);
        count += expected.0.len();
        let shown = || format!("seed {seed}: {:?}", String::from_utf8_lossy(&stream));
        assert_eq!(decode([&stream[..]].into_iter()), expected, "{}", shown());
        assert_eq!(decode(stream.chunks(1)), expected, "{}", shown());
        for _ in 0..3 {
            let pieces = cut(&stream, &mut random);
            assert_eq!(decode(pieces.into_iter()), expected, "{}", shown());
        }
    }
    assert!(count > 2_000, "{count} events are too few to say anything");
}
