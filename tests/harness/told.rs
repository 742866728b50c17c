//! The host that does what it is told: `tests/c/told.c`, as a test drives it.

use std::{
    os::unix::process::CommandExt,
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    c_host::{self, Language, Link},
    child::{Child, Finished, PATIENCE},
    scratch::Scratch,
};

/// What every line that it says begins with.
const TOLD: &str = "{\"told\"";

/// A running host with one client. A test that drops it without `end` has it killed.
#[derive(Debug)]
pub struct Told {
    /// The process.
    pub child: Child,
}

/// A call that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallId(u64);

/// How a call ended, or that it was refused at once.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct End {
    /// `OK`, or the name of the error behind `MCPCONN_ERR_`.
    pub status: String,
    /// Of an error: `not_sent`, `rejected`, `answered` or `unknown`; empty if it is about no call that was taken.
    pub outcome: String,
    /// For a person.
    pub text: String,
    /// The result, or the JSON-RPC error; its first 64 KiB.
    pub json: String,
    /// How long the result is.
    pub length: usize,
    /// A result that says that it failed.
    pub tool_error: bool,
    /// Which session answered.
    pub generation: u64,
    /// The session was replaced during the call.
    pub replaced: bool,
    /// How often progress was heard.
    pub progress: u32,
    /// Of a server that waits or is parked.
    pub next_try_in_ms: u64,
}

/// How it stands with a server.
#[derive(Debug, Deserialize)]
pub struct Info {
    /// The name behind `MCPCONN_STATE_`, in small letters.
    pub state: String,
    /// The number of a `mcpconn_reason`.
    pub reason: i32,
    /// Charges against its budget.
    pub charges: u32,
    /// Live scoped sessions.
    pub sessions: u32,
    /// Its newest session.
    pub generation: u64,
    /// When it is tried again; 0 if that is not planned.
    pub next_try_in_ms: u64,
    /// The process of its home session, or -1.
    pub pid: i64,
}

impl Told {
    /// Starts it with these servers.
    #[track_caller]
    pub fn new(servers: &Value, scratch: &Scratch) -> Self {
        let program = c_host::compile("told.c", Language::C99, Link::Shared, scratch);
        let mut command = c_host::command(&program, &[&servers.to_string()]);
        // A group of its own, so that a signal to all of it meets the host and not the test.
        Self {
            child: Child::start(command.process_group(0)),
        }
    }

    /// Calls a tool by the home session of a server and waits for the end.
    #[track_caller]
    pub fn call(&mut self, server: &str, tool: &str, arguments: &Value) -> End {
        let id = self.begin(server, tool, arguments);
        self.finish(id)
    }

    /// Begins a call, which must be taken.
    #[track_caller]
    pub fn begin(&mut self, server: &str, tool: &str, arguments: &Value) -> CallId {
        self.try_to_begin(None, server, tool, arguments, PATIENCE)
            .unwrap_or_else(|refused| panic!("{tool} was refused: {refused:?}"))
    }

    /// Begins a call in a scope, if there is one, that may take so long.
    pub fn try_to_begin(
        &mut self,
        scope: Option<&str>,
        server: &str,
        tool: &str,
        arguments: &Value,
        limit: Duration,
    ) -> Result<CallId, Box<End>> {
        let scope = scope.unwrap_or("-");
        let limit = limit.as_millis();
        self.begun(&format!(
            "begin\t{scope}\t{server}\t{tool}\t{arguments}\t{limit}"
        ))
    }

    /// Asks a server for its tools and waits for the end.
    #[track_caller]
    pub fn list(&mut self, server: &str) -> End {
        let begun = self.begun(&format!("list\t{server}\t{}", PATIENCE.as_millis()));
        let id = begun.unwrap_or_else(|refused| panic!("the listing was refused: {refused:?}"));
        self.finish(id)
    }

    fn begun(&mut self, line: &str) -> Result<CallId, Box<End>> {
        let said = self.say(line);
        match said["id"].as_u64() {
            Some(id) => Ok(CallId(id)),
            None => Err(Box::new(read(said))),
        }
    }

