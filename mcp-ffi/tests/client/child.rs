//! An MCP server as a child process, in the words of the shell.

use serde_json::{Value, json};

/// What each of them does; the test adds what it does on its own, as branches of the `case`.
///
/// `$line` is the message and `$id` its id, if it has one. `answer RESULT` answers it, `say MESSAGE` says something.
/// `$noted` and `$count` are the branches' own. (What is in braces is expanded by the configuration.)
const SERVER: &str = r#"
say() { printf '%s\n' "$1"; }
answer() { say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}"; }
noted=null; count=0
while read -r line; do
    id=${line#*\"id\":}; id=${id%%,*}
    case $line in
    BRANCHES
    *'"initialize"'*) opened=$line
        answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"0"}}' ;;
    *'"tools/list"'*) answer '{"tools":[]}' ;;
    *'"ping"'*) answer '{}' ;;
    esac
done"#;

/// The entry of such a server in a configuration, under the name `server`; `ours` is its member `mcpconn`.
pub(crate) fn config(branches: &str, ours: Value) -> String {
    let script = SERVER.replace("BRANCHES", branches);
    json!({"server": {"command": "sh", "args": ["-c", script], "mcpconn": ours}}).to_string()
}
