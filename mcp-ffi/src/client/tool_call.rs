//! Calls of tools.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Client,
    call::Call,
    deadline,
    error::{Error, Kind},
    options::CallOptions,
    prepared::{PreparedCall, Work, object},
    scope::Scope,
    server::Server,
    shared::Shared,
    tools,
};

impl Client {
    /// Prepares the call of a tool. `arguments` is a JSON object, or empty for none. With an empty `server`, `tool` is
    /// a name of [`Client::tools`].
    ///
    /// # Errors
    /// [`Kind::Invalid`], [`Kind::UnknownServer`], [`Kind::Config`] for a server whose entry is not usable,
    /// [`Kind::Capacity`] if too many calls are in flight or wait for
    /// their completion to be taken, [`Kind::Closed`].
    pub fn prepare_tool_call(
        &self,
        scope: &Scope,
        server: &str,
        tool: &str,
        arguments: &str,
        options: CallOptions,
    ) -> Result<PreparedCall, Error> {
        self.shared.check_open()?;
        if tool.is_empty() {
            return Err(Error::new(Kind::Invalid, "the name of the tool is empty"));
        }
        let (server, tool) = self.shared.tool_of(&scope.domain, server, tool)?;
        let call = Call {
            scope: scope.name.clone(),
            method: "tools/call".into(),
            params: Some(tool_params(&tool, arguments)?),
            deadline: deadline::of(&options),
            server,
            options,
        };
        PreparedCall::admit(&self.shared, call, Work::Request)
    }

    /// Calls a tool; see [`Client::prepare_tool_call`].
    ///
    /// # Errors
    /// As there.
    pub fn call_tool(
        &self,
        scope: &Scope,
        server: &str,
        tool: &str,
        arguments: &str,
        options: CallOptions,
    ) -> Result<u64, Error> {
        Ok(self
            .prepare_tool_call(scope, server, tool, arguments, options)?
            .start())
    }
}

impl Shared {
    /// The server of a tool and its name there; with an empty server, from the name that [`Client::tools`] gives it.
    fn tool_of(
        &self,
        domain: &str,
        server: &str,
        tool: &str,
    ) -> Result<(Arc<Server>, String), Error> {
        let servers = self.open_servers()?;
        if !server.is_empty() {
            return Ok((servers.get(domain, server)?, tool.into()));
        }
        let (server, tool) = tools::resolve(&servers, domain, tool).ok_or_else(|| {
            let message =
                format!("no tool \"{tool}\" is known; list the tools first, or name the server");
            Error::new(Kind::Invalid, message)
        })?;
        Ok((servers.get(domain, &server)?, tool))
    }
}

/// The params of `tools/call`, with the arguments as they are.
fn tool_params(tool: &str, arguments: &str) -> Result<Bytes, Error> {
    let arguments = object("the arguments", arguments)?.unwrap_or("{}");
    let tool = serde_json::to_string(tool).expect("a string");
    Ok(format!("{{\"name\":{tool},\"arguments\":{arguments}}}").into())
}
