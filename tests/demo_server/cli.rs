//! What the server is told on its command line.

use std::{io, os::unix::process::CommandExt, path::PathBuf, process::Command, time::Duration};

pub(crate) const USAGE: &str = "\
usage: demo-server [OPTIONS] [stdio | http [--port N] [--idle-timeout-ms N] [--sse] [--token TOKEN]]

  --log FILE            append a line for each start, session and call
  --flap                exit shortly after the handshake, or when asked for more than the tools
  --exit-at-start CODE  exit before a word is read
  --garbage             answer with what is no MCP
  --ignore-eof          go on when stdin ends
  --ignore-term         ignore SIGTERM
  --helper              start a child that would outlive the server
  --page-size N         list the tools in pages of N

  --port N              listen on 127.0.0.1:N; 0, the default, takes a free one
  --idle-timeout-ms N   forget a session that was not used for so long
  --sse                 answer every request with an event stream
  --token TOKEN         let in only who shows this bearer token";

#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) log: Option<PathBuf>,
    pub(crate) flap: bool,
    pub(crate) exit_at_start: Option<u8>,
    pub(crate) garbage: bool,
    pub(crate) ignore_eof: bool,
    pub(crate) ignore_term: bool,
    pub(crate) helper: bool,
    pub(crate) page_size: Option<usize>,
    pub(crate) serve: Serve,
}

#[derive(Debug, Default)]
pub(crate) enum Serve {
    #[default]
    Stdio,
    Http(HttpOptions),
}

#[derive(Debug, Default)]
pub(crate) struct HttpOptions {
    pub(crate) port: u16,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) sse: bool,
    pub(crate) token: Option<String>,
}

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut arguments = arguments;
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--log" => options.log = Some(value()?.into()),
            "--flap" => options.flap = true,
            "--exit-at-start" => options.exit_at_start = Some(number(&argument, &value()?)?),
            "--garbage" => options.garbage = true,
            "--ignore-eof" => options.ignore_eof = true,
            "--ignore-term" => options.ignore_term = true,
            "--helper" => options.helper = true,
            "--page-size" => {
                options.page_size = Some(number::<usize>(&argument, &value()?)?.max(1))
            }
            "stdio" => options.serve = Serve::Stdio,
            "http" => options.serve = Serve::Http(HttpOptions::default()),
            "--port" => http(&mut options, &argument)?.port = number(&argument, &value()?)?,
            "--idle-timeout-ms" => {
                let limit = number(&argument, &value()?)?;
                http(&mut options, &argument)?.idle_timeout = Some(Duration::from_millis(limit));
            }
            "--sse" => http(&mut options, &argument)?.sse = true,
            "--token" => {
                let token = value()?;
                http(&mut options, &argument)?.token = Some(token);
            }
            _ => return Err(format!("what is {argument}?")),
        }
    }
    Ok(options)
}

fn http<'a>(options: &'a mut Options, argument: &str) -> Result<&'a mut HttpOptions, String> {
    match &mut options.serve {
        Serve::Http(http) => Ok(http),
        Serve::Stdio => Err(format!("{argument} goes with http and comes after it")),
    }
}

fn number<T: std::str::FromStr>(argument: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{argument} needs a number, not {value}"))
}

const TERM_IGNORED: &str = "DEMO_SERVER_TERM_IGNORED";

pub(crate) fn term_is_ignored() -> bool {
    std::env::var_os(TERM_IGNORED).is_some()
}

/// Replaces this process by itself with SIGTERM ignored, which an exec hands on: the shell can ask for that
/// without unsafe code. Returns only if it fails.
pub(crate) fn restart_with_term_ignored() -> io::Error {
    let this = match std::env::current_exe() {
        Ok(this) => this,
        Err(error) => return error,
    };
    Command::new("sh")
        .args(["-c", r#"trap "" TERM; exec "$@""#, "sh"])
        .arg(this)
        .args(std::env::args_os().skip(1))
        .env(TERM_IGNORED, "1")
        .exec()
}
