//! What goes wrong with child processes in the field, as a host sees it: how the call ends, that it says what was
//! wrong, that the next one works or is told when it would, that other servers go on, and that nothing stays.

use std::{fs, path::PathBuf, time::Duration};

use mcpconn_tests::{
    demo_log::DemoLog,
    processes,
    scratch::Scratch,
    told::{End, Told},
};
use serde_json::{Value, json};

use crate::DEMO_SERVER;

/// The server that goes wrong, and one beside it that does not.
const SERVER: &str = "faulty";
const OTHER: &str = "other";

/// A host with both of them.
struct Host {
    told: Told,
    _scratch: Scratch,
    /// What must be gone at the end.
    pids: Vec<u32>,
}

/// The program that goes wrong as its arguments and tools say.
fn fault_server() -> PathBuf {
    mcpconn_tests::checkout().join("mcp-transport/tests/common/fault_server.py")
}

impl Host {
    /// With the fault server, told these.
    #[track_caller]
    fn of(options: &[&str]) -> Self {
        Self::with(options, json!({}))
    }

    #[track_caller]
    fn with(options: &[&str], settings: Value) -> Self {
        let mut arguments = vec![json!("-S"), json!(fault_server())];
        arguments.extend(options.iter().map(|option| json!(option)));
        Self::of_command(json!({ "command": "python3", "args": arguments, "mcpconn": settings }))
    }

    #[track_caller]
    fn of_command(config: Value) -> Self {
        Self::in_scratch(config, Scratch::new())
    }

    #[track_caller]
    fn in_scratch(config: Value, scratch: Scratch) -> Self {
        let servers = json!({ SERVER: config, OTHER: { "command": DEMO_SERVER } });
        Self {
            told: Told::new(&servers, &scratch),
            _scratch: scratch,
            pids: Vec::new(),
        }
    }

    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> End {
        self.told.call(SERVER, tool, &arguments)
    }

    /// The server takes the next call.
    #[track_caller]
    fn goes_on(&mut self) {
        self.call("echo", json!({ "text": "still there" }))
            .expect("still there");
    }

    /// The server's process, to be gone at the end, and what it started.
    fn note_processes(&mut self) -> u32 {
        let pid = u32::try_from(self.told.info(SERVER).pid).expect("it runs");
        self.pids.push(pid);
        self.pids.extend(processes::children_of(pid));
        pid
    }

    /// The other server works, and nothing of any is left.
    #[track_caller]
    fn end(mut self) {
        let echoed = self
            .told
            .call(OTHER, "echo", &json!({ "text": "unharmed" }));
        assert_eq!(echoed.text, "unharmed");
        self.told.end();
        processes::expect_gone(&self.pids, Duration::ZERO);
    }
}

/// One attempt only, so that a server that cannot be had is parked at once.
fn tried_once() -> Value {
    json!({ "budget": { "max_initial_retries": 0 } })
}

/// The server cannot be had: the call says why, the server is parked, and a further call says that.
#[track_caller]
fn is_parked(mut host: Host, status: &str, why: &[&str]) {
    host.call("echo", json!({ "text": "x" })).expect_error(
        status,
        "not_sent",
        &[&[SERVER], why].concat(),
    );
    host.told.await_state(SERVER, "parked");
    let further = host.call("echo", json!({ "text": "x" }));
    further.expect_error("PARKED", "not_sent", &[SERVER]);
    assert!(further.next_try_in_ms > 0, "{further:?}");
    host.end();
}

#[test]
fn the_real_server_behind_a_wrapper_that_dies_at_term_does_not_stay() {
    let mut host = Host::of(&["wrapper=ignore-eof,ignore-term"]);
    host.goes_on();
    host.note_processes();
    assert_eq!(host.pids.len(), 2, "the wrapper and the real one");
    host.end();
}

