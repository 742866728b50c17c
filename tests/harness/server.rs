//! Servers that are reached over HTTP, as children of the test.

use std::{path::Path, process::Command};

use crate::{child::Child, processes, tools};

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

    /// The FastMCP server whose sessions end when idle for so long. It writes `idle timeout` to stderr for each.
    pub fn fastmcp_idle(python: &tools::Python, idle_seconds: u32) -> Self {
        let script = crate::checkout().join("tests/servers/fastmcp_idle.py");
        let mut command = Command::new(&python.program);
        Self::announced(
            command
                .arg(script)
                .arg("--idle-seconds")
                .arg(idle_seconds.to_string()),
        )
    }

    /// The official server-everything over Streamable HTTP.
    pub fn everything(everything: &tools::Everything) -> Self {
        let mut command = Command::new(&everything.node);
        // It takes any free port for 0, but then does not say which.
        command
            .arg(&everything.script)
            .arg("streamableHttp")
            .env("PORT", "0");
        let mut child = Child::start(&mut command);
        child.hear_error("listening on port");
        let port = processes::listening_port(child.pid()).expect("it says that it listens");
        Self {
            url: format!("http://127.0.0.1:{port}/mcp"),
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
