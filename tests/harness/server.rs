//! Servers that are reached over HTTP, as children of the test.

use std::{path::Path, process::Command};

use crate::{child::Child, processes, tools::Start};

/// A running server and where it is reached.
#[derive(Debug)]
pub struct Server {
    /// The process, for what it says and for its end.
    pub child: Child,
    /// The URL of its endpoint.
    pub url: String,
}

impl Server {
    /// Starts a program that says `listening on URL` on its stdout.
    fn announced(command: &mut Command) -> Self {
        let mut child = Child::start(command);
        let line = child.hear("listening on ");
        let (_, url) = line
            .split_once("listening on ")
            .expect("that was asked for");
        Self {
            url: url.to_owned(),
            child,
        }
    }

    /// The demo server over Streamable HTTP, with these further arguments after `http`.
    pub fn demo(demo_server: &Path, before: &[&str], after: &[&str]) -> Self {
        Self::announced(
            Command::new(demo_server)
                .args(before)
                .arg("http")
                .args(after),
        )
    }

    /// A server of `tests/servers`, with these arguments of its own.
    pub fn sdk(start: &Start, arguments: &[&str]) -> Self {
        Self::announced(&mut start.command(arguments))
    }

    /// The official server-everything over Streamable HTTP.
    pub fn everything(everything: &Start) -> Self {
        Self::everything_over(everything, "streamableHttp", "listening on port", "/mcp")
    }

    /// The official server-everything over legacy HTTP+SSE.
    pub fn everything_sse(everything: &Start) -> Self {
        Self::everything_over(everything, "sse", "running on port", "/sse")
    }

    fn everything_over(everything: &Start, over: &str, ready: &str, path: &str) -> Self {
        // It takes any free port for 0, but then does not say which.
        let mut child = Child::start(everything.command(&[over]).env("PORT", "0"));
        child.hear_error(ready);
        let port = processes::listening_port(child.pid()).expect("it says that it listens");
        Self {
            url: format!("http://127.0.0.1:{port}{path}"),
            child,
        }
    }

    /// The port in its URL.
    pub fn port(&self) -> u16 {
        let authority = self.url.trim_start_matches("http://").split('/').next();
        let port = authority.and_then(|authority| authority.rsplit_once(':')?.1.parse().ok());
        port.expect("our servers' URLs have a port")
    }
}