    /// Waits for progress of a call.
    pub fn await_progress(&mut self, id: CallId) {
        self.say(&format!("progress\t{}", id.0));
    }

    /// Waits for the end of a call.
    pub fn finish(&mut self, id: CallId) -> End {
        read(self.say(&format!("finish\t{}", id.0)))
    }

    /// Asks for the end of a call; says whether it was in flight.
    pub fn cancel(&mut self, id: CallId) -> bool {
        self.say(&format!("cancel\t{}", id.0))["status"] == "OK"
    }

    /// How it stands with a server.
    pub fn info(&mut self, server: &str) -> Info {
        read(self.say(&format!("info\t{server}")))
    }

    /// Waits until a server is in a state.
    pub fn await_state(&mut self, server: &str, state: &str) -> Info {
        read(self.say(&format!("await\t{server}\t{state}")))
    }

    /// Waits until the process of a server's home session is another one, or none.
    #[track_caller]
    pub fn await_end_of(&mut self, server: &str, pid: i64) {
        let until = Instant::now() + PATIENCE;
        while self.info(server).pid == pid {
            assert!(Instant::now() < until, "process {pid} is still its server");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the states of a server said so far.
    pub fn seen(&mut self, server: &str) -> Vec<String> {
        read(self.say(&format!("seen\t{server}"))["seen"].take())
    }

    /// Gives it these servers and no others.
    pub fn configure(&mut self, servers: &Value) -> Value {
        self.say(&format!("configure\t{servers}"))
    }

    /// Wakes a server.
    pub fn wake(&mut self, server: &str) {
        assert_eq!(self.say(&format!("wake\t{server}"))["status"], "OK");
    }

    /// Closes the client; says which calls ended with that and had not been asked for.
    pub fn close(&mut self) -> Vec<CallId> {
        let ended: Vec<u64> = read(self.say("close")["ended"].take());
        ended.into_iter().map(CallId).collect()
    }

    /// Forks, and leaves the child behind with copies of all the host's descriptors; gives its process id.
    pub fn fork(&mut self) -> u32 {
        read(self.say("fork")["pid"].take())
    }

    /// Shows that a program which the host starts by fork and exec gets no descriptor of the client.
    pub fn fork_and_exec(&mut self) {
        self.say("fork exec");
    }

    /// Frees the client, and shows that the host has no child and no descriptor more than at its start.
    #[track_caller]
    pub fn end(mut self) -> Finished {
        self.child.tell("end");
        self.child.finish().expect_success()
    }

    fn say(&mut self, line: &str) -> Value {
        self.child.tell(line);
        let said = self.child.hear(TOLD);
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }
}

impl End {
    /// Fails the test unless it is a result that says this.
    #[track_caller]
    pub fn expect(&self, text: &str) {
        assert_eq!(self.status, "OK", "{self:?}");
        assert!(!self.tool_error, "{self:?}");
        assert!(self.text.contains(text), "{self:?}");
    }

    /// Fails the test unless the tool says that it failed, with these words.
    #[track_caller]
    pub fn expect_tool_error(&self, text: &str) {
        assert_eq!(self.status, "OK", "{self:?}");
        assert!(self.tool_error, "{self:?}");
        assert!(self.text.contains(text), "{self:?}");
    }

    /// Fails the test unless it is this error with this outcome, and says each of these.
    #[track_caller]
    pub fn expect_error(&self, status: &str, outcome: &str, texts: &[&str]) {
        let is = (self.status.as_str(), self.outcome.as_str());
        assert_eq!(is, (status, outcome), "{self:?}");
        for text in texts {
            assert!(
                self.text.contains(text),
                "it does not say {text:?}: {self:?}"
            );
        }
    }
}

#[track_caller]
fn read<T: for<'a> Deserialize<'a>>(said: Value) -> T {
    serde_json::from_value(said).expect("the host tells what this test understands")
}
