//! A connection through a SOCKS5 proxy (RFC 1928), with user and password where it wants them (RFC 1929).

use std::net::IpAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::proxy::Refused;

const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;

/// Where the proxy is to connect to.
#[derive(Debug, Clone)]
pub(super) enum Target<'a> {
    Address(IpAddr),
    /// It resolves the name itself.
    Name(&'a str),
}

/// Has the proxy at the other end of `stream` connect it to `target` and `port`. A proxy that never answers is waited
/// for.
pub(super) async fn open(
    stream: &mut TcpStream,
    target: Target<'_>,
    port: u16,
    login: Option<(&str, &str)>,
) -> Result<(), Refused> {
    let offered: &[u8] = match login {
        Some(_) => &[VERSION, 2, NO_LOGIN, USER_AND_PASSWORD],
        None => &[VERSION, 1, NO_LOGIN],
    };
    stream.write_all(offered).await?;
    match (read(stream).await?, login) {
        ([VERSION, NO_LOGIN], _) => {}
        ([VERSION, USER_AND_PASSWORD], Some((user, password))) => {
            log_in(stream, user, password).await?;
        }
        ([VERSION, 0xff], login) => {
            let why = match login {
                Some(_) => "it takes no user and password, but wants to know who we are",
                None => "it wants to know who we are: user and password are given in its URL",
            };
            return Err(Refused::Credentials(why.into()));
        }
        _ => return Err(Refused::Other("it is no SOCKS5 proxy".into())),
    }
    let mut request = vec![VERSION, 1, 0];
    match target {
        Target::Address(IpAddr::V4(address)) => {
            request.push(1);
            request.extend(address.octets());
        }
        Target::Address(IpAddr::V6(address)) => {
            request.push(4);
            request.extend(address.octets());
        }
        Target::Name(name) => {
            request.push(3);
            let length = u8::try_from(name.len())
                .map_err(|_| Refused::Other("the host name is too long for SOCKS5".into()))?;
            request.push(length);
            request.extend(name.as_bytes());
        }
    }
    request.extend(port.to_be_bytes());
    stream.write_all(&request).await?;
    let rest = match read(stream).await? {
        [VERSION, 0, _, 1] => 4,
        [VERSION, 0, _, 3] => usize::from(read::<1>(stream).await?[0]),
        [VERSION, 0, _, 4] => 16,
        [VERSION, code, ..] if code != 0 => return Err(Refused::Other(refusal(code))),
        _ => return Err(Refused::Other("it is no SOCKS5 proxy".into())),
    };
    // The address it connects from, and the port.
    stream.read_exact(&mut vec![0; rest + 2]).await?;
    Ok(())
}

async fn log_in(stream: &mut TcpStream, user: &str, password: &str) -> Result<(), Refused> {
    let mut login = vec![1];
    for part in [user, password] {
        let length = u8::try_from(part.len()).map_err(|_| {
            Refused::Credentials("the user or password for it is longer than 255 bytes".into())
        })?;
        login.push(length);
        login.extend(part.as_bytes());
    }
    stream.write_all(&login).await?;
    match read(stream).await? {
        [_, 0] => Ok(()),
        [..] => Err(Refused::Credentials(
            "it refused the user and password that its URL has".into(),
        )),
    }
}

async fn read<const N: usize>(stream: &mut TcpStream) -> Result<[u8; N], Refused> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn refusal(code: u8) -> String {
    let why = match code {
        1 => "it failed",
        2 => "its rules do not allow the connection",
        3 => "it cannot reach the network",
        4 => "it cannot reach the host",
        5 => "the connection was refused to it",
        6 => "the connection took it too many hops",
        7 => "it cannot connect for others",
        8 => "it cannot take an address of this kind",
        _ => "it refused",
    };
    format!("{why} (SOCKS5 reply {code})")
}
