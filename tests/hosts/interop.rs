//! Servers that others built, each with another SDK, over each transport that it has.

use std::fs;

use mcpconn_tests::{
    demo_log::DemoLog,
    processes,
    proxy::Proxy,
    scratch::Scratch,
    server::Server,
    told::{End, Told},
    tools::{self, Npm, Sdk, Start},
};
use serde_json::{Value, json};

/// The name that the one server of each test has in the host's configuration.
const SERVER: &str = "server";

/// Whether it is by a JSON-RPC error or by a result, a server says what it does not take, and names it.
#[track_caller]
fn expect_refused(end: &End, named: &str) {
    match end.status.as_str() {
        "OK" => end.expect_tool_error(named),
        _ => end.expect_error("SERVER", "answered", &[named]),
    }
}

/// What the servers of `tests/servers` do, whatever they are built with; `log` is where they note cancellations.
#[track_caller]
fn does_its_work(told: &mut Told, log: &DemoLog) {
    let listed = told.list(SERVER);
    for tool in ["greet", "fail", "work"] {
        listed.expect(tool);
    }
    let greeted = told.call(SERVER, "greet", &json!({ "name": "Zoë\n\"x\"" }));
    assert_eq!(greeted.text, "Hello, Zoë\n\"x\"!");
    expect_refused(
        &told.call(SERVER, "no-such-tool", &json!({})),
        "no-such-tool",
    );
    told.call(SERVER, "fail", &json!({}))
        .expect_tool_error("this tool always fails");

    let worked = told.call(SERVER, "work", &json!({ "steps": 4 }));
    worked.expect("worked 4 steps");
    assert!(worked.progress >= 1, "{worked:?}");

    let long = told.begin(SERVER, "work", &json!({ "steps": 20_000 }));
    told.await_progress(long);
    assert!(told.cancel(long));
    told.finish(long).expect_error("CANCELED", "unknown", &[]);
    log.await_count("cancelled", 1);
    told.call(SERVER, "greet", &json!({}))
        .expect("Hello, World!");
    assert_eq!(told.info(SERVER).state, "proven");
}

fn config(url: &str, kind: &str) -> Value {
    json!({ SERVER: { "type": kind, "url": url } })
}

fn over_stdio(sdk: Sdk) {
    let Some(start) = tools::need(&format!("{sdk:?} over stdio"), sdk.find()) else {
        return;
    };
    let scratch = Scratch::new();
    let log = DemoLog::at(scratch.file("log"));
    let mut told = Told::new(
        &json!({ SERVER: start.config(&["--log", log.path(), "stdio"]) }),
        &scratch,
    );
    does_its_work(&mut told, &log);
    told.end();
}

/// How a server of `tests/servers` is reached.
#[derive(Debug, Clone, Copy)]
enum Http {
    /// Streamable HTTP.
    Streamable,
    /// Legacy HTTP+SSE.
    Legacy,
}

impl Http {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Streamable => &["http"],
            Self::Legacy => &["sse"],
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Streamable => "http",
            Self::Legacy => "sse",
        }
    }
}

/// The work, and then the server is started anew and knows no session any more: the next call is answered all the same.
fn over_http(sdk: Sdk, http: Http) {
    let Some(start) = tools::need(&format!("{sdk:?} over HTTP, {http:?}"), sdk.find()) else {
        return;
    };
    let scratch = Scratch::new();
    let log = DemoLog::at(scratch.file("log"));
    let arguments = [&["--log", log.path()], http.arguments()].concat();
    let mut server = Server::sdk(&start, &arguments);
    let proxy = Proxy::before(server.port());
    let mut told = Told::new(&config(&proxy.url_of(&server.url), http.kind()), &scratch);
    does_its_work(&mut told, &log);
    let before = told.info(SERVER).generation;

    server.child.kill();
    server = Server::sdk(&start, &arguments);
    proxy.lead_to(server.port());
    let after = told.call(SERVER, "greet", &json!({ "name": "again" }));
    after.expect("Hello, again!");
    assert!(after.generation > before, "{after:?}");
    told.end();
}

/// The server ends sessions that are idle: a call that comes after that is answered by a new session, unseen.
fn expires(sdk: Sdk) {
    let Some(start) = tools::need(&format!("the expiry of {sdk:?}"), sdk.find()) else {
        return;
    };
    let scratch = Scratch::new();
    let mut server = Server::sdk(&start, &["http", "--idle-seconds", "1"]);
    // A server that is listened to does not take the session for idle.
    let mut servers = config(&server.url, "http");
    servers[SERVER]["mcpconn"] = json!({ "listen": false });
    let mut told = Told::new(&servers, &scratch);
    let first = told.call(SERVER, "greet", &json!({}));
    first.expect("Hello, World!");
    server.child.hear_error("idle timeout");
    let second = told.call(SERVER, "greet", &json!({ "name": "again" }));
    second.expect("Hello, again!");
    assert!(second.replaced && second.generation > first.generation);
    assert_eq!(told.info(SERVER).charges, 0, "an expiry costs nothing");
    told.end();
}

#[test]
fn fastmcp_of_the_official_sdk_1_works_over_stdio() {
    over_stdio(Sdk::Mcp1);
}

#[test]
fn the_official_sdk_2_works_over_stdio() {
    over_stdio(Sdk::Mcp2);
}

#[test]
fn the_package_fastmcp_works_over_stdio() {
    over_stdio(Sdk::Fastmcp);
}

#[test]
fn rmcp_works_over_stdio() {
    over_stdio(Sdk::Rmcp);
}

