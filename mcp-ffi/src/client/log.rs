//! A log message of a server.

use std::{borrow::Cow, fmt, sync::OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// How grave a log message is, as in RFC 5424.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Details for who looks for a fault.
    Debug,
    /// What is done.
    Info,
    /// What is worth to be noticed, and normal.
    Notice,
    /// What may be wrong.
    Warning,
    /// What went wrong.
    Error,
    /// A part of the server fails.
    Critical,
    /// Somebody must do something now.
    Alert,
    /// The server cannot be used.
    Emergency,
}

/// What a server logs (`notifications/message`).
///
/// `Debug` shows of it only how grave it is and how long.
#[derive(Clone)]
pub struct Log {
    /// The params as raw JSON, the bytes that came: `level`, `logger`, `data`.
    pub params: Bytes,
    text: OnceLock<String>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    logger: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Level {
    level: LogLevel,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("level", &self.level())
            .field("bytes", &self.params.len())
            .finish_non_exhaustive()
    }
}

impl Log {
    pub(super) fn new(params: Bytes) -> Self {
        Self {
            params,
            text: OnceLock::new(),
        }
    }

    /// How grave it is; `None` if the server says nothing that MCP knows.
    pub fn level(&self) -> Option<LogLevel> {
        serde_json::from_slice(&self.params)
            .ok()
            .map(|Level { level }| level)
    }

    /// For a person: the logger, if it has a name, and the data; what is no text is JSON.
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| {
            let Ok(params) = serde_json::from_slice::<Params<'_>>(&self.params) else {
                return String::from_utf8_lossy(&self.params).into_owned();
            };
            let data = params.data.map_or("", RawValue::get);
            let data = serde_json::from_str::<Cow<'_, str>>(data).unwrap_or(data.into());
            match params.logger.as_deref() {
                None | Some("") => data.into_owned(),
                Some(logger) => format!("{logger}: {data}"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(json: &'static str) -> Log {
        Log::new(Bytes::from_static(json.as_bytes()))
    }

    #[test]
    fn its_text_is_logger_and_data() {
        let both = log(r#"{"level":"warning","logger":"db","data":"slow\n\u00e9"}"#);
        assert_eq!(both.text(), "db: slow\né");
        assert_eq!(both.level(), Some(LogLevel::Warning));
        assert_eq!(log(r#"{"data":{"ms":5}}"#).text(), r#"{"ms":5}"#);
    }

    #[test]
    fn what_is_no_log_message_is_shown_as_it_is() {
        assert_eq!(log("[1]").text(), "[1]");
        assert_eq!(log("").text(), "");
        assert_eq!(log(r#"{"level":"loud"}"#).level(), None);
    }
}
