//! Asking servers for their tools.

use std::sync::Arc;

use mcp_budget::Want;
use tokio::{task::JoinSet, time::Instant};

use super::{
    Client,
    deadline::{self, within},
    error::Error,
    event::Answer,
    options::CallOptions,
    origin::Origin,
    prepared::{PreparedCall, Work},
    scope::domain_or_default,
    server::Server,
    shared::Shared,
    tools,
};

impl Client {
    /// Prepares to ask a server for its tools, or every server of the domain if the name is empty. The answer's JSON
    /// is that of [`Client::tools`].
    ///
    /// # Errors
    /// As for [`Client::prepare_tool_call`].
    pub fn prepare_list_tools(
        &self,
        domain: &str,
        server: &str,
        options: CallOptions,
    ) -> Result<PreparedCall, Error> {
        let one = match server {
            "" => None,
            name => Some(self.shared.open_servers()?.get(domain, name)?),
        };
        let origin = Origin::home(domain_or_default(domain).into(), server.into());
        let ticket = self.shared.admit(one.as_deref(), origin, &options)?;
        Ok(PreparedCall {
            ticket,
            work: Work::ListTools {
                domain: domain.into(),
                server: one,
                deadline: deadline::of(&options),
            },
        })
    }
}

pub(super) async fn list_tools(
    shared: Arc<Shared>,
    domain: String,
    server: Option<Arc<Server>>,
    deadline: Option<Instant>,
) -> Result<Answer, Error> {
    let only = server.as_ref().map(|server| server.name.clone());
    match server {
        Some(server) => refresh(&server, deadline).await?,
        None => {
            let mut asked = JoinSet::new();
            for (_, slot) in shared.servers().of(&domain) {
                let Some(server) = slot.ready().cloned() else {
                    continue;
                };
                // A server that does not tell is missing in the answer, and holds up no other.
                let ask = async move { drop(refresh(&server, deadline).await) };
                asked.spawn_on(ask, &shared.runtime);
            }
            while asked.join_next().await.is_some() {}
        }
    }
    let known = tools::known(&shared.servers(), &domain, only.as_deref());
    Ok(Answer::with_text(known.tools.into(), known.text))
}

/// Waits until a server's home session told its tools.
async fn refresh(server: &Server, deadline: Option<Instant>) -> Result<(), Error> {
    let want = Want {
        deadline,
        other_than: None,
    };
    let live = server.supervisor.session(want).await;
    let live = live.map_err(|why| Error::unavailable(&server.name, &why))?;
    let known = server.catalogue.known();
    if known.generation >= live.generation {
        if known.error.is_none() {
            return Ok(());
        }
        // One slow or failed answer is not for ever.
        live.session.reload.ask();
    }
    let telling = async {
        tokio::select! {
            known = server.catalogue.after(known.version, live.generation) => known.error.map_or(Ok(()), Err),
            end = live.session.session.session().ended() => Err(Error::of_server(&server.name, &end)),
        }
    };
    within(deadline, telling, || {
        let name = &server.name;
        format!("server \"{name}\": it did not tell its tools within the deadline")
    })
    .await?
}