#[test]
fn fastmcp_of_the_official_sdk_1_works_over_streamable_http_and_after_a_restart() {
    over_http(Sdk::Mcp1, Http::Streamable);
}

#[test]
fn the_official_sdk_2_works_over_streamable_http_and_after_a_restart() {
    over_http(Sdk::Mcp2, Http::Streamable);
}

#[test]
fn the_package_fastmcp_works_over_streamable_http_and_after_a_restart() {
    over_http(Sdk::Fastmcp, Http::Streamable);
}

#[test]
fn rmcp_works_over_streamable_http_and_after_a_restart() {
    over_http(Sdk::Rmcp, Http::Streamable);
}

#[test]
fn fastmcp_of_the_official_sdk_1_works_over_legacy_sse_and_after_a_restart() {
    over_http(Sdk::Mcp1, Http::Legacy);
}

#[test]
fn the_official_sdk_2_works_over_legacy_sse_and_after_a_restart() {
    over_http(Sdk::Mcp2, Http::Legacy);
}

#[test]
fn the_package_fastmcp_works_over_legacy_sse_and_after_a_restart() {
    over_http(Sdk::Fastmcp, Http::Legacy);
}

#[test]
fn a_session_that_the_official_sdk_2_let_expire_is_replaced() {
    expires(Sdk::Mcp2);
}

#[test]
fn a_session_that_the_package_fastmcp_let_expire_is_replaced() {
    expires(Sdk::Fastmcp);
}

fn npm(server: Npm) -> Option<Start> {
    tools::need(&format!("{server:?} over stdio"), server.find())
}

#[test]
fn server_filesystem_works_over_stdio() {
    let Some(start) = npm(Npm::Filesystem) else {
        return;
    };
    let scratch = Scratch::new();
    let folder = scratch.file("served");
    fs::create_dir(&folder).expect("a folder");
    let mut told = Told::new(&json!({ SERVER: start.config(&[&folder]) }), &scratch);

    let listed = told.list(SERVER);
    listed.expect("read_text_file");
    listed.expect("directory_tree");
    let path = format!("{folder}/Grüße.txt");
    let content = "one\n\"two\" \\ Grüße\u{2028}\n".repeat(2_000);
    told.call(
        SERVER,
        "write_file",
        &json!({ "path": path, "content": content }),
    )
    .expect("Successfully wrote");
    assert_eq!(fs::read_to_string(&path).expect("it was written"), content);
    let read = told.call(SERVER, "read_text_file", &json!({ "path": path }));
    assert_eq!(read.text, content);

    told.call(SERVER, "read_text_file", &json!({ "path": "/etc/passwd" }))
        .expect_tool_error("outside allowed directories");
    expect_refused(
        &told.call(SERVER, "read_text_file", &json!({ "path": 7 })),
        "path",
    );
    expect_refused(
        &told.call(SERVER, "no-such-tool", &json!({})),
        "no-such-tool",
    );
    told.call(SERVER, "list_directory", &json!({ "path": folder }))
        .expect("Grüße.txt");
    told.end();
}

#[test]
fn server_memory_works_over_stdio_and_remembers_over_a_restart() {
    let Some(start) = npm(Npm::Memory) else {
        return;
    };
    let scratch = Scratch::new();
    let mut config = start.config(&[]);
    config["env"] = json!({ "MEMORY_FILE_PATH": scratch.file("memory.jsonl") });
    let mut told = Told::new(&json!({ SERVER: config }), &scratch);

    told.list(SERVER).expect("search_nodes");
    let who = json!({ "name": "Zoë", "entityType": "person", "observations": ["likes \"pipes\""] });
    told.call(SERVER, "create_entities", &json!({ "entities": [who] }))
        .expect("Zoë");
    expect_refused(
        &told.call(SERVER, "create_entities", &json!({})),
        "entities",
    );
    let observation = json!({ "entityName": "Nobody", "contents": ["x"] });
    told.call(
        SERVER,
        "add_observations",
        &json!({ "observations": [observation] }),
    )
    .expect_tool_error("Nobody");
    let first = told.info(SERVER);

    // Of its own accord it never ends.
    processes::kill(u32::try_from(first.pid).expect("it runs"));
    told.await_end_of(SERVER, first.pid);
    let found = told.call(SERVER, "search_nodes", &json!({ "query": "pipes" }));
    found.expect("likes \\\"pipes\\\"");
    assert!(found.generation > first.generation);
    told.end();
}

/// server-everything has its own host for what it does when all goes well: `tests/c/everything.c`.
fn everything_after_a_restart(serve: fn(&Start) -> Server, kind: &str) {
    let Some(start) = tools::need("server-everything restarted", Npm::Everything.find()) else {
        return;
    };
    let scratch = Scratch::new();
    let mut server = serve(&start);
    let proxy = Proxy::before(server.port());
    let mut told = Told::new(&config(&proxy.url_of(&server.url), kind), &scratch);
    let sum = json!({ "a": 2, "b": 3 });
    let first = told.call(SERVER, "get-sum", &sum);
    first.expect("The sum of 2 and 3 is 5.");
    server.child.kill();
    server = serve(&start);
    proxy.lead_to(server.port());
    let second = told.call(SERVER, "get-sum", &sum);
    second.expect("The sum of 2 and 3 is 5.");
    assert!(second.generation > first.generation);
    told.end();
}

#[test]
fn server_everything_over_streamable_http_is_found_again_after_a_restart() {
    everything_after_a_restart(Server::everything, "http");
}

#[test]
fn server_everything_over_legacy_sse_is_found_again_after_a_restart() {
    everything_after_a_restart(Server::everything_sse, "sse");
}
