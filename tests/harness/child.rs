//! A program that a test runs and watches: what it says is heard line by line, and it never outlives the test.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Child as Process, ChildStdin, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long anything may take that should take no time worth mentioning, on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: Process,
    stdin: Option<ChildStdin>,
    stdout: Lines,
    stderr: Lines,
}

impl Child {
    /// Starts it with all three of its standard streams in our hands.
    pub fn start(command: &mut Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        Self {
            stdin: process.stdin.take(),
            stdout: Lines::of(process.stdout.take().expect("stdout was piped")),
            stderr: Lines::of(process.stderr.take().expect("stderr was piped")),
            name,
            process,
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Writes a line to its stdin.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        writeln!(stdin, "{line}").unwrap_or_else(|error| {
            panic!("{} does not listen: {error}\n{}", self.name, self.said())
        });
    }

    /// Ends its stdin.
    pub fn end_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for the next line of its stdout that contains `part`, and gives that line.
    pub fn hear(&mut self, part: &str) -> String {
        match self.stdout.next_with(part, PATIENCE) {
            Some(line) => line,
            None => panic!(
                "{} never said {part:?}; it said:\n{}",
                self.name,
                self.said()
            ),
        }
    }

    /// Waits for the next line of its stderr that contains `part`, and gives that line.
    pub fn hear_error(&mut self, part: &str) -> String {
        match self.stderr.next_with(part, PATIENCE) {
            Some(line) => line,
            None => panic!(
                "{} never wrote {part:?} to stderr; it said:\n{}",
                self.name,
                self.said()
            ),
        }
    }

    /// How many lines of its stderr so far contain `part`.
    pub fn count_errors(&self, part: &str) -> usize {
        self.stderr.count(part)
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }

    /// Waits for its end; it may take `limit`.
    pub fn finish_within(mut self, limit: Duration) -> Finished {
        self.end_stdin();
        let until = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.process.try_wait().expect("it is our child") {
                break status;
            }
            if Instant::now() > until {
                self.kill();
                panic!(
                    "{} did not end within {limit:?}; it said:\n{}",
                    self.name,
                    self.said()
                );
            }
            thread::sleep(Duration::from_millis(5));
        };
        Finished {
            stdout: self.stdout.all(),
            stderr: self.stderr.all(),
            name: std::mem::take(&mut self.name),
            status,
        }
    }

    /// Waits for its end, for as long as anything may take.
    pub fn finish(self) -> Finished {
        self.finish_within(PATIENCE)
    }

    fn said(&self) -> String {
        format!(
            "{}--- stderr ---\n{}",
            self.stdout.so_far(),
            self.stderr.so_far()
        )
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A program that ended.
#[derive(Debug)]
pub struct Finished {
    name: String,
    /// How it ended.
    pub status: ExitStatus,
    /// All that it wrote to stdout.
    pub stdout: String,
    /// All that it wrote to stderr.
    pub stderr: String,
}

impl Finished {
    /// Fails the test, with all that was said, unless the program ended with status 0.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        let Self {
            name,
            status,
            stdout,
            stderr,
        } = &self;
        let how = match status.signal() {
            Some(signal) => format!("was killed by signal {signal}"),
            None => format!("ended with {status}"),
        };
        assert!(
            status.success(),
            "{name} {how}; it said:\n{stdout}--- stderr ---\n{stderr}"
        );
        self
    }
}

/// The lines of a stream, gathered by a thread of their own so that the writer is never held up.
#[derive(Debug)]
struct Lines {
    shared: Arc<(Mutex<Gathered>, Condvar)>,
    /// The first line that `next_with` has not looked at.
    next: usize,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Gathered {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::new(Gathered::default()), Condvar::new()));
        let ours = shared.clone();
        let reader = thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n') {
                let Ok(line) = line else { break };
                let line = String::from_utf8_lossy(&line).into_owned();
                ours.0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .lines
                    .push(line);
                ours.1.notify_all();
            }
            ours.0.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
            ours.1.notify_all();
        });
        Self {
            shared,
            next: 0,
            reader: Some(reader),
        }
    }

    fn next_with(&mut self, part: &str, limit: Duration) -> Option<String> {
        let until = Instant::now() + limit;
        let (mutex, changed) = &*self.shared;
        let mut gathered = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            while let Some(line) = gathered.lines.get(self.next) {
                self.next += 1;
                if line.contains(part) {
                    return Some(line.clone());
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if gathered.ended || left.is_zero() {
                return None;
            }
            let waited = changed.wait_timeout(gathered, left);
            gathered = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn count(&self, part: &str) -> usize {
        let gathered = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        gathered
            .lines
            .iter()
            .filter(|line| line.contains(part))
            .count()
    }

    fn so_far(&self) -> String {
        let gathered = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        gathered
            .lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect()
    }

    /// Everything, once the writer is gone. A grandchild that inherited the stream could hold it open for ever,
    /// so that is not waited for longer than a moment.
    fn all(&mut self) -> String {
        let until = Instant::now() + Duration::from_secs(2);
        let (mutex, changed) = &*self.shared;
        let mut gathered = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        while !gathered.ended && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            gathered = changed
                .wait_timeout(gathered, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let ended = gathered.ended;
        drop(gathered);
        if let (true, Some(reader)) = (ended, self.reader.take()) {
            drop(reader.join());
        }
        self.so_far()
    }
}
