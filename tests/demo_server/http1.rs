//! As much of HTTP/1.1 as a server on loopback needs: requests in, responses out, connections kept.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
};

/// Far more than any client sends; what is longer is refused.
const MAX_HEAD: u64 = 64 * 1024;
const MAX_BODY: usize = 64 * 1024 * 1024;

pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// By name in lower case.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// Reads the next request of a connection; `None` at its end.
pub(crate) fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut head = reader.by_ref().take(MAX_HEAD);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_ascii_whitespace();
    let (Some(method), Some(path), Some("HTTP/1.1")) = (words.next(), words.next(), words.next())
    else {
        return Err(bad("not a request of HTTP/1.1"));
    };
    let (method, path) = (method.to_owned(), path.to_owned());
    let mut headers = HashMap::new();
    loop {
        line.clear();
        head.read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Err(bad("the head of the request is cut or too long"));
        }
        let header = line.trim_end();
        if header.is_empty() {
            break;
        }
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| bad("a header without a colon"))?;
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    if headers.contains_key("transfer-encoding") {
        return Err(bad("bodies must come with their length"));
    }
    let length = match headers.get("content-length") {
        Some(length) => length
            .parse()
            .map_err(|_| bad("Content-Length is no number"))?,
        None => 0,
    };
    if length > MAX_BODY {
        return Err(bad("the body is too long"));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request {
        method,
        path,
        headers,
        body,
    }))
}

fn bad(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// What goes into the head of a response.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) status: &'a str,
    pub(crate) content_type: &'a str,
    /// Further lines, each with its CRLF.
    pub(crate) extra: &'a str,
}

/// Writes a response with a whole body.
pub(crate) fn write_whole(out: &mut TcpStream, head: Head<'_>, body: &[u8]) -> io::Result<()> {
    let Head {
        status,
        content_type,
        extra,
    } = head;
    let length = body.len();
    // One write, so that a small answer is one packet.
    let mut bytes = format!("HTTP/1.1 {status}\r\n{extra}").into_bytes();
    if !status.starts_with("204") {
        write!(bytes, "Content-Length: {length}\r\n")?;
    }
    if !body.is_empty() {
        write!(bytes, "Content-Type: {content_type}\r\n")?;
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    out.write_all(&bytes)
}

/// A response whose body comes in pieces.
pub(crate) struct Chunked<'a> {
    out: &'a mut TcpStream,
}

impl<'a> Chunked<'a> {
    pub(crate) fn begin(out: &'a mut TcpStream, head: Head<'_>) -> io::Result<Self> {
        let Head {
            status,
            content_type,
            extra,
        } = head;
        write!(
            out,
            "HTTP/1.1 {status}\r\n{extra}Content-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )?;
        Ok(Self { out })
    }

    pub(crate) fn write(&mut self, piece: &str) -> io::Result<()> {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        self.out.write_all(chunk.as_bytes())
    }

    pub(crate) fn end(self) -> io::Result<()> {
        self.out.write_all(b"0\r\n\r\n")
    }
}
