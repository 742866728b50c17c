//! Cuts a byte stream into lines: the framing of stdio.
//!
//! Pure: bytes go in, [`Line`]s come out. A line ends at LF and nowhere else, for the characters that
//! other splitters take for line ends (CR, VT, FF, U+0085, U+2028, U+2029) occur raw inside JSON strings.
//!
//! Small lines are copied out of the reader's buffer into an allocation of their own, so that a message
//! which is kept does not keep others alive, and an idle reader holds no memory. A line that is longer
//! than one read grows in one allocation that the reader reads straight into ([`Splitter::growing`]),
//! is searched once and is not copied after.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::text::Length;

/// The longest frame unless said otherwise: 64 MiB.
pub const MAX_FRAME: usize = 64 << 20;

/// How many bytes of a line that was too long are kept from each of its ends.
const KEPT: usize = 256;

/// Lines of up to this many bytes stay with the copying way, longer ones are read in place.
const SMALL: usize = 64 << 10;

/// What a line of the stream turned out to be.
///
/// `Debug` shows of it only how long it is.
#[derive(Clone, PartialEq, Eq)]
pub enum Line {
    /// It looks like a JSON-RPC message. Without its LF.
    Frame(Bytes),
    /// It can be none: a log line, a banner.
    Noise(Bytes),
    /// It was longer than the cap and was dropped; the stream goes on after its LF.
    TooLong {
        /// Its first bytes.
        head: Bytes,
        /// Its last bytes.
        tail: Bytes,
        /// How long it was.
        len: u64,
    },
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(line) => f.debug_tuple("Frame").field(&Length(line)).finish(),
            Self::Noise(line) => f.debug_tuple("Noise").field(&Length(line)).finish(),
            Self::TooLong { len, .. } => f
                .debug_struct("TooLong")
                .field("len", len)
                .finish_non_exhaustive(),
        }
    }
}

/// The state between two reads: an unfinished line, if there is one.
pub struct Splitter {
    max_frame: usize,
    unfinished: Unfinished,
}

enum Unfinished {
    /// The line's bytes so far. None of them is LF.
    Line(BytesMut),
    /// The line is longer than the cap: only its ends are kept.
    Skipped {
        head: Bytes,
        tail: BytesMut,
        len: u64,
    },
}

impl fmt::Debug for Splitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Splitter")
            .field("max_frame", &self.max_frame)
            .finish_non_exhaustive()
    }
}

impl Splitter {
    /// A splitter that drops lines of more than `max_frame` bytes.
    pub fn new(max_frame: usize) -> Self {
        Self {
            max_frame,
            unfinished: Unfinished::Line(BytesMut::new()),
        }
    }