#[test]
fn a_server_that_exits_at_once_and_leaves_a_child_on_its_stdout_is_told_and_both_go() {
    let scratch = Scratch::new();
    let file = scratch.file("pid");
    let script = format!("sleep 1000 & echo $! > {file}; exit 0");
    let config = json!({ "command": "sh", "args": ["-c", script], "mcpconn": tried_once() });
    let mut host = Host::in_scratch(config, scratch);
    host.call("echo", json!({})).expect_error(
        "TRANSPORT",
        "not_sent",
        &[SERVER, "exited with code 0"],
    );
    let pid = fs::read_to_string(file).expect("it was written");
    host.pids.push(pid.trim().parse().expect("a pid"));
    host.end();
}

#[test]
fn a_server_killed_between_two_calls_is_replaced_for_the_second() {
    let mut host = Host::of(&[]);
    let first = host.call("echo", json!({ "text": "1" }));
    let pid = host.note_processes();
    processes::kill(pid);
    host.told.await_end_of(SERVER, pid.into());
    let second = host.call("echo", json!({ "text": "2" }));
    second.expect("2");
    assert!(second.generation > first.generation);
    host.end();
}

#[test]
fn a_call_whose_server_is_killed_may_have_run_and_the_next_is_answered() {
    let mut host = Host::of(&[]);
    host.goes_on();
    let call = host.told.begin(SERVER, "hold", &json!({}));
    host.goes_on();
    let pid = host.note_processes();
    processes::kill(pid);
    host.told
        .finish(call)
        .expect_error("TRANSPORT", "unknown", &[SERVER, "signal 9"]);
    host.goes_on();
    host.end();
}

#[test]
fn a_server_that_ignores_the_end_of_its_stdin_and_term_is_ended_all_the_same() {
    let mut host = Host::of(&["ignore-eof", "ignore-term"]);
    host.goes_on();
    host.note_processes();
    host.end();
}

#[test]
fn progress_without_end_is_no_answer_to_the_handshake() {
    let settings = json!({ "connect_timeout_ms": 700, "budget": { "max_initial_retries": 0 } });
    let host = Host::with(&["only-progress"], settings);
    is_parked(host, "TIMEOUT", &["did not answer `initialize` within"]);
}

#[test]
fn a_server_that_is_silent_for_long_is_waited_for_within_its_time_to_start() {
    let scratch = Scratch::new();
    let file = scratch.file("speak");
    let options = [
        json!("-S"),
        json!(fault_server()),
        json!(format!("silent-until={file}")),
    ];
    let mut host = Host::in_scratch(json!({ "command": "python3", "args": options }), scratch);
    let call = host
        .told
        .begin(SERVER, "echo", &json!({ "text": "at last" }));
    host.told.await_state(SERVER, "connecting");
    // Its silence holds up nobody else.
    host.told
        .call(OTHER, "echo", &json!({ "text": "meanwhile" }))
        .expect("meanwhile");
    assert_eq!(host.told.info(SERVER).state, "connecting");
    fs::write(file, "").expect("a file");
    host.told.finish(call).expect("at last");
    host.end();
}

#[test]
fn a_server_that_exits_with_1_at_once_is_told_with_what_it_said() {
    let options = ["exit=1", "stderr=no module named x\n"];
    is_parked(
        Host::with(&options, tried_once()),
        "TRANSPORT",
        &["exited with code 1", "no module named x"],
    );
}

#[test]
fn a_server_that_exits_with_0_after_reading_initialize_is_told() {
    is_parked(
        Host::with(&["exit-on-initialize"], tried_once()),
        "TRANSPORT",
        &["exited with code 0"],
    );
}

#[test]
fn a_server_that_is_no_mcp_server_is_told_with_what_it_said() {
    let settings = json!({ "connect_timeout_ms": 5000, "budget": { "max_initial_retries": 0 } });
    is_parked(
        Host::with(&["garbage", "never-answer"], settings),
        "TIMEOUT",
        &["initialize", "this is line 2 of a web server"],
    );
}

