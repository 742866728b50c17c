//! What of a server's configuration is ours: the member `mcpconn`.

use std::time::Duration;

use mcp_budget::Policy;
use serde::Deserialize;
#[cfg(feature = "capi")]
use serde::de::DeserializeOwned;

#[cfg(feature = "capi")]
use super::error::{Error, Kind};

/// How a server is treated; what makes its connection is not in it. Changes apply without a reconnect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    /// Connect now, not at the first call.
    pub(super) eager: bool,
    /// Over HTTP, whether the home session holds a stream open for what the server says on its own.
    listen: Option<bool>,
    connect_timeout_ms: Option<u64>,
    close_timeout_ms: Option<u64>,
    budget: BudgetSettings,
}

/// The constants of the reconnect budget; absent is the default, and 0 is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BudgetSettings {
    max_retries: Option<u32>,
    max_initial_retries: Option<u32>,
    max_unproven: Option<u32>,
    backoff_ms: Option<u64>,
    backoff_max_ms: Option<u64>,
    backoff_max_proven_ms: Option<u64>,
    jitter_percent: Option<u8>,
    floor_ms: Option<u64>,
    healthy_after_ms: Option<u64>,
    probe_deadline_ms: Option<u64>,
    stable_after_ms: Option<u64>,
    park_probe_ms: Option<u64>,
    park_probe_max_ms: Option<u64>,
    auth_probe_ms: Option<u64>,
    not_before_max_ms: Option<u64>,
    keepalive_ms: Option<OrNever>,
    check_spread_ms: Option<u64>,
    breaker_failures: Option<u32>,
    breaker_open_ms: Option<u64>,
}

/// A time, or the word "never".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "milliseconds, or \"never\"")]
pub(super) enum OrNever {
    Ms(u64),
    Word(Never),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Never {
    Never,
}

/// The most that a connect deadline grows to on retries.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(180);

impl Settings {
    pub(super) fn parse(json: &serde_json::Value) -> Result<Self, String> {
        let settings: Self = serde_path_to_error::deserialize(json)
            .map_err(|error| format!("\"mcpconn\": {}", named(&error)))?;
        settings
            .budget
            .check()
            .map_err(|problem| format!("\"mcpconn\": budget.{problem}"))?;
        Ok(settings)
    }

    /// The deadline of the attempt of this number, counted from 1: a slow start gets more time at each retry.
    pub(super) fn connect_timeout(&self, default: Duration, attempt: u32) -> Duration {
        let first = self
            .connect_timeout_ms
            .map_or(default, Duration::from_millis);
        let doubled = first.saturating_mul(1 << attempt.saturating_sub(1).min(16));
        doubled.min(CONNECT_TIMEOUT_MAX.max(first))
    }

    pub(super) fn listen(&self) -> bool {
        self.listen.unwrap_or(true)
    }

    pub(super) fn close_timeout(&self) -> Duration {
        self.close_timeout_ms
            .map_or(Duration::from_millis(3800), Duration::from_millis)
    }

    pub(super) fn policy(&self) -> Policy {
        self.budget.policy()
    }
}

/// What is wrong, with the name of the member that it is wrong with.
fn named<E: std::fmt::Display>(error: &serde_path_to_error::Error<E>) -> String {
    match error.path().iter().len() {
        0 => error.inner().to_string(),
        _ => format!("{}: {}", error.path(), error.inner()),
    }
}

/// The policy that this JSON object sets, for a budget alone; empty for the defaults.
#[cfg(feature = "capi")]
pub(crate) fn budget_policy(json: &str) -> Result<Policy, Error> {
    let unreadable = |problem: String| Error::new(Kind::Config, format!("the policy: {problem}"));
    let budget: BudgetSettings = from_object(json).map_err(unreadable)?;
    budget.check().map_err(unreadable)?;
    Ok(budget.policy())
}

/// What this JSON object sets, or all defaults if there is none; else what is wrong with it, by name.
#[cfg(feature = "capi")]
pub(super) fn from_object<T: DeserializeOwned + Default>(json: &str) -> Result<T, String> {
    match json.trim_start().chars().next() {
        None => return Ok(T::default()),
        Some('{') => {}
        // A list would be taken as the members in order.
        Some(_) => return Err("it is not a JSON object".into()),
    }
    let mut json = serde_json::Deserializer::from_str(json);
    let set = serde_path_to_error::deserialize(&mut json).map_err(|error| named(&error))?;
    json.end().map_err(|error| error.to_string())?;
    Ok(set)
}

impl BudgetSettings {
    fn check(&self) -> Result<(), String> {
        match self.jitter_percent {
            Some(percent) if percent > 100 => Err("jitter_percent is more than 100".into()),
            _ => Ok(()),
        }
    }

