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
    name: String,
    description: &'a str,
    input_schema: &'a RawValue,
}

#[derive(Serialize)]
struct Missing {
    server: String,
    state: String,
    message: String,
}

/// A tool of a server, among those that are known.
struct Found {
    server: Arc<str>,
    tools: Arc<[Tool]>,
    index: usize,
}

impl Found {
    fn tool(&self) -> &Tool {
        &self.tools[self.index]
    }

    fn model_name(&self) -> String {
        model_names::of(&self.server, &self.tool().name)
    }
}

fn found(servers: &Servers, domain: &str, only: Option<&str>) -> (Vec<Found>, Vec<Missing>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    let wanted = servers
        .of(domain)
        .filter(|(name, _)| only.is_none_or(|only| only == &***name));
    for (name, slot) in wanted {
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
            Some(tools) if !gone => found.extend((0..tools.len()).map(|index| Found {
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
    (found, missing)
}

/// What is known of the tools of all servers of a domain, or of one.
pub(super) fn known(servers: &Servers, domain: &str, only: Option<&str>) -> KnownTools {
    let (found, missing) = found(servers, domain, only);
    let tools: Vec<ModelTool<'_>> = found
        .iter()
        .filter_map(|found| {
            Some(ModelTool {
                name: found.model_name(),
                description: &found.tool().description,
                input_schema: serde_json::from_slice(&found.tool().input_schema).ok()?,
            })
        })
        .collect();
    let lines: Vec<String> = found
        .iter()
        .map(|found| {
            let first_line = found.tool().description.lines().next().unwrap_or_default();
            format!("{}: {first_line}", found.model_name())
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
    let (found, _) = found(servers, domain, None);
    found
        .iter()
        .find(|found| found.model_name() == model_name)
        .map(|found| (found.server.clone(), found.tool().name.clone()))
}
