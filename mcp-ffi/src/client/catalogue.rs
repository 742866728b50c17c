//! The tools of one server, kept as it last told them.

use std::sync::Arc;

use bytes::Bytes;
use mcp_transport::session::{Session, list_all};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{sync::watch, time::Instant};
use tracing::warn;

use super::error::Error;

/// One tool, as a model is told of it.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) description: String,
    /// JSON Schema, the bytes that came.
    pub(super) input_schema: Bytes,
}

/// What is known of a server's tools.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// The home session that told them last, or failed to; 0 for none yet.
    pub(super) generation: u64,
    /// Counts what was told.
    pub(super) version: u64,
    pub(super) tools: Option<Arc<[Tool]>>,
    /// Why the last asking failed.
    pub(super) error: Option<Error>,
}

#[derive(Debug)]
pub(super) struct Catalogue(watch::Sender<Known>);

#[derive(Deserialize)]
struct RawTool<'a> {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(borrow, rename = "inputSchema")]
    input_schema: &'a RawValue,
}

#[derive(Deserialize)]
struct Capabilities<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

impl Catalogue {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(Known::default()))
    }

    pub(super) fn known(&self) -> Known {
        self.0.borrow().clone()
    }

    /// Waits for what a session of at least this generation tells, or fails to tell, after this version.
    pub(super) async fn after(&self, version: u64, generation: u64) -> Known {
        let mut known = self.0.subscribe();
        let told = |known: &Known| known.version > version && known.generation >= generation;
        match known.wait_for(told).await {
            Ok(known) => known.clone(),
            Err(_) => unreachable!("the sender is borrowed"),
        }
    }

    pub(super) fn told(&self, generation: u64, tools: Arc<[Tool]>) {
        self.change(generation, |known| {
            known.tools = Some(tools);
            known.error = None;
        });
    }

    /// The session failed to tell its tools, or is gone. What was told earlier is kept: a model keeps its tools over
    /// a reconnect.
    pub(super) fn failed(&self, generation: u64, error: Error) {
        self.change(generation, |known| known.error = Some(error));
    }

    /// What comes of a session that was replaced meanwhile is old.
    fn change(&self, generation: u64, change: impl FnOnce(&mut Known)) {
        self.0.send_if_modified(|known| {
            if generation < known.generation {
                return false;
            }
            known.generation = generation;
            known.version += 1;
            change(known);
            true
        });
    }
}

/// Asks a session for its tools.
pub(super) async fn load(
    server: &str,
    session: &Session,
    deadline: Instant,
) -> Result<Arc<[Tool]>, mcp_transport::error::Error> {
    if !has_tools(&session.capabilities()) {
        return Ok(Arc::default());
    }
    let items = list_all(session, "tools/list", "tools", Some(deadline)).await?;
    Ok(items.iter().filter_map(|item| read(server, item)).collect())
}

fn has_tools(capabilities: &[u8]) -> bool {
    serde_json::from_slice::<Capabilities<'_>>(capabilities)
        .is_ok_and(|capabilities| capabilities.tools.is_some())
}

/// One malformed tool does not take the others along.
fn read(server: &str, item: &Bytes) -> Option<Tool> {
    match serde_json::from_slice::<RawTool<'_>>(item) {
        Ok(tool) if tool.input_schema.get().starts_with('{') => Some(Tool {
            name: tool.name,
            description: tool.description.unwrap_or_default(),
            input_schema: item.slice_ref(tool.input_schema.get().as_bytes()),
        }),
        Ok(tool) => {
            warn!(
                server,
                tool = tool.name,
                "a tool was left out: its inputSchema is no object"
            );
            None
        }
        Err(error) => {
            warn!(server, "a tool was left out: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_tool_is_left_out_alone() {
        let read = |json: &'static str| read("server", &Bytes::from_static(json.as_bytes()));
        let tool = read(r#"{"name":"echo","inputSchema":{"type":"object"},"x":1}"#).unwrap();
        assert_eq!(tool.name, "echo");
        assert_eq!(tool.input_schema, r#"{"type":"object"}"#);
        assert!(read(r#"{"name":1,"inputSchema":{}}"#).is_none());
        assert!(read(r#"{"name":"x","inputSchema":true}"#).is_none());
        assert!(read(r#"{"name":"x"}"#).is_none());
    }

    #[test]
    fn what_a_replaced_session_tells_late_changes_nothing() {
        let catalogue = Catalogue::new();
        catalogue.told(2, Arc::default());
        catalogue.failed(1, Error::closed());
        assert!(catalogue.known().error.is_none());
        catalogue.failed(3, Error::closed());
        catalogue.told(2, Arc::default());
        assert_eq!(catalogue.known().generation, 3);
        assert!(catalogue.known().error.is_some());
    }

    #[test]
    fn a_server_without_the_capability_is_not_asked() {
        assert!(has_tools(br#"{"tools":{}}"#));
        assert!(!has_tools(br#"{"prompts":{}}"#));
        assert!(!has_tools(b"{}"));
    }
}
