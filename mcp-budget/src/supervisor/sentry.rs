//! Sees that the machine slept.

use std::{sync::Weak, time::Duration};

use tokio::time::sleep;

use super::gate::Inner;
use crate::{sleep::SleepWatch, time::Timestamp};

/// How often the clocks are read.
const EVERY: Duration = Duration::from_secs(10);

/// The task of a gate that reads the clocks and passes word to the supervisors there, for as long as there are any.
pub(super) struct Sentry(pub(super) Weak<Inner>);

impl Sentry {
    pub(super) async fn run(self) {
        let (mut running, always) = clocks();
        let mut watch = SleepWatch::new(running, always);
        loop {
            let due = running.plus(EVERY);
            sleep(EVERY).await;
            let Some(gate) = self.0.upgrade() else {
                return;
            };
            if gate.listeners() == 0 {
                return;
            }
            let always;
            (running, always) = clocks();
            if let Some(slept) = watch.read(running, always, due) {
                tracing::info!(seconds = slept.as_secs(), "the machine slept");
                gate.check_all();
            }
        }
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        if let Some(gate) = self.0.upgrade() {
            gate.unguarded();
        }
    }
}

/// The clock that stops while the machine sleeps, and the one that does not.
#[cfg(target_os = "linux")]
fn clocks() -> (Timestamp, Timestamp) {
    use rustix::time::{ClockId, clock_gettime};

    let read = |clock| {
        let time = clock_gettime(clock);
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        let nanos = Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0));
        Timestamp::ZERO.plus(seconds + nanos)
    };
    (read(ClockId::Monotonic), read(ClockId::Boottime))
}

/// Here only a timer that comes late tells.
#[cfg(not(target_os = "linux"))]
fn clocks() -> (Timestamp, Timestamp) {
    use std::{sync::OnceLock, time::Instant};

    static EPOCH: OnceLock<Instant> = OnceLock::new();
    let now = Timestamp::ZERO.plus(EPOCH.get_or_init(Instant::now).elapsed());
    (now, now)
}
