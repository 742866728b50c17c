//! Whose session a call uses.

use std::sync::Arc;

/// The domain of those who name none.
pub const DEPLOYMENT: &str = "deployment";

/// A scope of a domain, or the home sessions of a domain, which calls without a scope share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    pub(super) domain: Arc<str>,
    pub(super) name: Option<Arc<str>>,
}

impl Scope {
    /// An empty domain is [`DEPLOYMENT`]; an empty name stands for the home sessions.
    pub fn new(domain: &str, name: &str) -> Self {
        Self {
            domain: domain_or_default(domain).into(),
            name: (!name.is_empty()).then(|| name.into()),
        }
    }
}

impl Default for Scope {
    /// The home sessions of [`DEPLOYMENT`].
    fn default() -> Self {
        Self::new("", "")
    }
}

pub(crate) fn domain_or_default(domain: &str) -> &str {
    if domain.is_empty() {
        DEPLOYMENT
    } else {
        domain
    }
}