#[test]
fn banners_and_log_lines_between_frames_are_passed_over() {
    let mut host = Host::of(&["noise"]);
    host.goes_on();
    let dump = "INFO something\n\n{\n  \"pretty\": 1\n}\n";
    let answer =
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"found"}]}}"#;
    host.call("raw", json!({ "text": format!("{dump}{answer}\n{dump}") }))
        .expect("found");
    host.goes_on();
    host.end();
}

#[test]
fn line_ends_of_other_kinds_come_through_inside_of_strings() {
    let mut host = Host::of(&[]);
    // Those that JSON allows in a string as they are.
    let text = "a\u{2028}b\u{2029}c\u{85}d";
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":$ID,"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
    );
    assert_eq!(host.call("raw", json!({ "text": answer })).text, text);
    let escaped = "\u{b}\u{c}\r\n\t\u{0}";
    assert_eq!(host.call("echo", json!({ "text": escaped })).text, escaped);
    host.goes_on();
    host.end();
}

#[test]
fn a_byte_of_another_encoding_spoils_a_character_and_nothing_else() {
    let mut host = Host::of(&[]);
    let answer =
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"dash ~ dash"}]}}"#;
    let hex: String = answer
        .bytes()
        .map(|byte| match byte {
            b'~' => "97".to_owned(),
            byte => format!("{byte:02x}"),
        })
        .chain(["0a".to_owned()])
        .collect();
    let end = host.call("bytes", json!({ "hex": hex }));
    end.expect("dash \u{fffd} dash");
    host.goes_on();
    host.end();
}

#[test]
fn characters_split_over_two_writes_come_whole() {
    let mut host = Host::of(&[]);
    let text = "Grüße 🦀 漢字";
    let head =
        r#"{"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": ""#.len();
    for at in head..head + text.len() {
        let end = host.call("split", json!({ "text": text, "at": at }));
        assert_eq!(end.text, text, "cut at {at}");
    }
    host.end();
}

#[test]
fn frames_around_64_kib_and_of_10_mib_come_whole() {
    let mut host = Host::of(&[]);
    const ENVELOPE: usize = r#"{"jsonrpc":"2.0","id":1,"result":}"#.len();
    for bytes in [65_535, 65_536, 65_537, 10 << 20] {
        let end = host.call("size", json!({ "bytes": bytes }));
        assert_eq!((end.status.as_str(), end.tool_error), ("OK", false));
        // The id may have more digits than one.
        assert!(
            (bytes - 3..=bytes).contains(&(end.length + ENVELOPE)),
            "{}",
            end.length
        );
        assert!(end.json.starts_with("{\"x\":\"xxx"));
    }
    host.goes_on();
    host.end();
}

#[test]
fn bytes_without_a_newline_for_ever_end_the_attempt_and_cost_no_more_than_the_cap() {
    let settings = json!({ "connect_timeout_ms": 2000, "budget": { "max_initial_retries": 0 } });
    let host = Host::with(&["flood"], settings);
    is_parked(host, "TIMEOUT", &["initialize"]);
}

#[test]
fn the_last_answer_before_the_exit_is_delivered_also_without_its_newline() {
    let mut host = Host::of(&[]);
    for end in ["\n", ""] {
        host.goes_on();
        let pid = host.note_processes();
        let last = host.call("exit", json!({ "answer": true, "end": end }));
        assert_eq!(last.status, "OK", "{last:?}");
        assert!(last.json.contains("last"), "{last:?}");
        // Until its end is seen a call may still go to it.
        host.told.await_end_of(SERVER, pid.into());
    }
    host.goes_on();
    host.end();
}

#[test]
fn stderr_of_256_kib_before_and_in_a_call_holds_up_nothing() {
    let mut host = Host::of(&["stderr-first=262144"]);
    host.goes_on();
    assert_eq!(
        host.call("stderr", json!({ "bytes": 262_144 })).status,
        "OK"
    );
    host.goes_on();
    host.end();
}

