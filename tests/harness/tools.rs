//! The foreign programs that `tests/tools/fetch` brought, and what to do where they are missing.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

/// A server of `tests/servers`: all have the same tools, and each is built with another SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sdk {
    /// PyPI `mcp`, 1.x: FastMCP.
    Mcp1,
    /// PyPI `mcp`, 2.x.
    Mcp2,
    /// PyPI `fastmcp`.
    Fastmcp,
    /// The crate `rmcp`.
    Rmcp,
}

/// A program from npm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Npm {
    /// `@modelcontextprotocol/server-everything`.
    Everything,
    /// `@modelcontextprotocol/server-filesystem`.
    Filesystem,
    /// `@modelcontextprotocol/server-memory`.
    Memory,
    /// `@modelcontextprotocol/conformance`, the official suite.
    Conformance,
}

/// How a program is started: itself, and its first arguments.
#[derive(Debug, Clone)]
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// What comes before all other arguments.
    pub arguments: Vec<PathBuf>,
}

impl Sdk {
    /// How it is started, unless what it needs was not fetched.
    pub fn find(self) -> Result<Start, Missing> {
        let (python, script) = match self {
            Self::Mcp1 => ("python/bin/python", "mcp_1.py"),
            Self::Mcp2 => ("python-2/bin/python", "mcp_2.py"),
            Self::Fastmcp => ("python-2/bin/python", "fastmcp_server.py"),
            Self::Rmcp => {
                return Ok(Start {
                    program: find("bin/rmcp-server")?,
                    arguments: Vec::new(),
                });
            }
        };
        let script = crate::checkout().join("tests/servers").join(script);
        Ok(Start {
            program: find(python)?,
            // It leaves no compiled file in the checkout.
            arguments: vec!["-B".into(), script],
        })
    }
}

impl Npm {
    /// How it is started, unless it was not fetched.
    pub fn find(self) -> Result<Start, Missing> {
        let name = match self {
            Self::Everything => "server-everything",
            Self::Filesystem => "server-filesystem",
            Self::Memory => "server-memory",
            Self::Conformance => "conformance",
        };
        let script = format!("npm/node_modules/@modelcontextprotocol/{name}/dist/index.js");
        Ok(Start {
            program: find("bin/node")?,
            arguments: vec![find(&script)?],
        })
    }
}

impl Start {
    /// As a command, with these further arguments.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(arguments);
        command
    }

    /// As a server in a host's configuration, with these further arguments.
    pub fn config(&self, arguments: &[&str]) -> Value {
        let first = self.arguments.iter().map(|path| path.to_string_lossy());
        let all: Vec<_> = first
            .chain(arguments.iter().map(|argument| (*argument).into()))
            .collect();
        json!({ "command": self.program, "args": all })
    }
}

/// The Go command, unless it was not fetched.
pub fn go() -> Result<PathBuf, Missing> {
    find("bin/go")
}

/// Whether there is a C++ compiler; a C compiler is asked of everybody, C++ is not.
pub fn cxx() -> Result<(), Missing> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    match Command::new(&compiler).arg("--version").output() {
        Ok(_) => Ok(()),
        Err(_) => Err(Missing(compiler.into())),
    }
}

/// Something that a test needs is not there.
#[derive(Debug)]
pub struct Missing(PathBuf);

fn find(path: &str) -> Result<PathBuf, Missing> {
    let path = crate::target().join("tools").join(path);
    if path.exists() {
        Ok(path)
    } else {
        Err(Missing(path))
    }
}

/// Takes what a test needs. Where it is missing the test fails, unless the run keeps a list of what it skipped
/// (`make test` does, shows it at the end and fails as a whole).
pub fn need<T>(test: &str, found: Result<T, Missing>) -> Option<T> {
    let Missing(path) = match found {
        Ok(found) => return Some(found),
        Err(missing) => missing,
    };
    let Some(list) = std::env::var_os("MCPCONN_SKIPPED") else {
        panic!(
            "{} is missing: run tests/tools/fetch, or the tests by `make test`, which lists what it skips",
            path.display()
        );
    };
    let line = format!("{test}: {} is missing\n", path.display());
    append(Path::new(&list), &line);
    None
}

fn append(list: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(list);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| {
            panic!(
                "cannot note in {} that this was skipped: {error}",
                list.display()
            )
        });
}
