//! A server that costs next to nothing: a thread for each connection, and answers that were made before.

use std::{
    collections::HashMap,
    io::{self, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use memchr::memmem;

use crate::{http_raw::read_head, idle::allow_many_descriptors, stdio_server::id_of};

/// How the answers of a path begin before the id, and what follows it.
type Answers = HashMap<String, Arc<(String, Vec<u8>)>>;

/// Answers every request by its path, `/bytes/json` or `/bytes/sse`; prints where it listens.
pub(crate) fn serve() -> io::Result<()> {
    allow_many_descriptors();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let streams = Arc::new(Mutex::new(Vec::new()));
    let answers = Arc::new(Mutex::new(Answers::new()));
    for connection in listener.incoming() {
        let (connection, streams, answers) = (connection?, streams.clone(), answers.clone());
        // A client that leaves ends its thread.
        thread::Builder::new()
            .stack_size(128 << 10)
            .spawn(move || answer(connection, &streams, &answers))?;
    }
    Ok(())
}

fn answer(
    connection: TcpStream,
    streams: &Mutex<Vec<TcpStream>>,
    answers: &Mutex<Answers>,
) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut connection = BufReader::new(connection);
    let mut body = Vec::new();
    let mut last = (String::new(), Arc::default());
    loop {
        let (line, length) = read_head(&mut connection)?;
        body.resize(length, 0);
        connection.read_exact(&mut body)?;
        let stream = connection.get_mut();
        if line.starts_with("GET /get/") {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
            // Held open without a thread.
            streams.lock().expect("whole").push(stream.try_clone()?);
            return Ok(());
        }
        if line.starts_with("GET") {
            stream.write_all(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        }
        if line.starts_with("DELETE") {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        }
        let Some(id) = id_of(&body) else {
            stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        };
        if memmem::find(&body, b"\"initialize\"").is_some() {
            let message = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"protocolVersion\":\"2025-11-25\",\
                 \"capabilities\":{{\"tools\":{{}}}},\"serverInfo\":{{\"name\":\"bench\",\"version\":\"1\"}}}}}}"
            );
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: 1\r\n";
            write!(
                stream,
                "{head}content-length: {}\r\n\r\n{message}",
                message.len()
            )?;
            continue;
        }
        if last.0 != line {
            let mut answers = answers.lock().expect("whole");
            let made = answers
                .entry(line.clone())
                .or_insert_with(|| Arc::new(prepared(&line)));
            last = (line, made.clone());
        }
        let (kind, rest) = &*last.1;
        let begun = match kind.as_str() {
            "text/event-stream" => format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},"),
            _ => format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},"),
        };
        let length = begun.len() + rest.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{begun}"
        );
        let slices = &mut [io::IoSlice::new(head.as_bytes()), io::IoSlice::new(rest)];
        write_all(stream, slices)?;
    }
}

fn write_all(stream: &mut TcpStream, mut slices: &mut [io::IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        let written = stream.write_vectored(slices)?;
        io::IoSlice::advance_slices(&mut slices, written);
    }
    Ok(())
}

fn prepared(line: &str) -> (String, Vec<u8>) {
    let mut path = line
        .split(['/', ' '])
        .skip(2)
        .skip_while(|part| *part == "get");
    let bytes = path.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let text = "x".repeat(bytes);
    let end = format!("\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}}}");
    match path.next() {
        Some("sse") => ("text/event-stream".into(), (end + "\n\n").into()),
        _ => ("application/json".into(), end.into()),
    }
}
