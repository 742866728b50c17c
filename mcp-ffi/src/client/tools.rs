//! All tools of a domain's servers, as a model is given them.

use std::sync::Arc;

use mcp_budget::State;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    catalogue::Tool,
    model_names,
    servers::{Servers, Slot},
};

/// The tools that are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTools {
    /// A JSON array with `name`, `description` and `input_schema` of each.
    pub tools: String,
    /// The same for reading: a line each.
    pub text: String,
    /// A JSON array with `server`, `state` and `message` of each server whose tools are not in it.
    pub missing: String,
}

#[derive(Serialize)]
struct ModelTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
}

#[derive(Serialize)]
struct Missing {
    server: String,
    state: String,
    message: String,
}

/// A server's tool, under the name that a model knows it by.
struct Named {
    model_name: String,
    server: Arc<str>,
    tools: Arc<[Tool]>,
    index: usize,
}

impl Named {
    fn tool(&self) -> &Tool {
        &self.tools[self.index]
    }
}

/// The names are those among all servers of the domain, so that asking for one server's tools changes none.
fn named(servers: &Servers, domain: &str) -> (Vec<Named>, Vec<Missing>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (name, slot) in servers.of(domain) {
        let server = match slot {
            Slot::Ready(server) => server,
            Slot::Invalid(error) => {
                missing.push(Missing {
                    server: name.to_string(),
                    state: State::Stopped.to_string(),
                    message: error.message.clone(),
                });
                continue;
            }
        };
        let status = server.status();
        let known = server.catalogue.known();
        let gone = matches!(status.state, State::Parked | State::Stopped);
        match known.tools {
            Some(tools) if !gone => found.extend((0..tools.len()).map(|index| Named {
                model_name: String::new(),
                server: name.clone(),
                tools: tools.clone(),
                index,
            })),
            _ => missing.push(Missing {
                server: name.to_string(),
                state: status.state.to_string(),
                message: known
                    .error
                    .filter(|_| !gone)
                    .map_or(status.text, |error| error.message),
            }),
        }
    }
    let names = model_names::unique(
        found
            .iter()
            .map(|named| (&*named.server, named.tool().name.as_str())),
    );
    for (named, model_name) in found.iter_mut().zip(names) {
        named.model_name = model_name;
    }
    (found, missing)
}

/// What is known of the tools of all servers of a domain, or of one.
pub(super) fn known(servers: &Servers, domain: &str, only: Option<&str>) -> KnownTools {
    let (mut found, mut missing) = named(servers, domain);
    if let Some(only) = only {
        found.retain(|named| &*named.server == only);
        missing.retain(|missing| missing.server == only);
    }
    let tools: Vec<ModelTool<'_>> = found
        .iter()
        .filter_map(|named| {
            Some(ModelTool {
                name: &named.model_name,
                description: &named.tool().description,
                input_schema: serde_json::from_slice(&named.tool().input_schema).ok()?,
            })
        })
        .collect();
    let lines: Vec<String> = found
        .iter()
        .map(|named| {
            let first_line = named.tool().description.lines().next().unwrap_or_default();
            format!("{}: {first_line}", named.model_name)
        })
        .collect();
    KnownTools {
        tools: serde_json::to_string(&tools).expect("strings and JSON"),
        text: lines.join("\n"),
        missing: serde_json::to_string(&missing).expect("strings"),
    }
}

/// The server and tool that a model knows by this name.
pub(super) fn resolve(
    servers: &Servers,
    domain: &str,
    model_name: &str,
) -> Option<(Arc<str>, String)> {
    let (found, _) = named(servers, domain);
    found
        .iter()
        .find(|named| named.model_name == model_name)
        .map(|named| (named.server.clone(), named.tool().name.clone()))
}
