//! What the demo server wrote down of itself: see `demo_server/log.rs`.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::child::PATIENCE;

/// The record of one or more demo servers.
#[derive(Debug)]
pub struct DemoLog(PathBuf);

impl DemoLog {
    /// The record in this file, which need not be there yet.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The file, for the server's command line.
    pub fn path(&self) -> &str {
        self.0.to_str().expect("target/ has a UTF-8 path")
    }

    /// The lines that begin with this word, without it: a process id and what follows.
    pub fn lines(&self, word: &str) -> Vec<String> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines
            .filter(|(first, _)| *first == word)
            .map(|(_, rest)| rest.to_owned())
            .collect()
    }

    /// How many lines begin with this word.
    pub fn count(&self, word: &str) -> usize {
        self.lines(word).len()
    }

    /// Waits until that many lines begin with this word.
    #[track_caller]
    pub fn await_count(&self, word: &str, count: usize) {
        let until = Instant::now() + PATIENCE;
        while self.count(word) < count {
            let seen = self.count(word);
            assert!(
                Instant::now() < until,
                "the server wrote {word:?} {seen} times, not {count}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All servers that were started, and the helpers that they started themselves.
    pub fn pids(&self) -> Vec<u32> {
        let servers = self.lines("start").into_iter();
        let helpers = self.lines("helper").into_iter();
        servers
            .filter_map(|line| line.parse().ok())
            .chain(helpers.filter_map(|line| line.split_once(' ')?.1.parse().ok()))
            .collect()
    }
}
