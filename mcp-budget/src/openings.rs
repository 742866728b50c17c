//! The sessions of a binding, and the rounds they were opened in.

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::time::Timestamp;

/// Who holds a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The binding itself.
    Home,
    /// A scope.
    Scoped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connecting,
    Unproven { probed: bool },
    Proven,
}

/// One session from the start of its opening to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    /// The round it began in.
    pub(crate) round: u64,
    /// Its number among the attempts since the last proof.
    pub(crate) number: u32,
    phase: Phase,
    /// When its opening began; when it was open, once it is.
    since: Timestamp,
}

impl Opening {
    pub(crate) fn is_open(&self) -> bool {
        self.phase != Phase::Connecting
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.phase == Phase::Proven
    }

    pub(crate) fn life(&self, now: Timestamp) -> Duration {
        if self.is_open() {
            now.since(self.since)
        } else {
            Duration::ZERO
        }
    }

    /// When it should be probed; `None` if it needs none or has had it.
    pub(crate) fn probe_at(&self, healthy_after: Duration) -> Option<Timestamp> {
        match self.phase {
            Phase::Unproven { probed: false } => Some(self.since.plus(healthy_after)),
            _ => None,
        }
    }

    pub(crate) fn probed(&mut self) {
        if let Phase::Unproven { probed } = &mut self.phase {
            *probed = true;
        }
    }
}

/// All of them, by generation. *Doubtful* are those that are being opened or are unproven.
#[derive(Debug, Clone, Default)]
pub(crate) struct Openings {
    round: u64,
    last_generation: u64,
    home: Option<(u64, Opening)>,
    scoped: BTreeMap<u64, Opening>,
    doubtful_home: u32,
    doubtful_scoped: u32,
    doubtful_scoped_any_round: u32,
}

impl Openings {
    /// None, of which those to come are counted on from the last.
    pub(crate) fn after(last_generation: u64) -> Self {
        Self {
            last_generation,
            ..Self::default()
        }
    }

    pub(crate) fn last_generation(&self) -> u64 {
        self.last_generation
    }

    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    /// Begins a new round. What was opened before is of an old one from now on.
    pub(crate) fn end_round(&mut self) {
        self.round += 1;
        self.doubtful_home = 0;
        self.doubtful_scoped = 0;
    }

    pub(crate) fn home(&self) -> Option<(u64, &Opening)> {
        self.home
            .as_ref()
            .map(|(generation, opening)| (*generation, opening))
    }

    pub(crate) fn home_mut(&mut self) -> Option<(u64, &mut Opening)> {
        self.home
            .as_mut()
            .map(|(generation, opening)| (*generation, opening))
    }

    /// Doubtful ones of the present round.
    pub(crate) fn doubtful(&self) -> u32 {
        self.doubtful_home + self.doubtful_scoped
    }

    /// Doubtful scoped ones of the present round.
    pub(crate) fn doubtful_scoped(&self) -> u32 {
        self.doubtful_scoped
    }

    /// Doubtful scoped ones of any round.
    pub(crate) fn doubtful_scoped_any_round(&self) -> u32 {
        self.doubtful_scoped_any_round
    }

    /// Scoped sessions that are open.
    pub(crate) fn open_scoped(&self) -> usize {
        self.scoped.values().filter(|o| o.is_open()).count()
    }

    pub(crate) fn begin(&mut self, side: Side, now: Timestamp, number: u32) -> u64 {
        self.last_generation += 1;
        let opening = Opening {
            round: self.round,
            number,
            phase: Phase::Connecting,
            since: now,
        };
        match side {
            Side::Home => {
                self.home = Some((self.last_generation, opening));
                self.doubtful_home = 1;
            }
            Side::Scoped => {
                self.scoped.insert(self.last_generation, opening);
                self.doubtful_scoped += 1;
                self.doubtful_scoped_any_round += 1;
            }
        }
        self.last_generation
    }

    fn get_mut(&mut self, generation: u64) -> Option<(Side, &mut Opening)> {
        match &mut self.home {
            Some((home, opening)) if *home == generation => Some((Side::Home, opening)),
            _ => self
                .scoped
                .get_mut(&generation)
                .map(|opening| (Side::Scoped, opening)),
        }
    }

    /// It is open. `None` if there is none such being opened.
    pub(crate) fn opened(&mut self, generation: u64, now: Timestamp) -> Option<Side> {
        let (side, opening) = self.get_mut(generation)?;
        if opening.is_open() {
            return None;
        }
        opening.phase = Phase::Unproven { probed: false };
        opening.since = now;
        Some(side)
    }

    /// It is proven. Tells whose it is and of which round; `None` if that changes nothing.
    pub(crate) fn prove(&mut self, generation: u64) -> Option<(Side, u64)> {
        let (side, opening) = self.get_mut(generation)?;
        if !matches!(opening.phase, Phase::Unproven { .. }) {
            return None;
        }
        opening.phase = Phase::Proven;
        let round = opening.round;
        self.no_longer_doubtful(side, round);
        Some((side, round))
    }

    /// It is no more.
    pub(crate) fn remove(&mut self, generation: u64) -> Option<(Side, Opening)> {
        let (side, opening) = match self.home {
            Some((home, opening)) if home == generation => {
                self.home = None;
                (Side::Home, opening)
            }
            _ => (Side::Scoped, self.scoped.remove(&generation)?),
        };
        if !opening.is_proven() {
            self.no_longer_doubtful(side, opening.round);
        }
        Some((side, opening))
    }

    fn no_longer_doubtful(&mut self, side: Side, round: u64) {
        let present = u32::from(round == self.round);
        match side {
            Side::Home => self.doubtful_home -= present,
            Side::Scoped => {
                self.doubtful_scoped -= present;
                self.doubtful_scoped_any_round -= 1;
            }
        }
    }
}
