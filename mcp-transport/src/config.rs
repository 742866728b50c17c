//! The `mcpServers` JSON that every MCP host reads.
//!
//! ```json
//! { "mcpServers": {
//!     "files":  { "command": "npx", "args": ["-y", "some-server"], "env": { "ROOT": "${HOME}/files" } },
//!     "search": { "type": "http", "url": "https://example.org/mcp", "headers": { "X-Key": "${KEY:-none}" } }
//! } }
//! ```
//!
//! A server of `"type": "host"` is reached over a link whose bytes the host moves; `framing` ("line" or "message") and
//! `link`, the host's own, are under its `mcpconn`.
//!
//! The inner object alone is taken too. `${VAR}` and `${VAR:-default}` are replaced in `command`, `args`,
//! `env`, `cwd`, `url` and `headers`. Members that we do not know are ignored. Of what is under `mcpconn`, that which makes
//! the connection is read ([`Reach`]); the rest is kept as it is for the client above.

mod reach;

use std::{collections::BTreeMap, fmt, hash::Hasher, path::PathBuf};

use serde_json::{Map, Value};
use url::Url;

pub use reach::{PemFile, Proxy, Reach};

use crate::host::Framing;

/// How one server is reached.
///
/// `Debug` shows names only: no values of variables or headers, no user info and no query of a URL.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerConfig {
    /// What makes the connection.
    pub connection: Connection,
    /// The member `mcpconn`, without what makes the connection: timeouts and policy, which are not in the fingerprint.
    pub mcpconn: Option<Value>,
}

/// What makes the connection to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// A child process.
    Stdio(StdioConfig),
    /// A server at a URL, spoken to over Streamable HTTP or HTTP+SSE.
    Http(RemoteConfig),
    /// A server over a link that the host moves.
    Host(HostConfig),
}

/// A server over a link that the host moves.
#[derive(Clone, PartialEq, Eq)]
pub struct HostConfig {
    /// What the host moves.
    pub framing: Framing,
    /// What the host wants to be told again when it is to open a link: any JSON, `null` if it said nothing.
    pub link: Value,
}

impl fmt::Debug for HostConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What the host says to itself may hold anything.
        f.debug_struct("HostConfig")
            .field("framing", &self.framing)
            .finish_non_exhaustive()
    }
}

/// A server that is a child process.
#[derive(Clone, PartialEq, Eq)]
pub struct StdioConfig {
    /// The program: a path, or a name that is looked up in the child's own `PATH`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables beside the few that every child gets; they go before those.
    pub env: BTreeMap<String, String>,
    /// The directory it starts in; without one, ours.
    pub cwd: Option<PathBuf>,
}

impl StdioConfig {
    /// A program without arguments.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
        }
    }
}

impl fmt::Debug for StdioConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments carry tokens often enough; only how many there are is shown.
        f.debug_struct("StdioConfig")
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish()
    }
}

/// A server at a URL.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteConfig {
    /// `http` or `https`, without user info.
    pub url: Url,
    /// Headers of every request. User info of the URL is here, as `Authorization`.
    pub headers: Vec<(String, String)>,
    /// It speaks HTTP+SSE of 2024-11-05 (`"type": "sse"`); give it to
    /// [`HttpConfig::with_legacy_sse`](crate::http::HttpConfig::with_legacy_sse).
    pub legacy_sse: bool,
    /// How it is reached; [`Reach::client`] makes the connections.
    pub reach: Box<Reach>,
}

impl fmt::Debug for RemoteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("RemoteConfig")
            .field("url", &shown(&self.url))
            .field("headers", &names)
            .field("legacy_sse", &self.legacy_sse)
            .field("reach", &self.reach)
            .finish()
    }
}

/// A URL without what may be secret in it.
fn shown(url: &Url) -> String {
    let query = if url.query().is_some() { "?…" } else { "" };
    format!(
        "{}{}{query}",
        url.origin().ascii_serialization(),
        url.path()
    )
}

