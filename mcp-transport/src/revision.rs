//! The revisions of MCP that this crate speaks.

use std::fmt;

/// A handshake revision of MCP, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Revision {
    /// 2024-11-05: stdio and HTTP+SSE.
    V2024_11_05,
    /// 2025-03-26: Streamable HTTP, and the only one with JSON-RPC batches.
    V2025_03_26,
    /// 2025-06-18: elicitation, structured output, the `MCP-Protocol-Version` header.
    V2025_06_18,
    /// 2025-11-25: the last revision with a handshake.
    V2025_11_25,
}

impl Revision {
    /// Every revision, oldest first.
    pub const ALL: [Self; 4] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
    ];

    /// What a client offers in `initialize`: the newest.
    pub const OFFERED: Self = Self::V2025_11_25;

    /// The revision as it is written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// The revision that is written so, if it is one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == text)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_revision_is_read_back_from_its_text() {
        for revision in Revision::ALL {
            assert_eq!(Revision::parse(revision.as_str()), Some(revision));
        }
    }

    #[test]
    fn a_revision_of_nobody_is_none_of_ours() {
        for text in ["9999-01-01", "", "2025-11-25 ", "2026-07-28"] {
            assert_eq!(Revision::parse(text), None, "{text}");
        }
    }
}
