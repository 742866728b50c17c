//! Why an attempt failed or a session ended.

use core::{fmt, time::Duration};

/// How grave a loss is, gravest first: `Cause::Fatal < Cause::Routine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A panic, or the owner's own cancellation or shutdown: never a reconnect, the binding is stopped.
    Fatal,
    /// The server wants credentials. Of an open session it is first taken as expiry, once; then the binding is parked.
    Auth,
    /// Trying again cannot help: command missing, bad URL, not an MCP server. Parks a binding that was never proven;
    /// afterwards it is as [`Cause::Transient`].
    Permanent,
    /// It broke; trying again may help.
    Transient,
    /// The fault is on this side: descriptors, memory, processes, no network. Never charged, never parked.
    Local,
    /// A normal end after a proven life: idle close, expiry. Of an unproven session it is as [`Cause::Transient`].
    Routine,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fatal => "fatal",
            Self::Auth => "credentials needed",
            Self::Permanent => "permanent",
            Self::Transient => "transient",
            Self::Local => "local",
            Self::Routine => "routine",
        })
    }
}

/// The loss of a session, or the failure of an attempt to open one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Loss {
    /// How grave it is.
    pub cause: Cause,
    /// How long from now the server does not want to be tried (`Retry-After`).
    pub not_before: Option<Duration>,
}

impl Loss {
    /// A loss with this cause, and nothing said about when to try again.
    pub const fn new(cause: Cause) -> Self {
        Self {
            cause,
            not_before: None,
        }
    }

    /// The same loss, with the server's wish not to be tried for so long.
    #[must_use]
    pub const fn not_before(self, wait: Duration) -> Self {
        Self {
            cause: self.cause,
            not_before: Some(wait),
        }
    }

    /// One loss of two that came together (reader, writer, child and timer each end on their own): the graver cause
    /// and the longer wait.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            cause: self.cause.min(other.cause),
            not_before: self.not_before.max(other.not_before),
        }
    }

    /// One loss of all that came together; none of none.
    pub fn gravest(losses: impl IntoIterator<Item = Self>) -> Option<Self> {
        losses.into_iter().reduce(Self::and)
    }
}

impl From<Cause> for Loss {
    fn from(cause: Cause) -> Self {
        Self::new(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_causes_the_gravest_decides_whatever_their_order() {
        use Cause::{Auth, Fatal, Local, Permanent, Routine, Transient};
        let order = [Fatal, Auth, Permanent, Transient, Local, Routine];
        for (rank, graver) in order.iter().enumerate() {
            for milder in &order[rank..] {
                let (graver, milder) = (Loss::new(*graver), Loss::new(*milder));
                assert_eq!(graver.and(milder), graver);
                assert_eq!(milder.and(graver), graver);
            }
        }
        assert_eq!(Loss::gravest([]), None);
    }

    #[test]
    fn the_longest_wait_is_kept_beside_the_gravest_cause() {
        let minute = Duration::from_secs(60);
        let both = Loss::new(Cause::Permanent).and(Loss::new(Cause::Transient).not_before(minute));
        assert_eq!(both, Loss::new(Cause::Permanent).not_before(minute));
    }
}