    fn policy(&self) -> Policy {
        let budget = self;
        let mut policy = Policy::default();
        let ms = |slot: &mut Duration, ms: Option<u64>| {
            if let Some(ms) = ms {
                *slot = Duration::from_millis(ms);
            }
        };
        ms(&mut policy.backoff, budget.backoff_ms);
        ms(&mut policy.backoff_max, budget.backoff_max_ms);
        ms(&mut policy.backoff_max_proven, budget.backoff_max_proven_ms);
        ms(&mut policy.floor, budget.floor_ms);
        ms(&mut policy.healthy_after, budget.healthy_after_ms);
        ms(&mut policy.probe_deadline, budget.probe_deadline_ms);
        ms(&mut policy.stable_after, budget.stable_after_ms);
        ms(&mut policy.park_probe, budget.park_probe_ms);
        ms(&mut policy.park_probe_max, budget.park_probe_max_ms);
        ms(&mut policy.auth_probe, budget.auth_probe_ms);
        ms(&mut policy.not_before_max, budget.not_before_max_ms);
        ms(&mut policy.check_spread, budget.check_spread_ms);
        match budget.keepalive_ms {
            Some(OrNever::Ms(ms)) => policy.keepalive = Some(Duration::from_millis(ms)),
            Some(OrNever::Word(Never::Never)) => policy.keepalive = None,
            None => {}
        }
        ms(&mut policy.breaker_open, budget.breaker_open_ms);
        policy.breaker_failures = budget.breaker_failures.unwrap_or(policy.breaker_failures);
        policy.max_retries = budget.max_retries.unwrap_or(policy.max_retries);
        policy.max_initial_retries = budget
            .max_initial_retries
            .unwrap_or(policy.max_initial_retries);
        policy.max_unproven = budget.max_unproven.unwrap_or(policy.max_unproven);
        policy.jitter_percent = budget.jitter_percent.unwrap_or(policy.jitter_percent);
        policy
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_absent_is_the_default_and_0_is_0() {
        let settings =
            Settings::parse(&json!({"budget": {"max_retries": 0, "backoff_ms": 50}})).unwrap();
        let policy = settings.policy();
        assert_eq!(policy.max_retries, 0);
        assert_eq!(policy.backoff, Duration::from_millis(50));
        assert_eq!(policy.floor, Policy::default().floor);
    }

    #[test]
    fn what_never_happens_is_said_by_name() {
        let keepalive = |json| {
            let settings = Settings::parse(&json!({"budget": {"keepalive_ms": json}}));
            settings.map(|settings| settings.policy().keepalive)
        };
        assert_eq!(keepalive(json!(50)), Ok(Some(Duration::from_millis(50))));
        assert_eq!(keepalive(json!("never")), Ok(None));
        let error = keepalive(json!("always")).unwrap_err();
        assert!(error.contains("never"), "{error}");
    }

    #[test]
    fn an_unknown_member_is_named() {
        let error = Settings::parse(&json!({"budget": {"max_retires": 3}})).unwrap_err();
        assert!(error.contains("max_retires"), "{error}");
    }

    #[test]
    fn a_member_of_another_type_is_named() {
        let error = Settings::parse(&json!({"budget": {"max_retries": "5"}})).unwrap_err();
        assert!(error.contains("budget.max_retries"), "{error}");
    }

    #[test]
    fn a_retry_gets_twice_the_time_up_to_three_minutes_or_what_was_asked_for() {
        let default = Duration::from_secs(60);
        let settings = Settings::default();
        let seconds: Vec<_> = (1..5)
            .map(|n| settings.connect_timeout(default, n).as_secs())
            .collect();
        assert_eq!(seconds, [60, 120, 180, 180]);
        assert_eq!(settings.connect_timeout(default, u32::MAX).as_secs(), 180);
        let long = Settings::parse(&json!({"connect_timeout_ms": 600_000})).unwrap();
        assert_eq!(long.connect_timeout(default, 3).as_secs(), 600);
    }

    #[test]
    fn every_constant_of_the_budget_is_in_the_header_with_its_default() {
        const HEADER: &str = include_str!("../../../include/mcpconn.h");
        let refused = Settings::parse(&json!({"budget": {"?": 0}})).unwrap_err();
        let names: Vec<&str> = refused.split('`').skip(3).step_by(2).collect();
        assert!(names.len() > 15, "{refused}");
        for name in names {
            assert!(HEADER.contains(name), "{name}");
        }
        let told = json!({"budget": {
            "max_retries": 5, "max_initial_retries": 3, "max_unproven": 4, "backoff_ms": 1000, "backoff_max_ms": 60000,
            "backoff_max_proven_ms": 300000, "jitter_percent": 20, "floor_ms": 1000, "healthy_after_ms": 180000,
            "probe_deadline_ms": 20000, "stable_after_ms": 600000, "park_probe_ms": 300000, "park_probe_max_ms": 3600000,
            "auth_probe_ms": 3600000, "not_before_max_ms": 3600000, "keepalive_ms": 60000, "check_spread_ms": 10000,
            "breaker_failures": 3, "breaker_open_ms": 60000
        }});
        let told = Settings::parse(&told).unwrap().policy();
        assert_eq!(told, Policy::default());
    }
}
