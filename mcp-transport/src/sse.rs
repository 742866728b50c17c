//! Decoding of Server-Sent Events (`text/event-stream`): bytes in, events out.
//!
//! The decoder does no I/O. Feed it what was read, in whatever pieces it came, and take events until it has none:
//!
//! ```
//! use mcp_transport::sse::Decoder;
//!
//! let mut decoder = Decoder::new(1024);
//! decoder.feed("id: 7\ndata: {\"jso".into());
//! assert!(decoder.next_event()?.is_none());
//! decoder.feed("n\":true}\n\n".into());
//! let event = decoder.next_event()?.expect("the blank line ended the event");
//! assert_eq!(event.data, "{\"json\":true}");
//! assert_eq!(decoder.last_event_id(), Some(&b"7"[..]));
//! # Ok::<(), mcp_transport::sse::TooLarge>(())
//! ```

use std::{fmt, mem, time::Duration};

use bytes::{Bytes, BytesMut};

use crate::text::Length;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One event of the stream.
///
/// `Debug` shows of its data only how long it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// The event's type; empty where the stream named none, which means `message`.
    pub kind: Bytes,
    /// The `data` lines joined by a line feed. A single line that came in one piece is a slice of that piece.
    pub data: Bytes,
    /// The id that this very event set, if it set one; see [`Decoder::last_event_id`] for the one in force.
    pub id: Option<Bytes>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("kind", &self.kind)
            .field("data", &Length(&self.data))
            .field("id", &self.id)
            .finish()
    }
}

impl Event {
    /// Whether it is of the type that carries MCP messages.
    pub fn is_message(&self) -> bool {
        self.kind.is_empty() || self.kind == "message"
    }
}

/// An event grew over the decoder's limit. The stream cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    /// The limit, in bytes.
    pub limit: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event is larger than {} bytes", self.limit)
    }
}

impl std::error::Error for TooLarge {}

/// Turns the pieces of one stream into its events.
pub struct Decoder {
    limit: usize,
    /// What was fed and is not decoded yet.
    input: Bytes,
    /// The beginning of a line whose end has not come yet.
    unfinished: BytesMut,
    /// The last line ended with CR: a LF that follows belongs to it.
    after_carriage_return: bool,
    /// No line was read yet: a byte order mark may stand before the first.
    at_start: bool,
    pending: Pending,
    last_event_id: Option<Bytes>,
    retry: Option<Duration>,
}

/// What the lines of the event under way said so far.
#[derive(Default)]
struct Pending {
    kind: Bytes,
    data: Data,
    id: Option<Bytes>,
}

#[derive(Default)]
enum Data {
    #[default]
    None,
    /// One line, kept as the slice that it is.
    Line(Bytes),
    /// Several, joined.
    Lines(BytesMut),
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Line(line) => line.len(),
            Self::Lines(lines) => lines.len(),
        }
    }

    fn push(&mut self, line: Bytes) {
        *self = match mem::take(self) {
            Self::None => Self::Line(line),
            Self::Line(first) => {
                let mut lines = BytesMut::with_capacity(first.len() + 1 + line.len());
                lines.extend_from_slice(&first);
                lines.extend_from_slice(b"\n");
                lines.extend_from_slice(&line);
                Self::Lines(lines)
            }
            Self::Lines(mut lines) => {
                lines.extend_from_slice(b"\n");
                lines.extend_from_slice(&line);
                Self::Lines(lines)
            }
        }
    }
}

