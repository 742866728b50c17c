use std::process::Command;

use mcpconn_tests::{
    child::{Child, PATIENCE},
    demo_log::DemoLog,
    processes,
    scratch::Scratch,
};
use serde_json::{Value, json};

use crate::DEMO_SERVER;

struct Peer {
    child: Child,
    log: DemoLog,
    _scratch: Scratch,
}

impl Peer {
    fn start(arguments: &[&str]) -> Self {
        let scratch = Scratch::new();
        let log = DemoLog::at(scratch.file("log"));
        let mut command = Command::new(DEMO_SERVER);
        let child = Child::start(command.args(["--log", log.path()]).args(arguments));
        Self {
            child,
            log,
            _scratch: scratch,
        }
    }

    fn initialized(arguments: &[&str]) -> Self {
        let mut peer = Self::start(arguments);
        peer.initialize();
        peer.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        peer
    }

    fn initialize(&mut self) -> Value {
        let client = json!({ "name": "test", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        self.ask("initialize", params)
    }

    fn send(&mut self, message: Value) {
        self.child.tell(&message.to_string());
    }

    fn hear(&mut self) -> Value {
        serde_json::from_str(&self.child.hear("")).expect("each line is JSON")
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }));
        self.hear()
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {answer}"))
}

#[test]
fn the_handshake_agrees_on_the_revision_that_was_asked_for() {
    let answer = Peer::start(&[]).initialize();
    assert_eq!(answer["id"], 7);
    assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answer["result"]["serverInfo"]["name"], "demo-server");
}

#[test]
fn an_unknown_revision_is_answered_with_the_newest() {
    let mut peer = Peer::start(&[]);
    let answer = peer.ask("initialize", json!({ "protocolVersion": "1999-01-01" }));
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
}

#[test]
fn tools_are_not_served_before_the_handshake_is_complete() {
    let mut peer = Peer::start(&[]);
    peer.initialize();
    assert_eq!(peer.ask("tools/list", json!({}))["error"]["code"], -32600);
    assert_eq!(peer.ask("ping", json!({}))["result"], json!({}));
}

#[test]
fn every_tool_has_a_description_a_schema_and_annotations() {
    let mut peer = Peer::initialized(&[]);
    let answer = peer.ask("tools/list", json!({}));
    let tools = answer["result"]["tools"].as_array().expect("a list");
    assert_eq!(tools.len(), 8);
    for tool in tools {
        assert!(tool["description"].is_string(), "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
    }
}

#[test]
fn the_list_of_tools_comes_in_pages_when_told() {
    let mut peer = Peer::initialized(&["--page-size", "5"]);
    let first = peer.ask("tools/list", json!({}));
    assert_eq!(first["result"]["tools"].as_array().map(Vec::len), Some(5));
    let second = peer.ask(
        "tools/list",
        json!({ "cursor": first["result"]["nextCursor"] }),
    );
    assert_eq!(second["result"]["tools"].as_array().map(Vec::len), Some(3));
    assert_eq!(second["result"].get("nextCursor"), None);
    assert_eq!(
        peer.ask("tools/list", json!({ "cursor": "nonsense" }))["error"]["code"],
        -32602
    );
}

#[test]
fn tools_answer() {
    let mut peer = Peer::initialized(&[]);
    assert_eq!(
        text(&peer.call("echo", json!({ "text": "Grüße" }))),
        "Grüße"
    );
    assert_eq!(text(&peer.call("add", json!({ "a": 2, "b": 3 }))), "5");
    assert_eq!(text(&peer.call("counter", json!({}))), "1");
    assert_eq!(text(&peer.call("counter", json!({}))), "2");
    let whoami = format!("pid {} session 1", peer.child.pid());
    assert_eq!(text(&peer.call("whoami", json!({}))), whoami);
    assert_eq!(peer.call("fail", json!({}))["result"]["isError"], true);
    assert_eq!(peer.log.count("call"), 6);
}

#[test]
fn bad_requests_are_answered_with_the_codes_of_json_rpc() {
    let mut peer = Peer::initialized(&[]);
    peer.child.tell("this is no JSON");
    assert_eq!(peer.hear()["error"]["code"], -32700);
    peer.send(json!([1, 2]));
    assert_eq!(peer.hear()["error"]["code"], -32600);
    assert_eq!(
        peer.ask("no/such/method", json!({}))["error"]["code"],
        -32601
    );
    assert_eq!(
        peer.call("no-such-tool", json!({}))["error"]["code"],
        -32602
    );
    assert_eq!(peer.call("echo", json!({}))["result"]["isError"], true);
}

#[test]
fn sleep_tells_its_progress_when_it_is_asked_for() {
    let mut peer = Peer::initialized(&[]);
    let params =
        json!({ "name": "sleep", "arguments": { "ms": 120 }, "_meta": { "progressToken": "p" } });
    let first = peer.ask("tools/call", params);
    assert_eq!(first["method"], "notifications/progress");
    assert_eq!(
        first["params"],
        json!({ "progressToken": "p", "progress": 50, "total": 120 })
    );
    assert_eq!(peer.hear()["params"]["progress"], 100);
    assert_eq!(peer.hear()["params"]["progress"], 120);
    assert_eq!(text(&peer.hear()), "slept 120 ms");
}

#[test]
fn a_cancelled_call_stops_and_is_not_answered() {
    let mut peer = Peer::initialized(&[]);
    let params = json!({ "name": "sleep", "arguments": { "ms": 60_000 } });
    peer.send(json!({ "jsonrpc": "2.0", "id": "long", "method": "tools/call", "params": params }));
    let params = json!({ "requestId": "long" });
    peer.send(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    peer.log.await_count("cancelled", 1);
    assert_eq!(
        peer.ask("ping", json!({}))["id"],
        7,
        "nothing came before the ping's answer"
    );
}

#[test]
fn a_call_that_takes_long_holds_up_no_other() {
    let mut peer = Peer::initialized(&[]);
    let params = json!({ "name": "sleep", "arguments": { "ms": 60_000 } });
    peer.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }));
    assert_eq!(
        text(&peer.call("echo", json!({ "text": "meanwhile" }))),
        "meanwhile"
    );
}

