//! The last bytes of a stream.

use std::{collections::VecDeque, fmt};

/// Keeps the last bytes that went through it, and no more than it is told to.
pub(super) struct Tail {
    bytes: VecDeque<u8>,
    max: usize,
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail")
            .field("bytes", &self.bytes.len())
            .field("max", &self.max)
            .finish()
    }
}

impl Tail {
    pub(super) fn new(max: usize) -> Self {
        Self {
            bytes: VecDeque::new(),
            max,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.max)..];
        let over = (self.bytes.len() + bytes.len()).saturating_sub(self.max);
        self.bytes.drain(..over);
        self.bytes.extend(bytes);
    }

    /// What is kept, beginning with a whole line where that leaves anything.
    pub(super) fn text(&self) -> Vec<u8> {
        let (a, b) = self.bytes.as_slices();
        let bytes = [a, b].concat();
        if bytes.len() < self.max {
            return bytes;
        }
        // Full, so that its first line has most likely lost its beginning.
        match memchr::memchr(b'\n', &bytes) {
            Some(at) if !bytes[at..].trim_ascii().is_empty() => bytes[at + 1..].to_vec(),
            _ => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_bytes_are_kept_and_a_cut_line_is_left_out() {
        let mut tail = Tail::new(10);
        tail.push(b"ab\ncd\n");
        assert_eq!(tail.text(), b"ab\ncd\n");
        tail.push(b"efgh\nij\n");
        assert_eq!(tail.text(), b"efgh\nij\n");
        tail.push(b"0123456789abcdef");
        assert_eq!(tail.text(), b"6789abcdef");
        assert_eq!(tail.bytes.len(), 10);
    }

    #[test]
    fn a_tail_without_a_whole_line_is_shown_as_it_is() {
        let mut tail = Tail::new(4);
        tail.push(b"xxxxxxx\n");
        assert_eq!(tail.text(), b"xxx\n");
    }
}
