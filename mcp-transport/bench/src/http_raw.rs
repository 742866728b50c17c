//! The same bytes over keep-alive connections, one for each call in flight, without any JSON.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use crate::http::{Load, Target};

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","arguments":{}}}"#;

pub(crate) struct Client {
    connections: Vec<BufReader<TcpStream>>,
    request: String,
    answers: Vec<Vec<u8>>,
}

impl Client {
    pub(crate) fn connect(target: &Target, load: Load) -> Self {
        let connections = (0..load.in_flight).map(|_| connect(target)).collect();
        Self {
            connections,
            request: post(target, load, CALL),
            answers: vec![Vec::new(); load.in_flight],
        }
    }

    pub(crate) fn calls(&mut self, load: Load) {
        for _ in 0..load.batches {
            for connection in &mut self.connections {
                let written = connection.get_mut().write_all(self.request.as_bytes());
                written.expect("it reads");
            }
            for (connection, answer) in self.connections.iter_mut().zip(&mut self.answers) {
                // A client gives the answer away, and has memory of its own for the next.
                *answer = read_answer(connection);
                assert!(answer.len() >= load.bytes);
            }
        }
    }
}

/// Connects, does the handshake, calls once and says good-bye.
pub(crate) fn connect_and_call(target: &Target, load: Load) {
    let mut connection = connect(target);
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        CALL,
    ] {
        let request = post(target, load, body);
        let written = connection.get_mut().write_all(request.as_bytes());
        written.expect("it reads");
        read_answer(&mut connection);
    }
    let request = format!(
        "DELETE {} HTTP/1.1\r\nhost: {}\r\nmcp-session-id: 1\r\n\r\n",
        target.path(load),
        target.address
    );
    let written = connection.get_mut().write_all(request.as_bytes());
    written.expect("it reads");
    read_answer(&mut connection);
}

fn connect(target: &Target) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(&target.address).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    BufReader::new(stream)
}

fn post(target: &Target, load: Load, body: &str) -> String {
    format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-session-id: 1\r\n\
         mcp-protocol-version: 2025-11-25\r\ncontent-length: {}\r\n\r\n{body}",
        target.path(load),
        target.address,
        body.len()
    )
}

fn read_answer(connection: &mut BufReader<TcpStream>) -> Vec<u8> {
    let (_, length) = read_head(connection).expect("it answers");
    let mut answer = Vec::with_capacity(length);
    let read = connection.take(length as u64).read_to_end(&mut answer);
    assert_eq!(read.expect("it answers"), length);
    answer
}

/// The request line or status line, and the length of the body.
pub(crate) fn read_head(connection: &mut impl BufRead) -> std::io::Result<(String, usize)> {
    let (mut first, mut length, mut line) = (String::new(), 0, String::new());
    loop {
        line.clear();
        if connection.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if line == "\r\n" {
            return Ok((first, length));
        }
        const LENGTH: &str = "content-length:";
        if first.is_empty() {
            first.clone_from(&line);
        } else if line.len() > LENGTH.len() && line[..LENGTH.len()].eq_ignore_ascii_case(LENGTH) {
            length = line[LENGTH.len()..].trim().parse().unwrap_or(0);
        }
    }
}
