//! A test with a process of its own, because it counts that process's threads.
#![cfg(target_os = "linux")]

use std::{fs, time::Duration};

use mcpconn::{CallOptions, Client, ClientOptions, EventKind, Scope};
use serde_json::json;

/// As much of a server as a scoped session asks: `initialize`, and calls.
const SERVER: &str = r#"
while read -r line; do
    id=${line#*\"id\":}; id=${id%%,*}
    case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"0"}}' ;;
    *'"tools/call"'*) result='{"content":[]}' ;;
    *) continue ;;
    esac
    echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$result}"
done"#;

#[test]
fn the_processes_of_all_scopes_of_a_server_are_started_from_one_thread() {
    let client = Client::new(ClientOptions::default()).unwrap();
    let config = json!({"server": {"command": "sh", "args": ["-c", SERVER]}}).to_string();
    client.configure("", &config).unwrap();
    for n in 0..6 {
        let scope = Scope::new("", &n.to_string());
        let id = client
            .call_tool(&scope, "server", "any", "", CallOptions::default())
            .unwrap();
        let ended = loop {
            assert!(client.wait(Some(Duration::from_secs(30))).unwrap());
            let mut events = std::iter::from_fn(|| client.next_event());
            if let Some(ended) = events.find(|event| event.id == id) {
                break ended;
            }
        };
        assert!(matches!(ended.kind, EventKind::Result(_)), "{ended:?}");
    }
    let spawners = fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.trim() == "mcp-spawner");
    assert_eq!(spawners.count(), 1);
}
