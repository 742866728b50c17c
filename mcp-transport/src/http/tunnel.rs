//! A tunnel through an HTTP proxy, by CONNECT (RFC 9110, 9.3.6).

use http::HeaderValue;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::proxy::Refused;

/// How long the head of the proxy's answer may be.
const HEAD: usize = 16 << 10;

/// Has the proxy at the other end of `stream` connect it to `host` and `port`. A proxy that never answers is waited for.
pub(super) async fn open(
    stream: &mut TcpStream,
    host: &str,
    port: u16,
    shown: Option<&HeaderValue>,
) -> Result<(), Refused> {
    let mut request =
        format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
    if let Some(shown) = shown {
        request.extend([b"Proxy-Authorization: ", shown.as_bytes(), b"\r\n"].concat());
    }
    request.extend(b"\r\n");
    stream.write_all(&request).await?;
    let mut answer = Vec::new();
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(Refused::cut());
        }
        let begun = answer.len().min(PREFIX.len());
        if answer[..begun] != PREFIX[..begun] {
            return Err(Refused::Other("it is no HTTP proxy".into()));
        }
        if let Some(end) = answer.windows(4).position(|end| end == b"\r\n\r\n") {
            return match status(&answer) {
                Some(200..=299) if end + 4 == answer.len() => Ok(()),
                Some(200..=299) => Err(Refused::Other(
                    "it sent something before anything was sent through it".into(),
                )),
                Some(407) => Err(Refused::Credentials(
                    "it wants a user and password, or others (HTTP 407): they are given in its URL"
                        .into(),
                )),
                Some(status) => Err(Refused::Other(format!(
                    "it refused the tunnel (HTTP {status})"
                ))),
                None => Err(Refused::Other("it is no HTTP proxy".into())),
            };
        }
        if answer.len() > HEAD {
            return Err(Refused::Other("its answer has no end".into()));
        }
    }
}

const PREFIX: &[u8] = b"HTTP/1.";

/// The status of an answer that begins with [`PREFIX`].
fn status(answer: &[u8]) -> Option<u16> {
    match answer.get(PREFIX.len()..PREFIX.len() + 6)? {
        [b'0' | b'1', b' ', status @ .., b' ' | b'\r'] => {
            std::str::from_utf8(status).ok()?.parse().ok()
        }
        _ => None,
    }
}