#[test]
fn the_last_words_of_a_server_that_dies_in_a_call_are_in_the_error() {
    let mut host = Host::of(&[]);
    let words = "Traceback: the disk is full\n";
    host.call("exit", json!({ "code": 3, "stderr": words }))
        .expect_error(
            "TRANSPORT",
            "unknown",
            &[SERVER, "exited with code 3", "the disk is full"],
        );
    host.goes_on();
    host.end();
}

#[test]
fn a_server_that_reads_no_more_holds_up_no_close_and_what_did_not_begin_was_not_sent() {
    let mut host = Host::of(&["ignore-eof"]);
    assert_eq!(host.call("deaf", json!({})).status, "OK");
    let large = json!({ "text": "x".repeat(500 << 10) });
    let first = host.told.begin(SERVER, "echo", &large);
    let second = host.told.begin(SERVER, "echo", &large);
    host.note_processes();
    // The other server is not held up by it.
    host.told
        .call(OTHER, "echo", &json!({ "text": "meanwhile" }))
        .expect("meanwhile");
    assert_eq!(host.told.close(), [first, second]);
    // Of the first a part is in the pipe, which cannot be taken back.
    host.told
        .finish(first)
        .expect_error("CLOSED", "unknown", &[]);
    host.told
        .finish(second)
        .expect_error("CLOSED", "not_sent", &[]);
    host.told.end();
    processes::expect_gone(&host.pids, Duration::ZERO);
}

#[test]
fn large_requests_and_large_answers_cross_without_a_standstill() {
    let mut host = Host::of(&[]);
    let text = "y".repeat(300 << 10);
    let calls: Vec<_> = (0..8)
        .map(|_| host.told.begin(SERVER, "echo", &json!({ "text": text })))
        .collect();
    for call in calls {
        let end = host.told.finish(call);
        assert_eq!(end.status, "OK", "{}", end.status);
        assert!(end.length > text.len());
    }
    host.end();
}

#[test]
fn what_comes_before_the_handshakes_answer_disturbs_nothing() {
    let mut host = Host::of(&["early"]);
    host.goes_on();
    host.end();
}

#[test]
fn a_change_and_a_question_before_the_answer_to_a_call_hold_it_up_not() {
    let mut host = Host::of(&[]);
    let params =
        json!({ "message": "which?", "requestedSchema": { "type": "object", "properties": {} } });
    let end = host.call("elicit", json!({ "params": params }));
    assert_eq!(end.status, "OK", "{end:?}");
    // This host offered no elicitation.
    assert!(end.json.contains("-3260"), "{end:?}");
    host.goes_on();
    host.end();
}

#[test]
fn an_answer_after_the_calls_time_is_dropped_and_the_next_call_has_its_own() {
    let mut host = Host::of(&[]);
    host.goes_on();
    let late = host
        .told
        .try_to_begin(None, SERVER, "hold", &json!({}), Duration::from_millis(150))
        .expect("it is taken");
    host.told
        .finish(late)
        .expect_error("TIMEOUT", "unknown", &[SERVER]);
    // Now it answers that one, and then this.
    assert_eq!(host.call("release", json!({})).json, "{}");
    host.goes_on();
    // It was told that nobody waits any more.
    assert!(!host.call("canceled", json!({})).json.contains("[]"));
    host.end();
}

