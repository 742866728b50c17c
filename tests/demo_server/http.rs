//! MCP over Streamable HTTP: one endpoint, sessions by id.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    io::{self, BufReader, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::ExitCode,
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

use serde_json::Value;

use crate::{
    cli::{HttpOptions, Options},
    http1::{Chunked, Head, Request, read_request, write_whole},
    log::Log,
    session::{Action, Outcome, Running, Session, failure, lock},
    stdio::exit_after,
};

const PARSE_ERROR: i64 = -32700;
const REFUSED: i64 = -32600;

pub(crate) fn serve(options: &Options, http: &HttpOptions, log: &Log) -> io::Result<ExitCode> {
    thread::scope(|scope| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, http.port))?;
        println!("listening on http://{}/mcp", listener.local_addr()?);
        io::stdout().flush()?;
        let endpoint = Arc::new(Endpoint {
            options,
            http,
            log,
            sessions: Mutex::new(Sessions::default()),
        });
        for connection in listener.incoming() {
            let connection = connection?;
            let endpoint = endpoint.clone();
            scope.spawn(move || {
                // A broken connection concerns nobody but its client.
                if let Err(error) = endpoint.serve(connection) {
                    eprintln!("demo-server: a connection ended: {error}");
                }
            });
        }
        Ok(ExitCode::SUCCESS)
    })
}

struct Endpoint<'a> {
    options: &'a Options,
    http: &'a HttpOptions,
    log: &'a Log,
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    made: u64,
    live: HashMap<String, Entry>,
}

struct Entry {
    session: Arc<Session>,
    /// Requests that are being served; a session with one is not idle.
    busy: usize,
    used: Instant,
}

/// A response that is refused before any session hears of it.
type Refusal = (&'static str, &'static str);

