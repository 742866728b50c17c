//! What a configuration makes of a domain's servers.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use mcp_pool::Fingerprint;
use mcp_transport::config::{self, ServerConfig};

use super::{
    error::{Error, Kind},
    server::{Plan, Server},
    servers::{InvalidServer, Report, Slot},
    settings::Settings,
    shared::Shared,
};

impl Shared {
    fn fingerprint(&self, config: &ServerConfig) -> Fingerprint {
        let mut hasher = self.fingerprints.build_hasher();
        config.fingerprint_into(&mut hasher);
        hasher.finish().into()
    }

    pub(super) fn configure(&self, domain: &str, json: &str) -> Result<Report, Error> {
        let entries = config::parse_each(json, |name| std::env::var(name).ok())
            .map_err(|error| Error::new(Kind::Config, error.to_string()))?;
        let domain: Arc<str> = domain.into();
        let mut report = Report::default();
        let (mut slots, mut plans) = (BTreeMap::new(), Vec::new());
        for (name, entry) in entries {
            match self.plan(&domain, &name, entry) {
                Ok(plan) => plans.push(plan),
                Err(message) => {
                    report.invalid.push(InvalidServer {
                        server: name.clone(),
                        message: message.clone(),
                    });
                    slots.insert(
                        name.into(),
                        Slot::Invalid(Error::new(Kind::Config, message)),
                    );
                }
            }
        }
        // One configuration at a time, and none once the client closes: both under this lock.
        let mut servers = self.open_servers()?;
        let named = plans
            .iter()
            .map(|(plan, fingerprint)| (plan.name.clone(), *fingerprint));
        let (changes, _closing) = self
            .pool
            .reconcile_bindings(&domain, named.collect::<Vec<_>>());
        let mut before = servers.replace(domain.clone(), BTreeMap::new());
        let _runtime = self.runtime.enter();
        for ((plan, _), (_, binding)) in plans.into_iter().zip(&changes.bindings) {
            let name = plan.name.clone();
            let slot = match before.remove(&name) {
                Some(Slot::Ready(server)) if server.binding == *binding => {
                    server.apply(plan.opener.settings().as_ref().clone());
                    Slot::Ready(server)
                }
                old => {
                    if let Some(old) = old.as_ref().and_then(Slot::ready) {
                        old.make_way();
                    }
                    before.extend(old.map(|old| (name.clone(), old)));
                    Slot::Ready(Server::start(plan, *binding, self.queue.clone()))
                }
            };
            slots.insert(name, slot);
        }
        servers.replace(domain, slots);
        for server in before.values().filter_map(Slot::ready).cloned() {
            self.leaving.spawn(async move {
                let limit = server.opener.settings().close_timeout();
                server.supervisor.shutdown(limit).await;
            });
        }
        let names = |names: Vec<Arc<str>>| {
            let mut names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
            names.sort();
            names
        };
        report.added = names(changes.added);
        report.changed = names(changes.changed);
        report.removed = names(changes.removed);
        report.unchanged = names(changes.unchanged);
        Ok(report)
    }

    /// What one entry of the configuration makes, or what is wrong with it.
    fn plan(
        &self,
        domain: &Arc<str>,
        name: &str,
        entry: Result<ServerConfig, config::ConfigError>,
    ) -> Result<(Plan, Fingerprint), String> {
        if name.is_empty() {
            return Err("server \"\": a server needs a name that is not empty".into());
        }
        let config = entry.map_err(|error| error.to_string())?;
        let settings = match &config.mcpconn {
            Some(json) => {
                Settings::parse(json).map_err(|problem| format!("server \"{name}\": {problem}"))?
            }
            None => Settings::default(),
        };
        let fingerprint = self.fingerprint(&config);
        let plan = Plan::new(
            domain.clone(),
            name.into(),
            config,
            settings,
            self.environment(),
        )
        .map_err(|error| format!("server \"{name}\": {error}"))?;
        Ok((plan, fingerprint))
    }
}
