//! Names that C can read in place.

use std::{fmt, sync::Arc};

/// A part of a key: text with a NUL behind it. Clones are the same bytes, which stay where they are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name(Arc<str>);

impl Name {
    pub(crate) fn new(text: &str) -> Self {
        let mut with_nul = String::with_capacity(text.len() + 1);
        with_nul.push_str(text);
        with_nul.push('\0');
        Self(with_nul.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0[..self.0.len() - 1]
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl serde::Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