/// What is wrong in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is no JSON, or no object of servers.
    #[error("the servers' configuration cannot be read: {0}")]
    Unreadable(String),
    /// One server's entry is not usable.
    #[error("server {server:?}: {member}: {problem}")]
    Entry {
        /// The server's name.
        server: String,
        /// The member of the entry.
        member: String,
        /// What is wrong with it. Never the value of a variable or a header.
        problem: String,
    },
}

/// Reads the configuration, taking variables from the environment of this process. The first bad entry is the
/// error of all; [`parse_each`] keeps the others.
///
/// # Errors
/// [`ConfigError`], naming server and member.
pub fn parse(json: &str) -> Result<Vec<(String, ServerConfig)>, ConfigError> {
    parse_with(json, |name| std::env::var(name).ok())
}

/// As [`parse`], with the variables taken from `lookup`.
///
/// # Errors
/// [`ConfigError`], naming server and member.
pub fn parse_with(
    json: &str,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, ServerConfig)>, ConfigError> {
    parse_each(json, lookup)?
        .into_iter()
        .map(|(name, config)| Ok((name, config?)))
        .collect()
}

/// One server's name, and its configuration or what is wrong with it.
pub type Entry = (String, Result<ServerConfig, ConfigError>);

/// As [`parse_with`], with a result per server, so that a bad entry does not take the others along.
///
/// # Errors
/// [`ConfigError::Unreadable`] when the text as a whole is none.
pub fn parse_each(
    json: &str,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Entry>, ConfigError> {
    let unreadable = |problem: String| ConfigError::Unreadable(problem);
    if json.trim().is_empty() {
        return Err(unreadable("it is empty".into()));
    }
    let root: Value =
        serde_json::from_str(json).map_err(|e| unreadable(format!("it is no JSON: {e}")))?;
    let Value::Object(mut root) = root else {
        return Err(unreadable("it is not a JSON object".into()));
    };
    let servers = match root.remove("mcpServers") {
        Some(Value::Object(servers)) => servers,
        Some(_) => return Err(unreadable("mcpServers is not an object".into())),
        None => root,
    };
    Ok(servers
        .into_iter()
        .map(|(name, entry)| {
            let config =
                Reader { lookup: &lookup }
                    .server(entry)
                    .map_err(|Bad { member, problem }| ConfigError::Entry {
                        server: name.clone(),
                        member,
                        problem,
                    });
            (name, config)
        })
        .collect())
}

impl ServerConfig {
    /// Feeds what makes the connection to a hasher, in canonical order and so that no two configurations feed
    /// the same bytes. What does not make the connection (`mcpconn`) is left out.
    pub fn fingerprint_into(&self, hasher: &mut impl Hasher) {
        hasher.write(&self.canonical_bytes());
    }

    /// What [`fingerprint_into`](Self::fingerprint_into) feeds. It holds secrets.
    pub fn canonical_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // Each part with its length before it, so that "a","bc" is not "ab","c".
        let mut put_bytes = |part: &[u8]| {
            out.extend_from_slice(&(part.len() as u64).to_le_bytes());
            out.extend_from_slice(part);
        };
        let mut put = |part: &str| put_bytes(part.as_bytes());
        let count = |n: usize| n.to_string();
        match &self.connection {
            Connection::Stdio(StdioConfig {
                command,
                args,
                env,
                cwd,
            }) => {
                put("stdio");
                put(command);
                put(&count(args.len()));
                args.iter().for_each(|arg| put(arg));
                put(&count(env.len()));
                for (name, value) in env {
                    put(name);
                    put(value);
                }
                put(&count(usize::from(cwd.is_some())));
                // It came from JSON, so that nothing is lost here.
                put(&cwd.as_deref().unwrap_or("".as_ref()).to_string_lossy());
            }
            Connection::Http(RemoteConfig {
                url,
                headers,
                legacy_sse,
                reach,
            }) => {
                put(if *legacy_sse { "sse" } else { "http" });
                put(url.as_str());
                let mut headers: Vec<_> = headers
                    .iter()
                    .map(|(name, value)| (name.to_ascii_lowercase(), value))
                    .collect();
                // Stable: the values of one name keep their order, which counts.
                headers.sort_by(|a, b| a.0.cmp(&b.0));
                put(&count(headers.len()));
                for (name, value) in &headers {
                    put(name);
                    put(value);
                }
                reach.put(&mut put_bytes);
            }
            Connection::Host(HostConfig { framing, link }) => {
                put("host");
                put(match framing {
                    Framing::Bytes => "line",
                    Framing::Messages => "message",
                });
                put(&link.to_string());
            }
        }
        out
    }
}