    /// Takes the next bytes of the stream, and gives the lines that they end.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line)) {
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..at], &bytes[at + 1..]);
            bytes = rest;
            if let Some(line) = self.end_line(line) {
                each(line);
            }
        }
        if !bytes.is_empty() {
            self.extend(bytes);
        }
    }

    /// The buffer of the unfinished line, when the line is so long that it is better read in place:
    /// append to it, then call [`grown`](Self::grown) with its length before.
    ///
    /// Whoever appends asks for room step by step (one read's worth); the buffer doubles as it must.
    pub fn growing(&mut self) -> Option<&mut BytesMut> {
        match &mut self.unfinished {
            Unfinished::Line(buffer) if buffer.len() >= SMALL => Some(buffer),
            _ => None,
        }
    }

    /// Looks through what was appended to the [`growing`](Self::growing) buffer from `searched` on.
    pub fn grown(&mut self, searched: usize, mut each: impl FnMut(Line)) {
        let Unfinished::Line(buffer) = &mut self.unfinished else {
            return;
        };
        let Some(at) = memchr::memchr(b'\n', &buffer[searched..]) else {
            if buffer.len() > self.max_frame {
                self.skip();
            }
            return;
        };
        let mut line = std::mem::take(buffer);
        let rest = line.split_off(searched + at + 1);
        line.truncate(searched + at);
        if let Some(line) = classify(line, self.max_frame) {
            each(line);
        }
        self.feed(&rest, each);
    }

    /// The stream has ended: gives its last line, if that had no LF.
    pub fn finish(&mut self) -> Option<Line> {
        self.end_line(&[])
    }

    /// Whether a line has begun and not ended.
    pub fn is_unfinished(&self) -> bool {
        match &self.unfinished {
            Unfinished::Line(buffer) => !buffer.is_empty(),
            Unfinished::Skipped { .. } => true,
        }
    }

    /// Ends the unfinished line with these last bytes; blank lines are nothing.
    fn end_line(&mut self, last: &[u8]) -> Option<Line> {
        match &self.unfinished {
            // The common way: the whole line lies in one read.
            Unfinished::Line(buffer) if buffer.is_empty() && last.len() <= self.max_frame => {
                classify_slice(last)
            }
            _ => {
                self.extend(last);
                let empty = Unfinished::Line(BytesMut::new());
                match std::mem::replace(&mut self.unfinished, empty) {
                    Unfinished::Line(buffer) => classify(buffer, self.max_frame),
                    Unfinished::Skipped { head, tail, len } => {
                        let tail = tail.freeze();
                        let tail = tail.slice(tail.len().saturating_sub(KEPT)..);
                        Some(Line::TooLong {
                            head,
                            tail: Bytes::copy_from_slice(&tail),
                            len,
                        })
                    }
                }
            }
        }
    }

    /// Adds bytes without LF to the unfinished line.
    fn extend(&mut self, bytes: &[u8]) {
        match &mut self.unfinished {
            Unfinished::Line(buffer) => {
                buffer.extend_from_slice(bytes);
                if buffer.len() > self.max_frame {
                    self.skip();
                }
            }
            Unfinished::Skipped { tail, len, .. } => {
                *len += bytes.len() as u64;
                let bytes = &bytes[bytes.len().saturating_sub(KEPT)..];
                if tail.len() + bytes.len() > 4 * KEPT {
                    let _ = tail.split_to(tail.len().saturating_sub(KEPT));
                }
                tail.extend_from_slice(bytes);
            }
        }
    }

    /// The unfinished line went over the cap: lets its memory go, but for its ends.
    fn skip(&mut self) {
        if let Unfinished::Line(buffer) = &self.unfinished {
            self.unfinished = Unfinished::Skipped {
                head: Bytes::copy_from_slice(&buffer[..buffer.len().min(KEPT)]),
                tail: BytesMut::from(&buffer[buffer.len().saturating_sub(KEPT)..]),
                len: buffer.len() as u64,
            };
        }
    }
}

fn classify_slice(line: &[u8]) -> Option<Line> {
    match kind(line) {
        Kind::Blank => None,
        Kind::Frame => Some(Line::Frame(Bytes::copy_from_slice(line))),
        Kind::Noise => Some(Line::Noise(Bytes::copy_from_slice(line))),
    }
}

fn classify(line: BytesMut, max_frame: usize) -> Option<Line> {
    if line.len() > max_frame {
        return Some(Line::TooLong {
            head: Bytes::copy_from_slice(&line[..line.len().min(KEPT)]),
            tail: Bytes::copy_from_slice(&line[line.len().saturating_sub(KEPT)..]),
            len: line.len() as u64,
        });
    }
    match kind(&line) {
        Kind::Blank => None,
        Kind::Frame => Some(Line::Frame(line.freeze())),
        Kind::Noise => Some(Line::Noise(line.freeze())),
    }
}

enum Kind {
    Blank,
    Frame,
    Noise,
}