#[test]
fn a_question_of_the_server_with_the_id_of_our_call_is_no_answer_to_it() {
    let mut host = Host::of(&[]);
    let end = host.call("ask", json!({ "method": "ping" }));
    assert_eq!(end.status, "OK", "{end:?}");
    assert!(end.json.contains(r#""result""#), "{end:?}");
    host.goes_on();
    host.end();
}

#[test]
fn ids_that_come_back_as_text_or_with_a_fraction_are_understood() {
    let mut host = Host::of(&[]);
    for kind in ["string", "float"] {
        assert_eq!(host.call("id", json!({ "as": kind })).status, "OK");
    }
    host.end();
}

#[test]
fn lists_whose_cursors_repeat_alternate_or_bring_nothing_come_to_an_end() {
    for pages in ["repeat", "alternate", "empty"] {
        let scratch = Scratch::new();
        let log = DemoLog::at(scratch.file("log"));
        let mut host = Host::of(&[&format!("pages={pages}"), &format!("log={}", log.path())]);
        let listed = host.told.list(SERVER);
        assert!(
            pages == "empty" || listed.text.contains("again"),
            "{listed:?}"
        );
        host.goes_on();
        let asked = fs::read_to_string(log.path()).expect("it was written");
        assert!(asked.matches("tools/list").count() < 1_100);
        host.end();
    }
}

#[test]
fn one_malformed_tool_does_not_take_the_others_along() {
    let mut host = Host::of(&["pages=odd"]);
    let listed = host.told.list(SERVER);
    listed.expect("good");
    listed.expect("better");
    host.end();
}

#[test]
fn two_hundred_changes_at_once_cost_a_few_listings() {
    let scratch = Scratch::new();
    let log = DemoLog::at(scratch.file("log"));
    let mut host = Host::of(&[&format!("log={}", log.path())]);
    host.told.list(SERVER).expect("echo");
    assert_eq!(host.call("burst", json!({ "count": 200 })).status, "OK");
    host.goes_on();
    host.told.list(SERVER).expect("echo");
    let asked = fs::read_to_string(log.path()).expect("it was written");
    let listings = asked.matches("tools/list").count();
    assert!((1..=4).contains(&listings), "{listings}");
    host.end();
}

#[test]
fn a_change_with_every_listing_makes_no_storm() {
    let scratch = Scratch::new();
    let log = DemoLog::at(scratch.file("log"));
    let mut host = Host::of(&["changes", &format!("log={}", log.path())]);
    for _ in 0..5 {
        host.told.list(SERVER).expect("echo");
    }
    host.goes_on();
    let asked = fs::read_to_string(log.path()).expect("it was written");
    let listings = asked.matches("tools/list").count();
    assert!((1..=7).contains(&listings), "{listings}");
    host.end();
}

#[test]
fn the_oldest_revision_and_the_one_that_was_asked_for_are_taken() {
    for revision in ["2024-11-05", "2025-11-25"] {
        let mut host = Host::of(&[&format!("version={revision}")]);
        host.goes_on();
        host.end();
    }
}

#[test]
fn a_revision_of_nobody_is_named_and_parks_the_server_at_once() {
    is_parked(
        Host::of(&["version=9999-01-01"]),
        "PROTOCOL",
        &["9999-01-01"],
    );
}

#[test]
fn a_command_that_is_not_in_the_path_of_its_server_is_named() {
    let config = json!({ "command": "demo-server", "env": { "PATH": "/usr/bin:/bin" } });
    is_parked(Host::of_command(config), "CONFIG", &["demo-server", "PATH"]);
}

#[test]
fn a_working_directory_that_is_not_there_is_told_from_a_missing_program() {
    let config = json!({ "command": DEMO_SERVER, "cwd": "/nowhere/at/all" });
    is_parked(Host::of_command(config), "CONFIG", &["/nowhere/at/all"]);
}

#[test]
fn what_an_old_process_leaves_behind_does_not_touch_the_new_one() {
    let mut host = Host::of(&["orphan=hold,ignore"]);
    host.goes_on();
    let old = host.note_processes();
    assert!(host.pids.len() >= 2, "it has a child");
    processes::kill(old);
    host.told.await_end_of(SERVER, old.into());
    // Its child still holds the old stdout, while the new process answers.
    host.goes_on();
    let generation = host.told.info(SERVER).generation;
    processes::expect_gone(&host.pids, Duration::from_secs(30));
    host.goes_on();
    let after = host.told.info(SERVER);
    assert_eq!(
        (after.generation, after.state.as_str()),
        (generation, "proven")
    );
    host.note_processes();
    host.end();
}