/// What is wrong with one member.
struct Bad {
    member: String,
    problem: String,
}

fn bad<T>(member: impl Into<String>, problem: impl Into<String>) -> Result<T, Bad> {
    Err(Bad {
        member: member.into(),
        problem: problem.into(),
    })
}

struct Reader<'a, L> {
    lookup: &'a L,
}

/// Takes what makes a link out of the member `mcpconn`, where only a server of type `host` has it.
fn host_link(mut mcpconn: Option<&mut Value>, is_host: bool) -> Result<HostConfig, Bad> {
    let mut take = |member: &str| {
        let value = mcpconn
            .as_deref_mut()
            .and_then(Value::as_object_mut)?
            .remove(member);
        value.filter(|value| !value.is_null())
    };
    let (framing, link) = (take("framing"), take("link"));
    for (member, value) in [("framing", &framing), ("link", &link)] {
        if value.is_some() && !is_host {
            let problem = "it is for a server of `\"type\": \"host\"` alone";
            return bad(format!("mcpconn.{member}"), problem);
        }
    }
    let framing = match framing.as_ref().map(Value::as_str) {
        None | Some(Some("line")) => Framing::Bytes,
        Some(Some("message")) => Framing::Messages,
        Some(_) => return bad("mcpconn.framing", "it must be \"line\" or \"message\""),
    };
    Ok(HostConfig {
        framing,
        link: link.unwrap_or_default(),
    })
}

