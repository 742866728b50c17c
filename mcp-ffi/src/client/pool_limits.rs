//! The bounds of a pool of sessions, as JSON says them.

use std::time::Duration;

use mcp_pool::Limits;
use serde::Deserialize;

use super::{
    error::{Error, Kind},
    options::IDLE_TTL,
    settings::{Never, OrNever, from_object},
};

/// The bounds as they are written; absent is the default, and 0 is 0.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    capacity: Option<u32>,
    sessions_per_server: Option<OrUnlimited>,
    calls_per_session: Option<OrUnlimited>,
    openings: Option<u32>,
    closings: Option<u32>,
    close_limit_ms: Option<u64>,
    idle_ttl_ms: Option<OrNever>,
    max_lifetime_ms: Option<OrNever>,
    wait_ms: Option<OrForever>,
}

/// A number, or the word "unlimited".
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "a number, or \"unlimited\"")]
enum OrUnlimited {
    Most(u32),
    Word(Unlimited),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unlimited {
    Unlimited,
}

/// A time, or the word "forever".
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "milliseconds, or \"forever\"")]
enum OrForever {
    Ms(u64),
    Word(Forever),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Forever {
    Forever,
}

/// The bounds that this JSON object sets; empty for the defaults.
///
/// # Errors
/// [`Kind::Config`] with the name of the member that is wrong.
pub(crate) fn pool_limits(json: &str) -> Result<Limits, Error> {
    let bad =
        |problem: String| Error::new(Kind::Config, format!("the limits of the pool: {problem}"));
    let written: Written = from_object(json).map_err(bad)?;
    written.check().map_err(|problem| bad(problem.into()))?;
    Ok(written.limits())
}

impl Written {
    fn check(&self) -> Result<(), &'static str> {
        if self.openings == Some(0) {
            return Err("openings: with 0 nothing could ever be opened");
        }
        if self.closings == Some(0) {
            return Err("closings: with 0 nothing could ever be closed");
        }
        if matches!(self.calls_per_session, Some(OrUnlimited::Most(0))) {
            return Err("calls_per_session: with 0 no call could ever begin");
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        let default = Limits::default();
        let most = |most: Option<u32>, default| most.map_or(default, |most| most as usize);
        let time = |written, default| match written {
            None => default,
            Some(OrNever::Ms(ms)) => Some(Duration::from_millis(ms)),
            Some(OrNever::Word(Never::Never)) => None,
        };
        Limits {
            capacity: most(self.capacity, default.capacity),
            openings: most(self.openings, default.openings),
            closings: most(self.closings, default.closings),
            sessions_per_server: cap(self.sessions_per_server, default.sessions_per_server),
            calls_per_session: cap(self.calls_per_session, default.calls_per_session),
            close_limit: self
                .close_limit_ms
                .map_or(default.close_limit, Duration::from_millis),
            idle_ttl: time(self.idle_ttl_ms, Some(IDLE_TTL)),
            max_lifetime: time(self.max_lifetime_ms, default.max_lifetime),
            wait: match self.wait_ms {
                None => default.wait,
                Some(OrForever::Ms(ms)) => Some(Duration::from_millis(ms)),
                Some(OrForever::Word(Forever::Forever)) => Some(Duration::MAX),
            },
            ..default
        }
    }
}

fn cap(written: Option<OrUnlimited>, default: Option<usize>) -> Option<usize> {
    match written {
        None => default,
        Some(OrUnlimited::Most(most)) => Some(most as usize),
        Some(OrUnlimited::Word(Unlimited::Unlimited)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(json: &str) -> String {
        let error = pool_limits(json).unwrap_err();
        assert_eq!(error.kind, Kind::Config);
        error.message
    }

    #[test]
    fn what_is_absent_is_the_default_and_0_is_0() {
        let default = Limits {
            idle_ttl: Some(IDLE_TTL),
            ..Limits::default()
        };
        for json in ["", " \n", "{}"] {
            assert_eq!(pool_limits(json).unwrap(), default);
        }
        let json = r#"{"capacity": 0, "sessions_per_server": 0, "idle_ttl_ms": 0, "wait_ms": 0, "close_limit_ms": 0}"#;
        let none = Limits {
            capacity: 0,
            sessions_per_server: Some(0),
            idle_ttl: Some(Duration::ZERO),
            wait: Some(Duration::ZERO),
            close_limit: Duration::ZERO,
            ..default
        };
        assert_eq!(pool_limits(json).unwrap(), none);
    }

    #[test]
    fn every_bound_can_be_set() {
        let json = r#"{"capacity": 1, "sessions_per_server": 2, "calls_per_session": 3, "openings": 4, "closings": 5,
            "close_limit_ms": 6, "idle_ttl_ms": 7, "max_lifetime_ms": 8, "wait_ms": 9}"#;
        let all = Limits {
            capacity: 1,
            sessions_per_server: Some(2),
            calls_per_session: Some(3),
            openings: 4,
            closings: 5,
            close_limit: Duration::from_millis(6),
            idle_ttl: Some(Duration::from_millis(7)),
            max_lifetime: Some(Duration::from_millis(8)),
            wait: Some(Duration::from_millis(9)),
            ..Limits::default()
        };
        assert_eq!(pool_limits(json).unwrap(), all);
    }

    #[test]
    fn what_has_no_bound_is_said_by_name() {
        let json = r#"{"sessions_per_server": "unlimited", "calls_per_session": "unlimited", "idle_ttl_ms": "never",
            "max_lifetime_ms": "never", "wait_ms": "forever"}"#;
        let unbound = Limits {
            wait: Some(Duration::MAX),
            ..Limits::default()
        };
        assert_eq!(pool_limits(json).unwrap(), unbound);
    }

    #[test]
    fn the_member_that_is_wrong_is_named() {
        for (json, named) in [
            (r#"{"capcity": 1}"#, "capcity"),
            (r#"{"capacity": "256"}"#, "capacity"),
            (r#"{"capacity": -1}"#, "capacity"),
            (r#"{"capacity": 4294967296}"#, "capacity"),
            (r#"{"capacity": 1, "capacity": 2}"#, "capacity"),
            (r#"{"sessions_per_server": "never"}"#, "sessions_per_server"),
            (r#"{"idle_ttl_ms": 1.5}"#, "idle_ttl_ms"),
            (r#"{"max_lifetime_ms": "forever"}"#, "max_lifetime_ms"),
            (r#"{"wait_ms": true}"#, "wait_ms"),
            (r#"{"openings": 0}"#, "openings"),
            (r#"{"closings": 0}"#, "closings"),
            (r#"{"calls_per_session": 0}"#, "calls_per_session"),
        ] {
            let error = error_of(json);
            assert!(error.contains(named), "{json}: {error}");
        }
    }

    #[test]
    fn what_is_not_one_object_is_refused() {
        for json in ["[]", "[1]", "7", "null", "{", "{} {}"] {
            error_of(json);
        }
    }
}
