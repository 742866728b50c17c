//! The servers by domain and name, and what a configuration changes of them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::Serialize;

use super::{
    error::{Error, Kind},
    scope::domain_or_default,
    server::Server,
};

/// All servers of a client.
#[derive(Debug, Default)]
pub(super) struct Servers {
    domains: HashMap<Arc<str>, BTreeMap<Arc<str>, Slot>>,
}

/// What is under a server's name.
#[derive(Debug, Clone)]
pub(super) enum Slot {
    Ready(Arc<Server>),
    /// Its entry is not usable; what a call to it is told.
    Invalid(Error),
}

impl Slot {
    /// The server, if it can be used.
    pub(super) fn ready(&self) -> Option<&Arc<Server>> {
        match self {
            Self::Ready(server) => Some(server),
            Self::Invalid(_) => None,
        }
    }
}

/// What a configuration changed: names of servers, each list in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Servers that were not there before.
    pub added: Vec<String>,
    /// Servers that were replaced, because what makes their connection changed.
    pub changed: Vec<String>,
    /// Servers that are closed, because they are not named any more.
    pub removed: Vec<String>,
    /// Servers that were not touched.
    pub unchanged: Vec<String>,
    /// Servers whose entry is not usable. One that was there before is among those that are removed, too.
    pub invalid: Vec<InvalidServer>,
}

/// A server whose entry is not usable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InvalidServer {
    /// Its name.
    pub server: String,
    /// What is wrong.
    pub message: String,
}

impl Report {
    /// As JSON, for hosts of other languages.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and lists of them")
    }
}

impl Servers {
    /// The server of this name, or an error that names it and those that there are.
    pub(super) fn get(&self, domain: &str, name: &str) -> Result<Arc<Server>, Error> {
        let domain = domain_or_default(domain);
        let servers = self.domains.get(domain);
        match servers.and_then(|servers| servers.get(name)) {
            Some(Slot::Ready(server)) => Ok(server.clone()),
            Some(Slot::Invalid(error)) => Err(error.clone()),
            None => {
                let names: Vec<&str> = servers
                    .into_iter()
                    .flat_map(BTreeMap::keys)
                    .map(|name| &**name)
                    .collect();
                let there = if names.is_empty() {
                    "it has none; configure it first".into()
                } else {
                    format!("it has: {}", names.join(", "))
                };
                Err(Error::new(
                    Kind::UnknownServer,
                    format!("no server \"{name}\" in the domain \"{domain}\"; {there}"),
                ))
            }
        }
    }

    /// The servers of a domain, by name.
    pub(super) fn of(&self, domain: &str) -> impl Iterator<Item = (&Arc<str>, &Slot)> {
        self.domains
            .get(domain_or_default(domain))
            .into_iter()
            .flatten()
    }

    /// All servers with their domains and names.
    pub(super) fn slots(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &Slot)> {
        self.domains.iter().flat_map(|(domain, servers)| {
            servers
                .iter()
                .map(move |(server, slot)| (domain, server, slot))
        })
    }

    /// All servers that can be used.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.domains
            .values()
            .flat_map(BTreeMap::values)
            .filter_map(Slot::ready)
    }

    /// Puts a domain's servers in place of those before, which it gives back.
    pub(super) fn replace(
        &mut self,
        domain: Arc<str>,
        servers: BTreeMap<Arc<str>, Slot>,
    ) -> BTreeMap<Arc<str>, Slot> {
        if servers.is_empty() {
            self.domains.remove(&domain).unwrap_or_default()
        } else {
            self.domains.insert(domain, servers).unwrap_or_default()
        }
    }

    /// Takes all servers out.
    pub(super) fn take_all(&mut self) -> Vec<Arc<Server>> {
        let servers = self.all().cloned().collect();
        self.domains.clear();
        servers
    }
}