impl<L: Fn(&str) -> Option<String>> Reader<'_, L> {
    fn server(&self, entry: Value) -> Result<ServerConfig, Bad> {
        let Value::Object(mut entry) = entry else {
            return bad("its entry", "it must be an object with `command` or `url`");
        };
        let mut mcpconn = entry.remove("mcpconn");
        let kind = match entry.get("type") {
            None | Some(Value::Null) => None,
            Some(Value::String(kind)) => Some(kind.as_str()),
            Some(_) => return bad("type", "it must be a string"),
        };
        let link = host_link(mcpconn.as_mut(), kind == Some("host"))?;
        let has = |member: &str| entry.get(member).is_some_and(|value| !value.is_null());
        let connection = match (kind, has("command"), has("url")) {
            (Some("host"), false, false) => Connection::Host(link),
            (Some("host"), ..) => {
                return bad(
                    "type",
                    "a host opens the link itself: `command` and `url` are not read",
                );
            }
            (Some("stdio"), false, _) => return bad("command", "it is missing"),
            (Some("http" | "streamable-http" | "streamableHttp" | "sse"), _, false) => {
                return bad("url", "it is missing");
            }
            (Some("stdio"), true, _) | (None, true, false) => {
                self.no_reach(mcpconn.as_ref())?;
                self.stdio(&entry)?
            }
            (Some("sse"), _, true) => self.remote(&entry, &mut mcpconn, true)?,
            (Some("http" | "streamable-http" | "streamableHttp"), _, true)
            | (None, false, true) => self.remote(&entry, &mut mcpconn, false)?,
            (Some(_), ..) => {
                return bad(
                    "type",
                    "it must be \"stdio\", \"http\", \"streamable-http\", \"streamableHttp\", \"sse\" or \"host\"",
                );
            }
            (None, true, true) => {
                return bad(
                    "type",
                    "there is both `command` and `url`: say which is meant",
                );
            }
            (None, false, false) => {
                let names: Vec<_> = entry.keys().map(|name| format!("`{name}`")).collect();
                let problem = match &names[..] {
                    [] => "there is neither `command` nor `url`".into(),
                    _ => format!(
                        "there is neither `command` nor `url`, only {}",
                        names.join(", ")
                    ),
                };
                return bad("command", problem);
            }
        };
        Ok(ServerConfig {
            connection,
            mcpconn,
        })
    }

    fn stdio(&self, entry: &Map<String, Value>) -> Result<Connection, Bad> {
        let command = self
            .text("command", entry.get("command"))?
            .unwrap_or_default();
        if command.is_empty() {
            return bad("command", "it is empty");
        }
        let args = match entry.get("args") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(args)) => {
                let args = args.iter().enumerate();
                args.map(|(i, arg)| self.required(&format!("args[{i}]"), arg))
                    .collect::<Result<_, _>>()?
            }
            Some(_) => return bad("args", "it must be an array of strings"),
        };
        let env = self.pairs("env", entry.get("env"))?;
        if let Some((name, _)) = env
            .iter()
            .find(|(name, _)| name.is_empty() || name.contains('='))
        {
            return bad(format!("env.{name}"), "it is no name of a variable");
        }
        let cwd = self.text("cwd", entry.get("cwd"))?;
        if cwd.as_deref() == Some("") {
            return bad("cwd", "it is empty");
        }
        Ok(Connection::Stdio(StdioConfig {
            command,
            args,
            env: env.into_iter().collect(),
            cwd: cwd.map(PathBuf::from),
        }))
    }

    fn remote(
        &self,
        entry: &Map<String, Value>,
        mcpconn: &mut Option<Value>,
        legacy_sse: bool,
    ) -> Result<Connection, Bad> {
        let text = self.text("url", entry.get("url"))?.unwrap_or_default();
        // The text is not repeated: a URL that cannot be read may hold a secret anywhere.
        let mut url = match Url::parse(text.trim()) {
            Ok(url) => url,
            Err(e) => return bad("url", format!("it is no URL: {e}")),
        };
        if !matches!(url.scheme(), "http" | "https") {
            return bad(
                "url",
                format!("its scheme is {:?}, not http or https", url.scheme()),
            );
        }
        let mut headers = self.pairs("headers", entry.get("headers"))?;
        for (name, value) in &headers {
            if http::HeaderName::try_from(name.as_str()).is_err() {
                return bad("headers", "the name of a header is none");
            }
            if http::HeaderValue::try_from(value.trim()).is_err() {
                let problem = "its value has a character that headers cannot have";
                return bad(format!("headers.{name}"), problem);
            }
        }
        if let Some(credentials) = take_user_info(&mut url) {
            // A header that was written out is the plainer word.
            if !headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
            {
                headers.push(("Authorization".into(), credentials));
            }
        }
        url.set_fragment(None);
        Ok(Connection::Http(RemoteConfig {
            url,
            headers,
            legacy_sse,
            reach: Box::new(self.reach(mcpconn)?),
        }))
    }

    /// An object of strings.
    fn pairs(&self, member: &str, value: Option<&Value>) -> Result<Vec<(String, String)>, Bad> {
        match value {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Object(pairs)) => pairs
                .iter()
                .map(|(name, value)| {
                    let value = self.required(&format!("{member}.{name}"), value)?;
                    if name.contains('\0') {
                        return bad(member, "a name contains a NUL character");
                    }
                    Ok((name.clone(), value))
                })
                .collect(),
            Some(_) => bad(member, "it must be an object of strings"),
        }
    }

    fn text(&self, member: &str, value: Option<&Value>) -> Result<Option<String>, Bad> {
        match value {
            None | Some(Value::Null) => Ok(None),
            Some(value) => self.required(member, value).map(Some),
        }
    }

    fn required(&self, member: &str, value: &Value) -> Result<String, Bad> {
        let Value::String(text) = value else {
            return bad(member, "it must be a string");
        };
        match expand(text, self.lookup) {
            Ok(text) if text.contains('\0') => bad(member, "it contains a NUL character"),
            Ok(text) => Ok(text),
            Err(name) => {
                let problem =
                    format!("the variable {name} is not set; ${{{name}:-…}} gives a default");
                bad(member, problem)
            }
        }
    }
}

