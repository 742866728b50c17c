use mcpconn_tests::{
    scratch::Scratch,
    server::Server,
    tools::{self, Npm},
};
use serde_json::json;

use crate::start;

#[test]
fn the_official_server_everything_works_over_stdio() {
    let Some(everything) = tools::need("server-everything over stdio", Npm::Everything.find())
    else {
        return;
    };
    let scratch = Scratch::new();
    let servers = json!({ "everything": everything.config(&["stdio"]) });
    start("everything.c", &[&servers.to_string()], &scratch)
        .finish()
        .expect_success();
}

#[test]
fn a_host_answers_what_the_official_server_everything_asks() {
    let Some(everything) = tools::need("what server-everything asks", Npm::Everything.find())
    else {
        return;
    };
    let scratch = Scratch::new();
    let servers = json!({ "everything": everything.config(&["stdio"]) });
    start("server_requests.c", &[&servers.to_string()], &scratch)
        .finish()
        .expect_success();
}

#[test]
fn the_official_server_everything_works_over_streamable_http() {
    let Some(everything) = tools::need("server-everything over HTTP", Npm::Everything.find())
    else {
        return;
    };
    let scratch = Scratch::new();
    let server = Server::everything(&everything);
    let servers = json!({ "everything": { "type": "http", "url": server.url } });
    start("everything.c", &[&servers.to_string()], &scratch)
        .finish()
        .expect_success();
}

#[test]
fn the_official_server_everything_works_over_legacy_sse() {
    let Some(everything) = tools::need("server-everything over SSE", Npm::Everything.find()) else {
        return;
    };
    let scratch = Scratch::new();
    let server = Server::everything_sse(&everything);
    let servers = json!({ "everything": { "type": "sse", "url": server.url } });
    start("everything.c", &[&servers.to_string()], &scratch)
        .finish()
        .expect_success();
}
