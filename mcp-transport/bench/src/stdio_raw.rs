//! The same bytes without any JSON: what no client can do for less.

use std::{
    io::{Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::stdio::Load;

pub(crate) fn tool(bytes: usize) -> String {
    format!("s{bytes}")
}

pub(crate) fn params(bytes: usize) -> String {
    format!("{{\"name\":\"{}\",\"arguments\":{{}}}}", tool(bytes))
}

pub(crate) struct Client {
    server: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn start() -> Self {
        let mut server = Command::new(std::env::current_exe().expect("a path"))
            .arg("serve-stdio")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut client = Self {
            input: server.stdin.take(),
            output: server.stdout.take().expect("a pipe"),
            server,
            buffer: vec![0; 64 << 10],
        };
        client.write(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}\n");
        client.read_lines(1);
        client.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        client
    }

    pub(crate) fn calls(&mut self, load: Load) {
        let params = params(load.bytes);
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1000,\"method\":\"tools/call\",\"params\":{params}}}\n"
        );
        let lines = line.repeat(load.in_flight);
        for _ in 0..load.batches {
            self.write(lines.as_bytes());
            self.read_lines(load.in_flight);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.input
            .as_mut()
            .expect("it is open")
            .write_all(bytes)
            .expect("it reads");
    }

    /// Reads so many lines, and keeps them as a whole as a client must.
    fn read_lines(&mut self, lines: usize) -> usize {
        let mut kept = Vec::new();
        let mut left = lines;
        while left > 0 {
            let read = self.output.read(&mut self.buffer).expect("it writes");
            assert!(read > 0, "the server has gone");
            let bytes = &self.buffer[..read];
            left -= memchr::memchr_iter(b'\n', bytes).count();
            kept.extend_from_slice(bytes);
        }
        kept.len()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.input.take();
        let _ = self.server.wait();
    }
}
