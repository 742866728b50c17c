//! Keeps the home session alive, or finds it dead.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until, timeout};

use super::{Connect, Failure, Session, Shared};
use crate::keepalive::{Keepalive, Pulse, VitalSign};

/// How often to see whether a session has come to be one that can be kept alive.
const OFF: Duration = Duration::from_secs(60);

/// Watches an open session; completes when it is found dead.
pub(super) async fn watch<C: Connect>(shared: Arc<Shared<C>>, session: C::Session) -> Failure {
    let clock = shared.clock;
    let mut keepalive = Keepalive::new();
    loop {
        let (now, policy) = shared.look(|desk, now| (now, desk.budget_mut().policy().clone()));
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
