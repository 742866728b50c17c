//! What was said before.

use alloc::vec::Vec;
use core::time::Duration;

use crate::{
    time::Timestamp,
    transition::{Reason, State, Transition},
};

/// Tells lines that are news from those that repeat what was said in the last hour, so that a server which dies and
/// comes back for days fills no log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Echo {
    said: Vec<Said>,
}

#[derive(Debug, Clone, Copy)]
struct Said {
    line: (State, Reason),
    at: Timestamp,
    since: u32,
}

const AGAIN_AFTER: Duration = Duration::from_secs(3600);

impl Echo {
    /// Whether the transition is worth a line: how often it was left unsaid since the last, if so.
    pub(crate) fn worth(&mut self, now: Timestamp, transition: &Transition) -> Option<u32> {
        let line = (transition.state, transition.reason);
        let Some(said) = self.said.iter_mut().find(|said| said.line == line) else {
            self.said.push(Said {
                line,
                at: now,
                since: 0,
            });
            return Some(0);
        };
        if now.since(said.at) < AGAIN_AFTER {
            said.since = said.since.saturating_add(1);
            return None;
        }
        said.at = now;
        Some(core::mem::take(&mut said.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_line_is_said_once_an_hour_with_how_often_it_was_not() {
        let mut echo = Echo::default();
        let line = |state, attempt| Transition {
            state,
            reason: Reason::Lost,
            attempt,
            charges: 0,
            generation: 1,
            next_try: None,
        };
        let mut said = Vec::new();
        for minute in 0..600 {
            let now = Timestamp::ZERO.plus(Duration::from_secs(60) * minute);
            said.extend(echo.worth(now, &line(State::Waiting, minute)));
        }
        assert_eq!(said, [0, 59, 59, 59, 59, 59, 59, 59, 59, 59]);
        assert_eq!(
            echo.worth(Timestamp::NEVER, &line(State::Parked, 1)),
            Some(0)
        );
    }
}
