//! MCP over stdio: the process is the session.

use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
    sync::Arc,
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    cli::Options,
    log::Log,
    session::{Action, Outcome, Session, failure},
};

const PARSE_ERROR: i64 = -32700;

pub(crate) fn serve(options: &Options, log: &Log) -> io::Result<ExitCode> {
    let session = Arc::new(Session::new("1".to_owned(), options, log));
    for line in io::stdin().lock().split(b'\n') {
        let line = line?;
        if options.garbage {
            write_line(b"Welcome! {\"this\": is no MCP \xff\xfe")?;
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(message) => receive(&session, &message)?,
            Err(_) => send(&failure(None, PARSE_ERROR, "that is no JSON"))?,
        }
    }
    session.log("close", "");
    if options.ignore_eof {
        loop {
            thread::park();
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn receive(session: &Arc<Session>, message: &Value) -> io::Result<()> {
    match session.accept(message) {
        Action::Nothing => {}
        Action::Reply(answer) => send(&answer)?,
        Action::Run(running) => {
            thread::spawn(move || {
                // A host that does not listen any more closes our stdin too, and that ends us.
                match running.run(&mut |message| drop(send(&message))) {
                    Outcome::Answer(answer) => drop(send(&answer)),
                    Outcome::Cancelled => {}
                    Outcome::Expire(answer) => {
                        drop(send(&answer));
                        std::process::exit(0);
                    }
                }
            });
        }
        Action::Exit(delay) => exit_after(delay),
    }
    Ok(())
}

/// Ends the process then, while it goes on serving till then.
pub(crate) fn exit_after(delay: Duration) {
    if delay.is_zero() {
        std::process::exit(1);
    }
    thread::spawn(move || {
        thread::sleep(delay);
        std::process::exit(1);
    });
}

fn send(message: &Value) -> io::Result<()> {
    write_line(message.to_string().as_bytes())
}

fn write_line(line: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(line)?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}
