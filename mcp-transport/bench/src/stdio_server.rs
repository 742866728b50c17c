//! A server that costs next to nothing: it finds the id and the size, and writes an answer made before.

use std::io::{self, BufRead, BufReader, BufWriter, Write};

use memchr::memmem;

/// Asks for one list of 350,000 small blocks, 12 MB in all.
pub(crate) const BLOCKS: usize = 3;

pub(crate) fn serve() {
    let mut input = BufReader::with_capacity(64 << 10, io::stdin().lock());
    let mut output = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let mut line = Vec::new();
    let mut last = (0, Vec::new());
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
            return;
        }
        let Some(id) = id_of(&line) else {
            continue;
        };
        let _ = write!(output, "{{\"jsonrpc\":\"2.0\",\"id\":{id},");
        if let Some(bytes) = after(&line, b"\"name\":\"s").and_then(digits) {
            if last.0 != bytes {
                last = (bytes, result(bytes));
            }
            let _ = output.write_all(&last.1);
        } else if memmem::find(&line, b"\"initialize\"").is_some() {
            let _ = output.write_all(
                b"\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},\
                  \"serverInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}\n",
            );
        } else {
            let _ =
                output.write_all(b"\"error\":{\"code\":-32601,\"message\":\"no such method\"}}\n");
        }
        // All that came at once is answered at once.
        if input.buffer().is_empty() && output.flush().is_err() {
            return;
        }
    }
}

fn result(bytes: usize) -> Vec<u8> {
    let content = if bytes == BLOCKS {
        let block = |n: u32| format!("{{\"type\":\"text\",\"text\":\"{n}\"}}");
        let blocks: Vec<_> = (0..350_000).map(block).collect();
        blocks.join(",")
    } else {
        format!("{{\"type\":\"text\",\"text\":\"{}\"}}", "x".repeat(bytes))
    };
    format!("\"result\":{{\"content\":[{content}]}}}}\n").into_bytes()
}

/// The id of a request, if it is a number.
pub(crate) fn id_of(message: &[u8]) -> Option<usize> {
    after(message, b"\"id\":").and_then(digits)
}

fn after<'a>(line: &'a [u8], what: &[u8]) -> Option<&'a [u8]> {
    memmem::find(line, what).map(|at| &line[at + what.len()..])
}

fn digits(bytes: &[u8]) -> Option<usize> {
    let len = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    std::str::from_utf8(&bytes[..len]).ok()?.parse().ok()
}
