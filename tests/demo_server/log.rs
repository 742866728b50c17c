//! The record that tests read: one line per start, session and call, appended whole.
//!
//! A line is `WORD PID`, then whatever belongs to the word. Several servers may share one file.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::Arc,
};

#[derive(Debug, Clone)]
pub(crate) struct Log(Option<Arc<File>>);

impl Log {
    pub(crate) fn open(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Some(Arc::new(file))))
    }

    /// One write per line, so that lines of several processes do not mix.
    pub(crate) fn line(&self, word: &str, rest: &str) {
        let Some(file) = &self.0 else { return };
        let line = format!("{word} {} {rest}", std::process::id());
        if let Err(error) = (&**file).write_all(format!("{}\n", line.trim_end()).as_bytes()) {
            eprintln!("demo-server: cannot write the log: {error}");
        }
    }
}
