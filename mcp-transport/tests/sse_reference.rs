//! The decoder of event streams beside a slow one, written apart from it: the same events for seeded random streams,
//! however they are cut.

#[path = "../fuzz/checks/sse.rs"]
#[allow(unreachable_pub, dead_code)]
mod sse;

use sse::{decode, reference};

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
