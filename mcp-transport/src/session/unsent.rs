//! The answers to a server's own requests that it has not read, and when no more of its requests are taken.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;

/// How much may wait to be written before no request is taken, in bytes.
const MOST: usize = 1 << 20;

/// What an answer costs besides its bytes.
const EACH: usize = 256;

/// How much of an answer of the host's counts: one that is large by itself must not shut the server up.
const OF_HOSTS: usize = 1024;

/// Counts the answers that were handed to a transport and are not written.
#[derive(Debug, Default)]
pub(super) struct Unsent(Arc<AtomicUsize>);

/// One answer, until its transport needs it no more.
struct Answer {
    bytes: Bytes,
    cost: usize,
    unsent: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Answer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Answer {
    // With a lock of the transport's held, perhaps: it calls nobody.
    fn drop(&mut self) {
        self.unsent.fetch_sub(self.cost, Ordering::Relaxed);
    }
}

impl Unsent {
    /// Whether so much waits that the server is better not heard out when it asks. Not to read on would be no way, for
    /// a server that writes and reads by turns would never come to reading.
    pub(super) fn is_full(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= MOST
    }

    /// The same bytes, which count as long as they are kept: an answer that was given without the host.
    pub(super) fn ours(&self, bytes: Bytes) -> Bytes {
        let cost = bytes.len() + EACH;
        self.counted(bytes, cost)
    }

    /// As [`ours`](Self::ours): an answer of the host's.
    pub(super) fn of_host(&self, bytes: Bytes) -> Bytes {
        let cost = bytes.len().min(OF_HOSTS) + EACH;
        self.counted(bytes, cost)
    }

    fn counted(&self, bytes: Bytes, cost: usize) -> Bytes {
        self.0.fetch_add(cost, Ordering::Relaxed);
        let unsent = self.0.clone();
        Bytes::from_owner(Answer {
            bytes,
            cost,
            unsent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_counts_no_more_and_of_the_hosts_only_a_part_ever_does() {
        let unsent = Unsent::default();
        let large = || Bytes::from(vec![b'x'; MOST]);
        let of_host = unsent.of_host(large());
        assert_eq!(of_host, large());
        assert!(!unsent.is_full());
        let ours = unsent.ours(large());
        assert!(unsent.is_full());
        drop(ours);
        assert!(!unsent.is_full());
        drop(of_host);
        assert_eq!(unsent.0.load(Ordering::Relaxed), 0);
    }
}