impl Pending {
    fn len(&self) -> usize {
        self.kind.len() + self.data.len() + self.id.as_ref().map_or(0, Bytes::len)
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder at the beginning of a stream, with the most bytes that one event (and one line) may have.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            input: Bytes::new(),
            unfinished: BytesMut::new(),
            after_carriage_return: false,
            at_start: true,
            pending: Pending::default(),
            last_event_id: None,
            retry: None,
        }
    }

    /// Takes the next piece of the stream. Take all events before feeding again: otherwise the pieces are joined
    /// by copying.
    pub fn feed(&mut self, piece: Bytes) {
        if self.input.is_empty() {
            self.input = piece;
        } else {
            let mut joined = BytesMut::with_capacity(self.input.len() + piece.len());
            joined.extend_from_slice(&self.input);
            joined.extend_from_slice(&piece);
            self.input = joined.freeze();
        }
    }

    /// The next whole event, or `None` until more is fed. What stands unfinished when the stream ends was never an
    /// event.
    ///
    /// # Errors
    /// [`TooLarge`] if an event grew over the limit; the decoder is of no use afterwards.
    pub fn next_event(&mut self) -> Result<Option<Event>, TooLarge> {
        while let Some(line) = self.next_line()? {
            if line.is_empty() {
                if let Some(event) = self.dispatch() {
                    return Ok(Some(event));
                }
            } else {
                self.field(&line);
                self.check(0)?;
            }
        }
        Ok(None)
    }

    /// The id of the last event that had one: where the stream can be taken up again (`Last-Event-ID`).
    pub fn last_event_id(&self) -> Option<&[u8]> {
        self.last_event_id.as_deref()
    }

    /// How long the server asked to wait before the stream is taken up again, if it did.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// The beginning of the data of the event under way, of at most `limit` bytes: what is known of one that was
    /// too large.
    pub(crate) fn data_under_way(&self, limit: usize) -> Bytes {
        let line: Bytes;
        let data = match &self.pending.data {
            Data::Line(line) => &line[..],
            Data::Lines(lines) => &lines[..],
            Data::None => {
                let parts = self.unfinished.iter().chain(&self.input);
                line = parts.copied().take(limit).collect();
                let value = line.strip_prefix(b"data:").unwrap_or_default();
                value.strip_prefix(b" ").unwrap_or(value)
            }
        };
        Bytes::copy_from_slice(&data[..data.len().min(limit)])
    }

    fn check(&self, more: usize) -> Result<(), TooLarge> {
        if self.pending.len() + self.unfinished.len() + more > self.limit {
            Err(TooLarge { limit: self.limit })
        } else {
            Ok(())
        }
    }

    fn next_line(&mut self) -> Result<Option<Bytes>, TooLarge> {
        if self.after_carriage_return && !self.input.is_empty() {
            self.after_carriage_return = false;
            if self.input[0] == b'\n' {
                let _ = self.input.split_to(1);
            }
        }
        let Some(end) = memchr::memchr2(b'\n', b'\r', &self.input) else {
            self.check(self.input.len())?;
            self.unfinished.extend_from_slice(&self.input);
            self.input = Bytes::new();
            return Ok(None);
        };
        self.check(end)?;
        self.after_carriage_return = self.input[end] == b'\r';
        let tail = self.input.split_to(end);
        let _ = self.input.split_to(1);
        let mut line = if self.unfinished.is_empty() {
            tail
        } else {
            self.unfinished.extend_from_slice(&tail);
            mem::take(&mut self.unfinished).freeze()
        };
        if mem::take(&mut self.at_start) && line.starts_with(BYTE_ORDER_MARK) {
            line = line.slice(BYTE_ORDER_MARK.len()..);
        }
        Ok(Some(line))
    }

    fn field(&mut self, line: &Bytes) {
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let space = usize::from(line.get(colon + 1) == Some(&b' '));
                (&line[..colon], line.slice(colon + 1 + space..))
            }
            None => (&line[..], Bytes::new()),
        };
        match name {
            b"data" => self.pending.data.push(value),
            // Copied, for they outlive the event, and a slice would keep the whole piece alive.
            b"event" => self.pending.kind = Bytes::copy_from_slice(&value),
            b"id" if !value.contains(&0) => self.pending.id = Some(Bytes::copy_from_slice(&value)),
            b"retry" => {
                if let Some(milliseconds) = parse_digits(&value) {
                    self.retry = Some(Duration::from_millis(milliseconds));
                }
            }
            // A comment has an empty name, and other fields mean nothing.
            _ => {}
        }
    }

    /// The event under way is complete. Without a data line it is no event, but its id counts.
    fn dispatch(&mut self) -> Option<Event> {
        let Pending { kind, data, id } = mem::take(&mut self.pending);
        if let Some(id) = &id {
            self.last_event_id = (!id.is_empty()).then(|| id.clone());
        }
        let data = match data {
            Data::None => return None,
            Data::Line(line) => line,
            Data::Lines(lines) => lines.freeze(),
        };
        Some(Event { kind, data, id })
    }
}