#[test]
fn it_ends_when_stdin_ends() {
    let mut peer = Peer::initialized(&[]);
    peer.ask("ping", json!({}));
    let log = DemoLog::at(peer.log.path());
    peer.child.finish().expect_success();
    assert_eq!((log.count("open"), log.count("close")), (1, 1));
}

#[test]
fn crash_ends_it_without_an_answer() {
    let mut peer = Peer::initialized(&[]);
    peer.send(
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "crash" } }),
    );
    processes::expect_gone(&[peer.child.pid()], PATIENCE);
    let end = peer.child.finish();
    assert_eq!(end.status.code(), Some(3));
    assert_eq!(
        end.stdout.lines().count(),
        1,
        "only initialize was answered"
    );
}

#[test]
fn a_flapping_server_ends_by_itself_shortly_after_the_handshake() {
    let mut peer = Peer::start(&["--flap"]);
    peer.initialize();
    peer.ask("ping", json!({}));
    peer.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    processes::expect_gone(&[peer.child.pid()], PATIENCE);
}

#[test]
fn a_flapping_server_ends_when_a_tool_is_called() {
    let mut peer = Peer::initialized(&["--flap"]);
    peer.ask("tools/list", json!({}));
    peer.send(
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "crash" } }),
    );
    let end = peer.child.finish();
    assert_eq!(end.stdout.lines().count(), 2, "the call was not answered");
}

#[test]
fn it_exits_at_its_start_when_told() {
    let end = Peer::start(&["--exit-at-start", "42"]).child.finish();
    assert_eq!(end.status.code(), Some(42));
    assert_eq!(end.stdout, "");
    assert!(end.stderr.contains("told to exit"));
}

#[test]
fn garbage_is_no_json() {
    let mut peer = Peer::start(&["--garbage"]);
    peer.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize" }));
    let line = peer.child.hear("Welcome!");
    assert!(serde_json::from_str::<Value>(&line).is_err());
}

#[test]
fn it_ignores_eof_and_sigterm_when_told_and_starts_a_helper() {
    let mut peer = Peer::start(&["--ignore-eof", "--ignore-term", "--helper"]);
    peer.initialize();
    let pid = peer.child.pid();
    let [server, helper] = peer.log.pids()[..] else {
        panic!("{:?}", peer.log.pids())
    };
    assert_eq!(server, pid, "it restarts itself in place");
    assert_eq!(processes::children_of(pid), [helper]);

    peer.child.end_stdin();
    peer.log.await_count("close", 1);
    for signal in ["-TERM", "-KILL"] {
        let status = Command::new("kill")
            .args([signal, &pid.to_string()])
            .status();
        assert!(
            status.expect("kill runs").success(),
            "it was there to be sent {signal}"
        );
    }
    processes::expect_gone(&[pid], PATIENCE);
    assert!(processes::runs(helper), "a helper outlives its server");
    // It ignores SIGTERM as its server did.
    Command::new("kill")
        .args(["-KILL", &helper.to_string()])
        .status()
        .expect("kill runs");
    processes::expect_gone(&[helper], PATIENCE);
}

#[test]
fn an_unknown_argument_is_told_with_the_usage() {
    let end = Peer::start(&["--no-such-thing"]).child.finish();
    assert_eq!(end.status.code(), Some(2));
    assert!(end.stderr.contains("what is --no-such-thing?"));
    assert!(end.stderr.contains("usage: demo-server"));
}