impl Endpoint<'_> {
    fn serve(&self, connection: TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        let mut out = connection.try_clone()?;
        let mut reader = BufReader::new(connection);
        while let Some(request) = read_request(&mut reader)? {
            self.respond(&request, &mut out)?;
        }
        Ok(())
    }

    fn respond(&self, request: &Request, out: &mut TcpStream) -> io::Result<()> {
        if self.options.garbage {
            let head = Head {
                status: "200 OK",
                content_type: "text/html",
                extra: "",
            };
            return write_whole(out, head, b"<html><body>It works!</body></html>");
        }
        if !self.lets_in(request) {
            let head = Head {
                status: "401 Unauthorized",
                content_type: "",
                extra: "WWW-Authenticate: Bearer realm=\"demo\", scope=\"tools\"\r\n",
            };
            return write_whole(out, head, b"");
        }
        let refusal = match (request.path.as_str(), request.method.as_str()) {
            ("/mcp", "POST") => match acceptable(request) {
                Ok(()) => return self.post(request, out),
                Err(refusal) => refusal,
            },
            ("/mcp", "DELETE") => match self.delete(request) {
                Ok(()) => {
                    let head = Head {
                        status: "200 OK",
                        content_type: "",
                        extra: "",
                    };
                    return write_whole(out, head, b"");
                }
                Err(refusal) => refusal,
            },
            ("/mcp", _) => {
                let head = Head {
                    status: "405 Method Not Allowed",
                    content_type: "",
                    extra: "Allow: POST, DELETE\r\n",
                };
                return write_whole(out, head, b"");
            }
            _ => ("404 Not Found", "the endpoint is /mcp"),
        };
        refuse(out, refusal)
    }

    fn lets_in(&self, request: &Request) -> bool {
        self.http.token.as_deref().is_none_or(|token| {
            let shown = request.header("authorization");
            shown.and_then(|shown| shown.strip_prefix("Bearer ")) == Some(token)
        })
    }

    fn post(&self, request: &Request, out: &mut TcpStream) -> io::Result<()> {
        let Ok(message) = serde_json::from_slice::<Value>(&request.body) else {
            return write_json(
                out,
                "400 Bad Request",
                "",
                &failure(None, PARSE_ERROR, "that is no JSON"),
            );
        };
        let is_initialize = message
            .get("method")
            .is_some_and(|method| method == "initialize");
        let found = match is_initialize {
            true => Ok(self.create()),
            false => self.find(request),
        };
        let (id, session) = match found {
            Ok(found) => found,
            Err(refusal) => return refuse(out, refusal),
        };
        let extra = match is_initialize {
            true => format!("Mcp-Session-Id: {id}\r\n"),
            false => String::new(),
        };
        let result = match session.accept(&message) {
            Action::Nothing => {
                let head = Head {
                    status: "202 Accepted",
                    content_type: "",
                    extra: "",
                };
                write_whole(out, head, b"")
            }
            Action::Reply(answer) if self.http.sse => {
                let mut events = begin_events(out, &extra)?;
                events.write(&event(&answer)).and_then(|()| events.end())
            }
            Action::Reply(answer) => write_json(out, "200 OK", &extra, &answer),
            Action::Run(running) if self.http.sse || running.wants_progress() => {
                self.stream(&id, running, out)
            }
            Action::Run(running) => self.answer(&id, running, out),
            Action::Exit(delay) => {
                exit_after(delay);
                write_whole(
                    out,
                    Head {
                        status: "202 Accepted",
                        content_type: "",
                        extra: "",
                    },
                    b"",
                )
            }
        };
        self.done(&id);
        result
    }

    /// Runs a call and answers with one JSON body.
    fn answer(&self, id: &str, running: Running, out: &mut TcpStream) -> io::Result<()> {
        match running.run(&mut |_| {}) {
            Outcome::Answer(answer) => write_json(out, "200 OK", "", &answer),
            Outcome::Expire(answer) => {
                self.forget(id, "expired");
                write_json(out, "200 OK", "", &answer)
            }
            Outcome::Cancelled => {
                let head = Head {
                    status: "204 No Content",
                    content_type: "",
                    extra: "",
                };
                write_whole(out, head, b"")
            }
        }
    }

    /// Runs a call and answers with an event stream, so that its progress is heard.
    fn stream(&self, id: &str, running: Running, out: &mut TcpStream) -> io::Result<()> {
        let mut events = begin_events(out, "")?;
        // A client that went away does not end the call: it may have effects. The last write tells.
        let outcome = running.run(&mut |message| drop(events.write(&event(&message))));
        match outcome {
            Outcome::Answer(answer) => events.write(&event(&answer))?,
            Outcome::Expire(answer) => {
                self.forget(id, "expired");
                events.write(&event(&answer))?;
            }
            Outcome::Cancelled => {}
        }
        events.end()
    }

    fn create(&self) -> (String, Arc<Session>) {
        let mut sessions = lock(&self.sessions);
        sessions.made += 1;
        let id = format!(
            "{}-{:016x}",
            sessions.made,
            RandomState::new().hash_one(sessions.made)
        );
        let session = Arc::new(Session::new(id.clone(), self.options, self.log));
        let entry = Entry {
            session: session.clone(),
            busy: 1,
            used: Instant::now(),
        };
        sessions.live.insert(id.clone(), entry);
        (id, session)
    }

    /// The session that a request names; it counts as busy until `done`.
    fn find(&self, request: &Request) -> Result<(String, Arc<Session>), Refusal> {
        let id = request
            .header("mcp-session-id")
            .ok_or(("400 Bad Request", "Mcp-Session-Id is missing"))?;
        self.expire_idle();
        let mut sessions = lock(&self.sessions);
        let entry = sessions
            .live
            .get_mut(id)
            .ok_or(("404 Not Found", "no such session"))?;
        let agreed = entry.session.revision();
        if request
            .header("mcp-protocol-version")
            .is_some_and(|revision| agreed != Some(revision))
        {
            return Err((
                "400 Bad Request",
                "MCP-Protocol-Version is not the one agreed upon",
            ));
        }
        entry.busy += 1;
        entry.used = Instant::now();
        Ok((id.to_owned(), entry.session.clone()))
    }

    fn done(&self, id: &str) {
        if let Some(entry) = lock(&self.sessions).live.get_mut(id) {
            entry.busy -= 1;
            entry.used = Instant::now();
        }
    }

    fn delete(&self, request: &Request) -> Result<(), Refusal> {
        let (id, _) = self.find(request)?;
        self.forget(&id, "deleted");
        Ok(())
    }

    fn forget(&self, id: &str, why: &str) {
        if let Some(entry) = lock(&self.sessions).live.remove(id) {
            entry.session.log("close", why);
        }
    }

    /// Forgets what was idle too long. Nobody sees a session but through a request, so a request is soon enough.
    fn expire_idle(&self) {
        let Some(limit) = self.http.idle_timeout else {
            return;
        };
        lock(&self.sessions).live.retain(|_, entry| {
            let stays = entry.busy > 0 || entry.used.elapsed() < limit;
            if !stays {
                entry.session.log("close", "idle");
            }
            stays
        });
    }
}

/// What the specification asks of every POST.
fn acceptable(request: &Request) -> Result<(), Refusal> {
    let accept = request.header("accept").unwrap_or_default();
    if !accept.contains("application/json") || !accept.contains("text/event-stream") {
        return Err((
            "406 Not Acceptable",
            "Accept must name application/json and text/event-stream",
        ));
    }
    let content_type = request.header("content-type").unwrap_or_default();
    if !content_type.starts_with("application/json") {
        return Err((
            "415 Unsupported Media Type",
            "Content-Type must be application/json",
        ));
    }
    // A web page must not reach a server on loopback behind its user's back.
    let origin = request.header("origin");
    if origin.is_some_and(|origin| {
        !origin.starts_with("http://127.0.0.1") && !origin.starts_with("http://localhost")
    }) {
        return Err(("403 Forbidden", "not for this origin"));
    }
    Ok(())
}

fn refuse(out: &mut TcpStream, (status, message): Refusal) -> io::Result<()> {
    write_json(out, status, "", &failure(None, REFUSED, message))
}

fn write_json(out: &mut TcpStream, status: &str, extra: &str, message: &Value) -> io::Result<()> {
    let head = Head {
        status,
        content_type: "application/json",
        extra,
    };
    write_whole(out, head, message.to_string().as_bytes())
}

fn begin_events<'a>(out: &'a mut TcpStream, extra: &str) -> io::Result<Chunked<'a>> {
    let extra = format!("{extra}Cache-Control: no-cache\r\n");
    let head = Head {
        status: "200 OK",
        content_type: "text/event-stream",
        extra: &extra,
    };
    Chunked::begin(out, head)
}

fn event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}