/// Replaces `${VAR}` and `${VAR:-default}`; what only looks similar stays as it is. An empty variable counts
/// as unset where there is a default, as in a shell.
///
/// # Errors
/// The name of a variable that is not set and has no default.
fn expand(text: &str, lookup: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let Some(end) = from.find('}') else {
            rest = from;
            break;
        };
        let inner = &from[2..end];
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        if !is_name(name) {
            out.push_str("${");
            rest = &from[2..];
            continue;
        }
        match (lookup(name), default) {
            (Some(value), None) => out.push_str(&value),
            (Some(value), Some(_)) if !value.is_empty() => out.push_str(&value),
            (_, Some(default)) => out.push_str(default),
            (None, None) => return Err(name.to_owned()),
        }
        rest = &from[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Takes user and password out of the URL, as the value of an `Authorization` header.
fn take_user_info(url: &mut Url) -> Option<String> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut pair = percent_decoded(url.username());
    pair.push(b':');
    pair.extend(percent_decoded(url.password().unwrap_or_default()));
    // These fail only for URLs that cannot have user info, and this one had it.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    Some(format!("Basic {}", base64(&pair)))
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let hex = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if let (b'%', [a, b, tail @ ..]) = (first, after) {
            if let (Some(a), Some(b)) = (hex(*a), hex(*b)) {
                out.push(a << 4 | b);
                rest = tail;
                continue;
            }
        }
        out.push(first);
        rest = after;
    }
    out
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            if i <= chunk.len() {
                out.push(char::from(DIGITS[(group >> (18 - 6 * i)) as usize & 63]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/u".into()),
            "EMPTY" => Some(String::new()),
            "SECRET" => Some("hunter2".into()),
            "BREAK" => Some("a\nb".into()),
            _ => None,
        }
    }

    fn one(entry: &str) -> Result<ServerConfig, ConfigError> {
        let json = format!("{{\"s\":{entry}}}");
        let mut all = parse_with(&json, lookup)?;
        assert_eq!(all.len(), 1);
        Ok(all.remove(0).1)
    }

    fn stdio(entry: &str) -> StdioConfig {
        match one(entry).unwrap().connection {
            Connection::Stdio(config) => config,
            other => panic!("{other:?}"),
        }
    }

    fn remote(entry: &str) -> RemoteConfig {
        match one(entry).unwrap().connection {
            Connection::Http(config) => config,
            other => panic!("{other:?}"),
        }
    }

    fn problem(entry: &str) -> (String, String) {
        match one(entry) {
            Err(ConfigError::Entry {
                server,
                member,
                problem,
            }) => {
                assert_eq!(server, "s");
                (member, problem)
            }
            other => panic!("{entry} gave {other:?}"),
        }
    }

    #[test]
    fn the_whole_file_and_the_inner_object_are_taken() {
        let inner = r#"{"a":{"command":"x"},"b":{"url":"http://h/mcp"}}"#;
        let whole = format!("{{\"mcpServers\":{inner},\"other\":1}}");
        let expected = parse_with(inner, lookup).unwrap();
        assert_eq!(parse_with(&whole, lookup).unwrap(), expected);
        assert_eq!(expected.len(), 2);
    }

    #[test]
    fn a_stdio_entry_is_read_whole() {
        let config = stdio(
            r#"{"command":"${HOME}/bin/x","args":["-y","${NOPE:-d}"],"env":{"A":"${SECRET}","B":""},"cwd":"/tmp","unknown":[1]}"#,
        );
        assert_eq!(config.command, "/home/u/bin/x");
        assert_eq!(config.args, ["-y", "d"]);
        assert_eq!(config.env["A"], "hunter2");
        assert_eq!(config.cwd, Some("/tmp".into()));
    }

    #[test]
    fn all_names_of_streamable_http_are_taken() {
        for kind in ["http", "streamable-http", "streamableHttp"] {
            let config = remote(&format!(
                r#"{{"type":"{kind}","url":"https://h/mcp","headers":{{"X-A":"${{SECRET}}"}}}}"#
            ));
            assert_eq!(config.headers, [("X-A".to_owned(), "hunter2".to_owned())]);
        }
    }

    #[test]
    fn the_older_transport_is_taken_by_its_name() {
        assert!(remote(r#"{"type":"sse","url":"https://h/sse"}"#).legacy_sse);
        assert!(!remote(r#"{"url":"https://h/sse"}"#).legacy_sse);
    }

    #[test]
    fn a_host_entry_takes_what_makes_its_link_out_of_mcpconn() {
        let host = |entry: &str| {
            let config = one(entry).unwrap();
            match config.connection {
                Connection::Host(host) => (host, config.mcpconn),
                other => panic!("{other:?}"),
            }
        };
        let (plain, rest) = host(r#"{"type":"host"}"#);
        assert_eq!(
            (plain.framing, plain.link, rest),
            (Framing::Bytes, Value::Null, None)
        );
        let (told, rest) = host(
            r#"{"type":"host","mcpconn":{"framing":"message","link":{"port":7},"eager":true}}"#,
        );
        assert_eq!(told.framing, Framing::Messages);
        assert_eq!(told.link, serde_json::json!({"port": 7}));
        assert_eq!(rest, Some(serde_json::json!({"eager": true})));
        assert!(!format!("{told:?}").contains("port"));
    }

    #[test]
    fn what_is_under_mcpconn_is_kept_and_is_not_in_the_fingerprint() {
        let with = one(r#"{"command":"x","mcpconn":{"timeouts":{"call":5}}}"#).unwrap();
        let without = one(r#"{"command":"x"}"#).unwrap();
        assert_eq!(
            with.mcpconn,
            Some(serde_json::json!({"timeouts": {"call": 5}}))
        );
        assert_eq!(with.canonical_bytes(), without.canonical_bytes());
    }

    #[test]
    fn a_bad_entry_names_server_and_member() {
        for (entry, named, said) in [
            ("1", "its entry", "object"),
            ("{}", "command", "neither"),
            (r#"{"comand":"x"}"#, "command", "only `comand`"),
            (r#"{"command":""}"#, "command", "empty"),
            (r#"{"command":["x"]}"#, "command", "string"),
            (r#"{"command":"x","args":"y"}"#, "args", "array"),
            (r#"{"command":"x","args":["a",1]}"#, "args[1]", "string"),
            (r#"{"command":"x","env":{"PORT":80}}"#, "env.PORT", "string"),
            (r#"{"command":"x","env":{"A=B":"c"}}"#, "env.A=B", "name"),
            (r#"{"command":"x\u0000y"}"#, "command", "NUL"),
            (r#"{"command":"${NOPE}"}"#, "command", "NOPE"),
            (r#"{"command":"x","url":"http://h"}"#, "type", "both"),
            (r#"{"type":"sse","command":"x"}"#, "url", "missing"),
            (r#"{"type":"http","command":"x"}"#, "url", "missing"),
            (r#"{"type":"stdio","url":"http://h"}"#, "command", "missing"),
            (
                r#"{"type":"carrier-pigeon","url":"http://h"}"#,
                "type",
                "stdio",
            ),
            (r#"{"type":1,"url":"http://h"}"#, "type", "string"),
            (r#"{"type":"host","command":"x"}"#, "type", "itself"),
            (
                r#"{"type":"host","mcpconn":{"framing":"frames"}}"#,
                "mcpconn.framing",
                "\"message\"",
            ),
            (
                r#"{"type":"host","mcpconn":{"framing":1}}"#,
                "mcpconn.framing",
                "\"line\"",
            ),
            (
                r#"{"command":"x","mcpconn":{"framing":"line"}}"#,
                "mcpconn.framing",
                "\"host\"",
            ),
            (
                r#"{"command":"x","mcpconn":{"link":1}}"#,
                "mcpconn.link",
                "\"host\"",
            ),
            (r#"{"url":"not a url"}"#, "url", "no URL"),
            (r#"{"url":"ftp://h/x"}"#, "url", "ftp"),
            (
                r#"{"url":"http://h","headers":{"a b":"c"}}"#,
                "headers",
                "name",
            ),
            (
                r#"{"url":"http://h","headers":{"a":"${BREAK}"}}"#,
                "headers.a",
                "character",
            ),
        ] {
            let (member, problem) = problem(entry);
            assert_eq!(member, named, "{entry}: {problem}");
            assert!(problem.contains(said), "{entry}: {problem}");
        }
    }

    #[test]
    fn a_bad_entry_does_not_take_the_others_along() {
        let all = parse_each(r#"{"good":{"command":"x"},"bad":{}}"#, lookup).unwrap();
        let good: Vec<_> = all
            .iter()
            .filter(|(_, c)| c.is_ok())
            .map(|(n, _)| n)
            .collect();
        assert_eq!(good, ["good"]);
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn what_is_no_configuration_is_said_so() {
        for json in ["", "{", "[]", "1", r#"{"mcpServers":[]}"#] {
            let error = parse_with(json, lookup).unwrap_err();
            assert!(
                matches!(error, ConfigError::Unreadable(_)),
                "{json}: {error:?}"
            );
        }
    }

    #[test]
    fn variables_are_replaced_as_hosts_do() {
        for (text, expected) in [
            ("plain $HOME {HOME}", "plain $HOME {HOME}"),
            ("${HOME}/a/${HOME}", "/home/u/a//home/u"),
            ("${EMPTY}-${EMPTY:-d}", "-d"),
            ("${NOPE:-}", ""),
            ("${NOPE:-http://x:1/y}", "http://x:1/y"),
            (
                "${input:key} ${1} ${} ${HOME",
                "${input:key} ${1} ${} ${HOME",
            ),
        ] {
            assert_eq!(expand(text, &lookup).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn user_info_becomes_a_header_and_is_shown_nowhere() {
        let config = remote(r#"{"url":"https://hugo%40x:p%3Aw@h:8443/mcp?token=hunter2"}"#);
        assert_eq!(config.url.as_str(), "https://h:8443/mcp?token=hunter2");
        let expected = format!("Basic {}", base64(b"hugo@x:p:w"));
        assert_eq!(config.headers, [("Authorization".to_owned(), expected)]);
        let shown = format!("{config:?}");
        assert!(shown.contains("https://h:8443/mcp?…"), "{shown}");
        for secret in ["hunter2", "hugo", "Basic"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    #[test]
    fn a_header_that_was_written_out_goes_before_user_info() {
        let config = remote(r#"{"url":"http://a:b@h/","headers":{"authorization":"Bearer t"}}"#);
        assert_eq!(
            config.headers,
            [("authorization".to_owned(), "Bearer t".to_owned())]
        );
    }

    #[test]
    fn debug_shows_names_only() {
        let config = one(r#"{"command":"x","args":["--token=hunter2"],"env":{"KEY":"hunter2"}}"#);
        let shown = format!("{config:?}");
        assert!(
            shown.contains("KEY") && !shown.contains("hunter2"),
            "{shown}"
        );
    }

    #[test]
    fn fingerprints_tell_what_makes_the_connection_apart() {
        let bytes = |entry: &str| one(entry).unwrap().canonical_bytes();
        let distinct = [
            bytes(r#"{"command":"x"}"#),
            bytes(r#"{"command":"x","args":["a","bc"]}"#),
            bytes(r#"{"command":"x","args":["ab","c"]}"#),
            bytes(r#"{"command":"x","env":{"a":"b"}}"#),
            bytes(r#"{"command":"x","cwd":"/"}"#),
            bytes(r#"{"url":"http://x"}"#),
            bytes(r#"{"url":"http://x","headers":{"a":"1"}}"#),
            bytes(r#"{"type":"sse","url":"http://x"}"#),
            bytes(r#"{"type":"host"}"#),
            bytes(r#"{"type":"host","mcpconn":{"framing":"message"}}"#),
            bytes(r#"{"type":"host","mcpconn":{"link":{"port":1}}}"#),
            bytes(r#"{"type":"host","mcpconn":{"link":{"port":2}}}"#),
        ];
        for (i, a) in distinct.iter().enumerate() {
            for b in &distinct[i + 1..] {
                assert_ne!(a, b);
            }
        }
        assert_eq!(
            bytes(r#"{"url":"http://x","headers":{"B":"2","a":"1"}}"#),
            bytes(r#"{"type":"http","url":"http://x","headers":{"A":"1","b":"2"}}"#)
        );
    }

    #[test]
    fn base64_pads() {
        for (text, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
