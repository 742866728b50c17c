//! Whether a session that says nothing is still there.

use core::time::Duration;

use crate::{policy::Policy, time::Timestamp};

/// Watches the silence of one open session.
///
/// Whatever bytes came from the server are life, and asking is needed only where none came for the interval. A session
/// without a call in flight is then pinged; if that has no answer within [`Policy::probe_deadline`] it is asked
/// something of another kind, for servers that know no ping; and if that has none either, it is lost. A session with
/// calls in flight may have a server that computes and cannot answer: it is asked only once a call of it has timed out,
/// and lost only if not a byte came since.
///
/// One for each session, used by whoever holds it; for home sessions a supervisor does. Not for HTTP sessions without a
/// standing stream: they have nothing to be silent on, and expiry is the cheaper truth.
///
/// ```
/// use mcp_budget::{Keepalive, Policy, Pulse, Timestamp, VitalSign};
///
/// let policy = Policy::default(); // asks after 60 s, and again after 20 s
/// let mut keepalive = Keepalive::new();
/// let pulse = Pulse { heard: Timestamp::ZERO, busy: false, timed_out: None };
/// let after = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
/// assert_eq!(keepalive.poll(after(59), pulse, &policy), None);
/// assert_eq!(keepalive.poll(after(60), pulse, &policy), Some(VitalSign::Ping));
/// assert_eq!(keepalive.poll(after(80), pulse, &policy), Some(VitalSign::Other));
/// assert_eq!(keepalive.poll(after(100), pulse, &policy), Some(VitalSign::None));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Keepalive {
    now: Timestamp,
    asked: Asked,
    /// When an answer came last, for sessions that do not count it among the bytes.
    answered: Timestamp,
}

/// What is known of a session from its outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse<Instant = Timestamp> {
    /// When the last byte came from the server; when it was opened, if none came since. While the host does not read,
    /// silence is no sign: then it is now.
    pub heard: Instant,
    /// It has a call in flight.
    pub busy: bool,
    /// When a call of it last timed out.
    pub timed_out: Option<Instant>,
}

/// What is to be done about a silent session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VitalSign {
    /// Ping it. Any well-formed answer, also an error, is life.
    Ping,
    /// Ask it something of another kind.
    Other,
    /// It gave none: it is lost.
    None,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    Nothing,
    Ping {
        at: Timestamp,
    },
    Other {
        at: Timestamp,
    },
    /// Nothing is asked any more.
    Lost,
}

impl Keepalive {
    /// For a session that has just been opened.
    pub fn new() -> Self {
        Self::default()
    }

    /// What to do now. Ask at [`timeout`](Self::timeout), and when a call timed out.
    pub fn poll(&mut self, now: Timestamp, pulse: Pulse, policy: &Policy) -> Option<VitalSign> {
        let now = self.advance(now);
        let interval = policy.keepalive?;
        let pulse = self.heard_of(pulse);
        self.listen(pulse);
        let deadline = policy.probe_deadline;
        match self.asked {
            Asked::Nothing if now >= Self::suspicious_at(pulse, interval)? => {
                self.asked = Asked::Ping { at: now };
                Some(VitalSign::Ping)
            }
            Asked::Ping { at } if now >= at.plus(deadline) => {
                self.asked = Asked::Other { at: now };
                Some(VitalSign::Other)
            }
            Asked::Other { at } if now >= at.plus(deadline) => {
                self.asked = Asked::Lost;
                Some(VitalSign::None)
            }
            _ => None,
        }
    }

    /// What was asked has an answer, which is life like any byte.
    pub fn answered(&mut self, now: Timestamp) {
        self.answered = self.advance(now);
        if self.asked != Asked::Lost {
            self.asked = Asked::Nothing;
        }
    }

    /// When to [`poll`](Self::poll) again if the pulse stays as it is; it may have passed. `None`: not before a call
    /// has timed out, or never.
    pub fn timeout(&self, pulse: Pulse, policy: &Policy) -> Option<Timestamp> {
        let interval = policy.keepalive?;
        let pulse = self.heard_of(pulse);
        match self.asked {
            Asked::Nothing => Self::suspicious_at(pulse, interval),
            Asked::Ping { at } | Asked::Other { at } => Some(at.plus(policy.probe_deadline)),
            Asked::Lost => None,
        }
    }

    fn heard_of(&self, pulse: Pulse) -> Pulse {
        Pulse {
            heard: pulse.heard.max(self.answered),
            ..pulse
        }
    }

    /// Forgets what was asked if a byte came since, or if the session has taken up work that may keep it from
    /// answering.
    fn listen(&mut self, pulse: Pulse) {
        if let Asked::Ping { at } | Asked::Other { at } = self.asked {
            let working = pulse.busy && pulse.timed_out.is_none_or(|late| late < pulse.heard);
            if pulse.heard > at || working {
                self.asked = Asked::Nothing;
            }
        }
    }

    /// When its silence asks for a question.
    fn suspicious_at(pulse: Pulse, interval: Duration) -> Option<Timestamp> {
        let silent = pulse.heard.plus(interval);
        match (pulse.busy, pulse.timed_out) {
            (false, _) => Some(silent),
            (true, Some(late)) if late >= pulse.heard => Some(silent.max(late)),
            (true, _) => None,
        }
    }

    fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    const fn idle(heard: u64) -> Pulse {
        Pulse {
            heard: at(heard),
            busy: false,
            timed_out: None,
        }
    }

    const fn busy(heard: u64, timed_out: Option<u64>) -> Pulse {
        Pulse {
            heard: at(heard),
            busy: true,
            timed_out: match timed_out {
                Some(late) => Some(at(late)),
                None => None,
            },
        }
    }

    fn poll(keepalive: &mut Keepalive, now: u64, pulse: Pulse) -> Option<VitalSign> {
        keepalive.poll(at(now), pulse, &Policy::default())
    }

    #[test]
    fn bytes_within_the_interval_are_life_and_nothing_is_asked() {
        let mut keepalive = Keepalive::new();
        for now in 0..1000 {
            assert_eq!(poll(&mut keepalive, now, idle(now / 59 * 59)), None);
            assert_eq!(
                poll(&mut keepalive, now, busy(now / 59 * 59, Some(now))),
                None
            );
        }
    }

    #[test]
    fn an_idle_session_that_leaves_both_questions_unanswered_is_lost() {
        let mut keepalive = Keepalive::new();
        assert_eq!(keepalive.timeout(idle(0), &Policy::default()), Some(at(60)));
        assert_eq!(poll(&mut keepalive, 60, idle(0)), Some(VitalSign::Ping));
        assert_eq!(poll(&mut keepalive, 79, idle(0)), None);
        assert_eq!(keepalive.timeout(idle(0), &Policy::default()), Some(at(80)));
        assert_eq!(poll(&mut keepalive, 80, idle(0)), Some(VitalSign::Other));
        assert_eq!(poll(&mut keepalive, 99, idle(0)), None);
        assert_eq!(poll(&mut keepalive, 100, idle(0)), Some(VitalSign::None));
        assert_eq!(poll(&mut keepalive, 500, idle(0)), None, "once");
        assert_eq!(keepalive.timeout(idle(0), &Policy::default()), None);
    }

    #[test]
    fn an_answer_to_either_question_and_any_byte_begin_the_silence_anew() {
        let mut keepalive = Keepalive::new();
        poll(&mut keepalive, 60, idle(0));
        keepalive.answered(at(60));
        assert_eq!(poll(&mut keepalive, 61, idle(61)), None);
        assert_eq!(poll(&mut keepalive, 121, idle(61)), Some(VitalSign::Ping));
        assert_eq!(poll(&mut keepalive, 141, idle(61)), Some(VitalSign::Other));
        assert_eq!(
            poll(&mut keepalive, 161, idle(150)),
            None,
            "a notification came"
        );
        assert_eq!(poll(&mut keepalive, 210, idle(150)), Some(VitalSign::Ping));
    }

    #[test]
    fn a_busy_session_is_not_asked_before_a_call_of_it_timed_out() {
        let mut keepalive = Keepalive::new();
        assert_eq!(poll(&mut keepalive, 10_000, busy(0, None)), None);
        assert_eq!(keepalive.timeout(busy(0, None), &Policy::default()), None);
        let late = busy(0, Some(10_000));
        assert_eq!(poll(&mut keepalive, 10_000, late), Some(VitalSign::Ping));
        assert_eq!(poll(&mut keepalive, 10_020, late), Some(VitalSign::Other));
        assert_eq!(poll(&mut keepalive, 10_040, late), Some(VitalSign::None));
    }

    #[test]
    fn a_byte_after_the_timeout_acquits_a_busy_session_until_another_call_times_out() {
        let mut keepalive = Keepalive::new();
        assert_eq!(
            poll(&mut keepalive, 300, busy(0, Some(300))),
            Some(VitalSign::Ping)
        );
        assert_eq!(poll(&mut keepalive, 320, busy(310, Some(300))), None);
        assert_eq!(poll(&mut keepalive, 5_000, busy(310, Some(300))), None);
        assert_eq!(
            poll(&mut keepalive, 5_001, busy(310, Some(5_001))),
            Some(VitalSign::Ping)
        );
    }

    #[test]
    fn a_session_that_takes_up_a_call_while_it_is_asked_is_given_the_time_for_it() {
        let mut keepalive = Keepalive::new();
        assert_eq!(poll(&mut keepalive, 60, idle(0)), Some(VitalSign::Ping));
        assert_eq!(poll(&mut keepalive, 80, busy(0, None)), None);
        assert_eq!(poll(&mut keepalive, 1_000, busy(0, None)), None);
        assert_eq!(poll(&mut keepalive, 1_001, idle(0)), Some(VitalSign::Ping));
    }

    #[test]
    fn without_an_interval_nothing_is_ever_asked() {
        let policy = Policy {
            keepalive: None,
            ..Policy::default()
        };
        let mut keepalive = Keepalive::new();
        assert_eq!(keepalive.poll(at(1 << 30), idle(0), &policy), None);
        assert_eq!(keepalive.timeout(idle(0), &policy), None);
    }
}
