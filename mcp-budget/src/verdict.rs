//! What a loss means for its binding.

use crate::{loss::Cause, transition::Reason};

/// What is known when something is lost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances {
    /// It was an open session; else an attempt that failed.
    pub(crate) open: bool,
    /// The session was proven.
    pub(crate) proven: bool,
    /// It was opened in the present round.
    pub(crate) present: bool,
    /// Some session of the binding was once proven.
    pub(crate) ever_proven: bool,
    /// A demand for credentials was taken as expiry since the last proof, or the binding is parked.
    pub(crate) credentials_refused: bool,
    /// The policy allows reconnects.
    pub(crate) may_reconnect: bool,
}

/// What is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The binding is stopped.
    Stop,
    /// It is parked at once.
    Park(Reason),
    /// The round costs a charge.
    Charge,
    /// No charge, but everybody backs off.
    BackOff,
    /// Nothing is held against it; the home session is replaced after its own backoff.
    Excuse,
    /// A demand for credentials, taken as expiry.
    Forgive,
    /// A normal end: the home session is opened again when it is needed.
    Rest,
}

pub(crate) fn judge(cause: Cause, about: Circumstances) -> Verdict {
    match cause {
        Cause::Fatal => Verdict::Stop,
        _ if about.open && !about.may_reconnect => Verdict::Park(Reason::NoRetries),
        // An old round is paid for, and whether the server still refuses its credentials, new openings will show.
        Cause::Auth if !about.present => Verdict::Rest,
        Cause::Auth if about.open && !about.credentials_refused => Verdict::Forgive,
        Cause::Auth => Verdict::Park(Reason::Auth),
        Cause::Routine if about.proven => Verdict::Rest,
        _ if about.proven || !about.present => Verdict::Excuse,
        Cause::Local => Verdict::BackOff,
        Cause::Permanent if !about.ever_proven => Verdict::Park(Reason::Permanent),
        Cause::Permanent | Cause::Transient | Cause::Routine => Verdict::Charge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSES: [Cause; 6] = [
        Cause::Fatal,
        Cause::Auth,
        Cause::Permanent,
        Cause::Transient,
        Cause::Local,
        Cause::Routine,
    ];

    fn verdicts(about: Circumstances) -> [Verdict; 6] {
        CAUSES.map(|cause| judge(cause, about))
    }

    const ATTEMPT: Circumstances = Circumstances {
        open: false,
        proven: false,
        present: true,
        ever_proven: false,
        credentials_refused: false,
        may_reconnect: true,
    };

    #[test]
    fn each_cause_of_a_failed_attempt_has_its_verdict() {
        use Verdict::{BackOff, Charge, Park, Stop};
        assert_eq!(
            verdicts(ATTEMPT),
            [
                Stop,
                Park(Reason::Auth),
                Park(Reason::Permanent),
                Charge,
                BackOff,
                Charge
            ]
        );
        let proven_once = Circumstances {
            ever_proven: true,
            ..ATTEMPT
        };
        assert_eq!(judge(Cause::Permanent, proven_once), Charge);
    }

    #[test]
    fn each_cause_of_a_proven_sessions_loss_has_its_verdict() {
        use Verdict::{Excuse, Forgive, Rest, Stop};
        let proven = Circumstances {
            open: true,
            proven: true,
            ever_proven: true,
            ..ATTEMPT
        };
        assert_eq!(
            verdicts(proven),
            [Stop, Forgive, Excuse, Excuse, Excuse, Rest]
        );
    }

    #[test]
    fn without_retries_every_loss_parks_but_a_fatal_one() {
        let proven = Circumstances {
            open: true,
            proven: true,
            ever_proven: true,
            may_reconnect: false,
            ..ATTEMPT
        };
        let (fatal, others) = (verdicts(proven)[0], &verdicts(proven)[1..]);
        assert_eq!(fatal, Verdict::Stop);
        assert!(
            others
                .iter()
                .all(|v| *v == Verdict::Park(Reason::NoRetries))
        );
    }

    #[test]
    fn nothing_of_an_old_round_costs_anything_but_a_fatal_cause() {
        for open in [false, true] {
            let old = Circumstances {
                open,
                present: false,
                ..ATTEMPT
            };
            for verdict in &verdicts(old)[1..] {
                assert!(matches!(verdict, Verdict::Excuse | Verdict::Rest));
            }
            assert_eq!(judge(Cause::Fatal, old), Verdict::Stop);
        }
    }
}
