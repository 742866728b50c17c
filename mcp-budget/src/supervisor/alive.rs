//! Keeps a session alive, or finds it dead.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::{Failure, Session, clock::Clock};
use crate::{
    keepalive::{Keepalive, Pulse, VitalSign},
    policy::Policy,
};

/// How often to see whether a session has come to be one that can be kept alive.
const OFF: Duration = Duration::from_secs(60);

/// Watches an open session by the rules of [`Keepalive`], from its opening on; completes when it is found dead, with
/// why.
///
/// A supervisor does this for its home session. For whoever holds scoped ones; `policy` is asked at each step, so that
/// another one applies at once.
pub async fn keep_alive<S: Session>(
    session: S,
    policy: impl Fn() -> Policy + Send + Sync,
) -> Failure {
    watch(Clock::start(), session, policy).await
}

/// The same on a clock that began before the session, so that what happened before it was opened keeps its order.
pub(super) async fn watch<S: Session>(
    clock: Clock,
    session: S,
    policy: impl Fn() -> Policy + Send + Sync,
) -> Failure {
    let mut keepalive = Keepalive::new();
    loop {
        let (now, policy) = (clock.now(), policy());
        let pulse = session.pulse().map(|pulse| Pulse {
            heard: clock.at(pulse.heard),
            busy: pulse.busy,
            timed_out: pulse.timed_out.map(|at| clock.at(at)),
        });
        let (Some(pulse), Some(interval)) = (pulse, policy.keepalive) else {
            sleep_until(Instant::now() + OFF).await;
            continue;
        };
        let sign = keepalive.poll(now, pulse, &policy);
        let deadline = policy.probe_deadline;
        let answer = match sign {
            Some(VitalSign::Ping) => timeout(deadline, session.probe()).await,
            Some(VitalSign::Other) => timeout(deadline, session.probe_other()).await,
            Some(VitalSign::None) => return Failure::silent(),
            None => {
                // A call may time out meanwhile, of which nobody tells: so it looks again after the interval.
                let again = Instant::now() + interval.clamp(Duration::from_millis(1), OFF);
                let next = keepalive.timeout(pulse, &policy);
                let next = next.map_or(again, |at| clock.instant(at).min(again));
                sleep_until(next).await;
                continue;
            }
        };
        match answer {
            Ok(Ok(())) => keepalive.answered(clock.now()),
            Ok(Err(failure)) => return failure,
            Err(_) => {}
        }
    }
}
