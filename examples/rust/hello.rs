//! Calls a tool of an MCP server and prints its answer: hello ECHO-SERVER-COMMAND

use std::process::ExitCode;

use mcpconn::{CallOptions, Client, ClientOptions, Error, EventKind, Scope};

fn call_echo(command: &str) -> Result<String, Error> {
    let client = Client::new(ClientOptions::default())?;
    let servers = serde_json::json!({"mcpServers": {"demo": {"command": command}}});
    client.configure("", &servers.to_string())?;
    let arguments = r#"{"text": "hello"}"#;
    let call = client.call_tool(
        &Scope::default(),
        "demo",
        "echo",
        arguments,
        CallOptions::default(),
    )?;
    loop {
        client.wait(None)?;
        while let Some(event) = client.next_event() {
            match event.kind {
                EventKind::Result(answer) if event.id == call => {
                    return Ok(answer.text().to_owned());
                }
                EventKind::Error(error) if event.id == call => return Err(error),
                _ => {}
            }
        }
    }
}

fn main() -> ExitCode {
    match call_echo(&std::env::args().nth(1).unwrap_or_default()) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("hello: {error}");
            ExitCode::FAILURE
        }
    }
}
