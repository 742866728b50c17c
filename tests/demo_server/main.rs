//! A small, correct MCP server that can be told to misbehave: what `make demo` and the end-to-end tests talk to.
//!
//! It speaks MCP over stdio or over Streamable HTTP, one thread per thing that waits, and keeps what it decides
//! (`session`, `tools`) apart from how messages come and go (`stdio`, `http` over `http1`).

mod cli;
mod http;
mod http1;
mod log;
mod session;
mod stdio;
mod tools;

use std::process::{Child, Command, ExitCode, Stdio};

use cli::{Options, Serve};
use log::Log;

fn main() -> ExitCode {
    let options = match cli::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("demo-server: {problem}\n{}", cli::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("demo-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> std::io::Result<ExitCode> {
    if options.ignore_term && !cli::term_is_ignored() {
        return Err(cli::restart_with_term_ignored());
    }
    let log = Log::open(options.log.as_deref())?;
    log.line("start", "");
    if let Some(code) = options.exit_at_start {
        eprintln!("demo-server: told to exit at its start");
        return Ok(ExitCode::from(code));
    }
    if options.helper {
        let helper = start_helper()?;
        log.line("helper", &helper.id().to_string());
    }
    match options.serve {
        Serve::Stdio => stdio::serve(&options, &log),
        Serve::Http(ref http) => http::serve(&options, http, &log),
    }
}

/// A child that outlives the server unless somebody ends the server's whole process group, as servers behind
/// launchers such as npx have.
fn start_helper() -> std::io::Result<Child> {
    Command::new("sleep")
        .arg("3600")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
}