/// Tells a message from noise by how it begins: an object, or an array of objects (a batch). What
/// begins so and is no JSON all the same shows when its envelope is read.
fn kind(line: &[u8]) -> Kind {
    let line = line.trim_ascii_start();
    match line.first() {
        None => Kind::Blank,
        Some(b'{') => Kind::Frame,
        // "[INFO] listening" is a log line.
        Some(b'[') if line[1..].trim_ascii_start().first() == Some(&b'{') => Kind::Frame,
        Some(_) => Kind::Noise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the pieces as a reader does: in place where the splitter wants it.
    fn read(splitter: &mut Splitter, piece: &[u8], lines: &mut Vec<Line>) {
        if let Some(buffer) = splitter.growing() {
            let searched = buffer.len();
            buffer.extend_from_slice(piece);
            splitter.grown(searched, |line| lines.push(line));
        } else {
            splitter.feed(piece, |line| lines.push(line));
        }
    }

    fn split<'a>(max_frame: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Line> {
        let mut splitter = Splitter::new(max_frame);
        let mut lines = Vec::new();
        for piece in pieces {
            read(&mut splitter, piece, &mut lines);
        }
        lines.extend(splitter.finish());
        assert!(!splitter.is_unfinished());
        lines
    }

    fn frame(text: &str) -> Line {
        Line::Frame(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn noise(text: &str) -> Line {
        Line::Noise(Bytes::copy_from_slice(text.as_bytes()))
    }

    const STREAM: &str = "starting…\n{\"a\":1}\n\n[INFO] up\r\n{\"b\":\"\u{2028}\u{2029}\u{85}\u{b}\u{c}\u{e9}\u{1f600}\"}\r\n \t\n[{\"c\":1}]\n{\"last\":1}";

    fn expected() -> Vec<Line> {
        vec![
            noise("starting…"),
            frame("{\"a\":1}"),
            noise("[INFO] up\r"),
            frame("{\"b\":\"\u{2028}\u{2029}\u{85}\u{b}\u{c}\u{e9}\u{1f600}\"}\r"),
            frame("[{\"c\":1}]"),
            frame("{\"last\":1}"),
        ]
    }

    #[test]
    fn a_stream_cut_at_any_two_points_gives_the_same_lines() {
        let bytes = STREAM.as_bytes();
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(
                    split(MAX_FRAME, pieces),
                    expected(),
                    "cut at {first} and {second}"
                );
            }
        }
    }

    #[test]
    fn a_stream_in_single_bytes_gives_the_same_lines() {
        assert_eq!(split(MAX_FRAME, STREAM.as_bytes().chunks(1)), expected());
    }

    #[test]
    fn a_line_over_the_cap_is_dropped_and_the_next_one_comes_through_wherever_the_stream_is_cut() {
        let long = format!("{{\"id\":1{}}}", "x".repeat(1000));
        let text = format!("{{\"a\":1}}\n{long}\n{{\"b\":2}}\n");
        let bytes = text.as_bytes();
        let expected = [
            frame("{\"a\":1}"),
            Line::TooLong {
                head: Bytes::copy_from_slice(&long.as_bytes()[..KEPT]),
                tail: Bytes::copy_from_slice(&long.as_bytes()[long.len() - KEPT..]),
                len: long.len() as u64,
            },
            frame("{\"b\":2}"),
        ];
        for at in 0..=bytes.len() {
            let lines = split(900, [&bytes[..at], &bytes[at..]]);
            assert_eq!(lines, expected, "cut at {at}");
        }
        for size in [1, 7, 255, 256, 257] {
            assert_eq!(split(900, bytes.chunks(size)), expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_stream_without_any_newline_costs_no_more_than_the_cap() {
        let mut splitter = Splitter::new(100_000);
        let mut lines = Vec::new();
        let piece = vec![b'{'; 65_536];
        for _ in 0..100 {
            read(&mut splitter, &piece, &mut lines);
            assert!(splitter.growing().is_none_or(|b| b.capacity() < 400_000));
        }
        assert_eq!(lines, []);
        assert!(matches!(
            splitter.finish(),
            Some(Line::TooLong { len: 6_553_600, .. })
        ));
    }

    #[test]
    fn frames_around_the_size_of_a_read_come_whole() {
        for len in [65_535, 65_536, 65_537, 131_072, 1 << 20] {
            let body = format!("{{{}}}", "y".repeat(len - 2));
            let text = format!("{body}\n{{\"next\":1}}\n{{\"after\":1}}\n");
            for size in [4096, 65_536] {
                let lines = split(MAX_FRAME, text.as_bytes().chunks(size));
                assert_eq!(
                    lines,
                    [frame(&body), frame("{\"next\":1}"), frame("{\"after\":1}")],
                    "{len} in pieces of {size}"
                );
            }
        }
    }

    #[test]
    fn a_frame_of_exactly_the_cap_is_taken() {
        let body = format!("{{{}}}", "z".repeat(98));
        assert_eq!(split(100, [body.as_bytes()]), [frame(&body)]);
        assert!(matches!(
            split(99, [body.as_bytes()])[..],
            [Line::TooLong { len: 100, .. }]
        ));
    }
}
