//! However a stream is cut, its lines are those that a plain splitting at LF gives.

use mcp_transport::line::{Line, Splitter};

/// Short, so that the cap is met often.
const MAX: usize = 100;

#[derive(Debug, PartialEq)]
enum Seen {
    Frame(Vec<u8>),
    Noise(Vec<u8>),
    TooLong(u64),
}

/// The first byte says how the rest is cut.
pub fn check(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else {
        return;
    };
    for max in [MAX, usize::MAX] {
        let expected = plainly(stream, max);
        assert_eq!(split(stream, max, usize::from(cut % 16) + 1), expected);
        assert_eq!(split(stream, max, usize::MAX), expected);
    }
}

fn plainly(stream: &[u8], max: usize) -> Vec<Seen> {
    let lines = stream.split(|&byte| byte == b'\n');
    lines.filter_map(|line| one(line, max)).collect()
}

fn one(line: &[u8], max: usize) -> Option<Seen> {
    if line.len() > max {
        return Some(Seen::TooLong(line.len() as u64));
    }
    let mut visible = line.iter().filter(|byte| !byte.is_ascii_whitespace());
    match (visible.next(), visible.next()) {
        (None, _) => None,
        (Some(b'{'), _) | (Some(b'['), Some(b'{')) => Some(Seen::Frame(line.to_vec())),
        _ => Some(Seen::Noise(line.to_vec())),
    }
}

fn split(stream: &[u8], max: usize, piece: usize) -> Vec<Seen> {
    let mut splitter = Splitter::new(max);
    let mut seen = Vec::new();
    let mut each = |line| {
        seen.push(match line {
            Line::Frame(bytes) => Seen::Frame(bytes.to_vec()),
            Line::Noise(bytes) => Seen::Noise(bytes.to_vec()),
            Line::TooLong { head, tail, len } => {
                assert!(head.len() <= 256 && tail.len() <= 256);
                Seen::TooLong(len)
            }
        });
    };
    for piece in stream.chunks(piece.min(stream.len()).max(1)) {
        if let Some(buffer) = splitter.growing() {
            let searched = buffer.len();
            buffer.extend_from_slice(piece);
            splitter.grown(searched, &mut each);
        } else {
            splitter.feed(piece, &mut each);
        }
    }
    let last = splitter.finish();
    assert!(!splitter.is_unfinished());
    last.into_iter().for_each(&mut each);
    seen
}