fn parse_digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a stream that came in these pieces, with what was left in force at its end.
    fn decode<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> (Vec<Event>, Option<Vec<u8>>, Option<Duration>) {
        let mut decoder = Decoder::new(1 << 20);
        let mut events = Vec::new();
        for piece in pieces {
            decoder.feed(Bytes::copy_from_slice(piece));
            while let Some(event) = decoder.next_event().expect("within the limit") {
                events.push(event);
            }
        }
        let last = decoder.last_event_id().map(<[u8]>::to_vec);
        (events, last, decoder.retry())
    }

    fn event(kind: &str, data: &str, id: Option<&str>) -> Event {
        Event {
            kind: Bytes::copy_from_slice(kind.as_bytes()),
            data: Bytes::copy_from_slice(data.as_bytes()),
            id: id.map(|id| Bytes::copy_from_slice(id.as_bytes())),
        }
    }

    fn message(data: &str) -> Event {
        event("", data, None)
    }

    /// A stream with its events, its last id and its retry time in milliseconds.
    type Case = (&'static str, Vec<Event>, Option<&'static str>, Option<u64>);

    fn streams() -> Vec<Case> {
        vec![
            ("", vec![], None, None),
            ("\n\r\n\r\r", vec![], None, None),
            ("data: a\n\n", vec![message("a")], None, None),
            ("data: a\r\n\r\n", vec![message("a")], None, None),
            ("data: a\r\r", vec![message("a")], None, None),
            (
                "data: a\n\r\ndata:b\r\n\rdata:  c\r\n\n",
                vec![message("a"), message("b"), message(" c")],
                None,
                None,
            ),
            (
                "data: a\r\n\ndata: b\n\r\n",
                vec![message("a"), message("b")],
                None,
                None,
            ),
            (
                "data: a\rdata: b\r\ndata: c\n\n",
                vec![message("a\nb\nc")],
                None,
                None,
            ),
            (
                "data\n\ndata:\n\ndata: \n\ndata\ndata\n\n",
                vec![message(""), message(""), message(""), message("\n")],
                None,
                None,
            ),
            // What stands unfinished at the end was no event.
            ("data: a\n\ndata: b\n", vec![message("a")], None, None),
            ("data: a\n\ndata: b", vec![message("a")], None, None),
            (
                "id: 1\ndata: a\n\nid: 2\ndata: b\n",
                vec![event("", "a", Some("1"))],
                Some("1"),
                None,
            ),
            // A byte order mark is one only at the start.
            ("\u{feff}data: a\n\n", vec![message("a")], None, None),
            (
                "\u{feff}\u{feff}data: a\n\n\u{feff}data: b\n\n",
                vec![],
                None,
                None,
            ),
            ("\u{feff}\ndata: a\n\n", vec![message("a")], None, None),
            (
                ": hello\n:\n\ndata: a\n: in between\ndata: b\n\n",
                vec![message("a\nb")],
                None,
                None,
            ),
            (
                "event: ping\ndata: a\n\ndata: b\n\n",
                vec![event("ping", "a", None), message("b")],
                None,
                None,
            ),
            (
                "event: a\nevent: b\ndata: x\n\nevent: lost\n\ndata: y\n\n",
                vec![event("b", "x", None), message("y")],
                None,
                None,
            ),
            (
                "Data: no\ndata : no\n data: no\nfield\nother: x\ndata: a:b: c\n\n",
                vec![message("a:b: c")],
                None,
                None,
            ),
            (
                "id: 7\ndata: a\n\ndata: b\n\n",
                vec![event("", "a", Some("7")), message("b")],
                Some("7"),
                None,
            ),
            ("id: 7\n\n", vec![], Some("7"), None),
            (
                "id: 7\ndata:\n\n",
                vec![event("", "", Some("7"))],
                Some("7"),
                None,
            ),
            (
                "id: 7\ndata: a\n\nid\ndata: b\n\n",
                vec![event("", "a", Some("7")), event("", "b", Some(""))],
                None,
                None,
            ),
            (
                "id: 7\n\nid: 8\0\ndata: a\n\n",
                vec![message("a")],
                Some("7"),
                None,
            ),
            ("retry: 1500\n\n", vec![], None, Some(1500)),
            (
                "retry: 10\nretry: 1e3\nretry:\nretry: -5\nretry: +5\nretry: 99999999999999999999999\n",
                vec![],
                None,
                Some(10),
            ),
            (
                "data: ä€𝄞\u{2028}\u{85}x\n\n",
                vec![message("ä€𝄞\u{2028}\u{85}x")],
                None,
                None,
            ),
        ]
    }

    #[test]
    fn each_stream_has_its_events() {
        for (stream, events, last, retry) in streams() {
            let decoded = decode([stream.as_bytes()]);
            assert_eq!(decoded.0, events, "{stream:?}");
            assert_eq!(decoded.1.as_deref(), last.map(str::as_bytes), "{stream:?}");
            assert_eq!(decoded.2, retry.map(Duration::from_millis), "{stream:?}");
        }
    }

    #[test]
    fn cut_at_any_points_a_stream_has_the_same_events() {
        for (stream, ..) in streams() {
            let stream = stream.as_bytes();
            let whole = decode([stream]);
            assert_eq!(decode(stream.chunks(1)), whole, "byte by byte: {stream:?}");
            for first in 0..=stream.len() {
                for second in first..=stream.len() {
                    let pieces = [&stream[..first], &stream[first..second], &stream[second..]];
                    assert_eq!(decode(pieces), whole, "cut: {pieces:?}");
                }
            }
        }
    }

    #[test]
    fn all_streams_one_after_another_are_the_same_at_every_cut() {
        let stream: String = streams()
            .iter()
            .map(|stream| format!("{}\n\n", stream.0))
            .collect();
        let whole = decode([stream.as_bytes()]);
        assert!(whole.0.len() > 25);
        for size in 1..stream.len() {
            assert_eq!(
                decode(stream.as_bytes().chunks(size)),
                whole,
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn a_lone_carriage_return_ends_the_event_without_waiting_for_what_follows() {
        let mut decoder = Decoder::new(100);
        decoder.feed("data: a\r\r".into());
        assert_eq!(decoder.next_event(), Ok(Some(message("a"))));
        decoder.feed("\n".into());
        decoder.feed("data: b\r".into());
        assert_eq!(decoder.next_event(), Ok(None));
        decoder.feed("\n".into());
        assert_eq!(decoder.next_event(), Ok(None));
        decoder.feed("\r".into());
        assert_eq!(decoder.next_event(), Ok(Some(message("b"))));
    }

    #[test]
    fn what_is_fed_before_all_events_were_taken_is_not_lost() {
        let mut decoder = Decoder::new(100);
        decoder.feed("data: a\n\ndata: b\n\nda".into());
        assert_eq!(decoder.next_event(), Ok(Some(message("a"))));
        decoder.feed("ta: c\n\n".into());
        assert_eq!(decoder.next_event(), Ok(Some(message("b"))));
        assert_eq!(decoder.next_event(), Ok(Some(message("c"))));
        assert_eq!(decoder.next_event(), Ok(None));
    }

    #[test]
    fn a_data_line_in_one_piece_is_a_slice_of_it() {
        let piece = Bytes::from_static(b"id: 1\nevent: message\ndata: {\"a\":1}\r\n\r\n");
        let mut decoder = Decoder::new(100);
        decoder.feed(piece.clone());
        let event = decoder.next_event().expect("small").expect("whole");
        assert!(event.is_message());
        assert_eq!(event.data, "{\"a\":1}");
        assert!(piece.as_ptr_range().contains(&event.data.as_ptr()));
    }

    #[test]
    fn an_event_may_be_as_large_as_the_limit_and_no_larger() {
        let limit = 100;
        let overlong = |stream: &str, size: usize| {
            let mut decoder = Decoder::new(limit);
            for piece in stream.as_bytes().chunks(size) {
                decoder.feed(Bytes::copy_from_slice(piece));
                loop {
                    match decoder.next_event() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(error) => return Some(error),
                    }
                }
            }
            None
        };
        let data = |length: usize| format!("data:{}", "x".repeat(length));
        for size in [1, 7, 1000] {
            assert_eq!(overlong(&format!("{}\n\n", data(95)), size), None);
            // Many events together may be larger.
            assert_eq!(overlong(&format!("{}\n\n", data(95)).repeat(9), size), None);
            assert_eq!(overlong(&": comment\n".repeat(99), size), None);
            let too_large = Some(TooLarge { limit });
            assert_eq!(overlong(&format!("{}\n\n", data(96)), size), too_large);
            assert_eq!(
                overlong(&format!("{}\n", data(40)).repeat(3), size),
                too_large
            );
            assert_eq!(overlong(&"x".repeat(101), size), too_large);
            assert_eq!(
                overlong(&format!(":{}\n", "x".repeat(100)), size),
                too_large
            );
            assert_eq!(
                overlong(&format!("id: {0}\nevent: {0}\n", "x".repeat(60)), size),
                too_large
            );
        }
        let too_large = TooLarge { limit };
        assert_eq!(too_large.to_string(), "an event is larger than 100 bytes");
    }
}
