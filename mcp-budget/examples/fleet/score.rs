//! What is counted.

use crate::world::{DAY, Millis, SERVERS, YEAR, able};

pub(crate) struct Score {
    pub(crate) name: &'static str,
    pub(crate) per_server: Vec<u64>,
    /// By hour.
    pub(crate) per_hour: Vec<u64>,
    second: (Millis, u64),
    pub(crate) worst_second: u64,
    /// From when a server could serve until it was connected, in milliseconds.
    pub(crate) recoveries: Vec<Millis>,
    /// Since when a server is not connected.
    down: Vec<Option<Millis>>,
    /// Milliseconds in which servers could have served and were not connected.
    missed: u64,
    pub(crate) real_time: std::time::Duration,
}

impl Score {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            per_server: vec![0; SERVERS as usize],
            per_hour: vec![0; (YEAR / HOUR) as usize],
            second: (0, 0),
            worst_second: 0,
            recoveries: Vec::new(),
            down: vec![Some(0); SERVERS as usize],
            missed: 0,
            real_time: std::time::Duration::ZERO,
        }
    }

    pub(crate) fn attempt(&mut self, server: u32, at: Millis) {
        self.per_server[server as usize] += 1;
        self.per_hour[(at / HOUR) as usize] += 1;
        if self.second.0 != at / 1000 {
            self.second = (at / 1000, 0);
        }
        self.second.1 += 1;
        self.worst_second = self.worst_second.max(self.second.1);
    }

    pub(crate) fn lost(&mut self, server: u32, at: Millis) {
        self.down[server as usize].get_or_insert(at);
    }

    /// It is connected, and serves.
    pub(crate) fn serves(&mut self, server: u32, at: Millis) {
        if let Some(since) = self.down[server as usize].take() {
            let able = able(server, since);
            // The first connect of all is no recovery.
            if since > 0 {
                self.recoveries.push(at.saturating_sub(able));
            }
            self.missed += at.saturating_sub(able);
        }
    }

    pub(crate) fn end(&mut self) {
        for server in 0..SERVERS {
            if let Some(since) = self.down[server as usize] {
                self.missed += YEAR.saturating_sub(able(server, since));
            }
        }
        self.recoveries.sort_unstable();
        self.per_server.sort_unstable();
    }

    pub(crate) fn attempts(&self) -> u64 {
        self.per_server.iter().sum()
    }

    /// Servers that could serve at the end of the year and were not connected for a day.
    pub(crate) fn given_up(&self) -> usize {
        let long = |(server, since): (u32, &Option<Millis>)| {
            since.is_some_and(|since| able(server, since) + DAY < YEAR)
        };
        (0..).zip(&self.down).filter(|pair| long(*pair)).count()
    }

    /// Of the time in which servers could serve, how much they were not connected, in percent.
    pub(crate) fn missed_percent(&self) -> f64 {
        self.missed as f64 * 100.0 / (YEAR as f64 * f64::from(SERVERS))
    }

    pub(crate) fn recovery(&self, percent: usize) -> f64 {
        let last = self.recoveries.len().saturating_sub(1);
        let at = last * percent / 100;
        self.recoveries.get(at).copied().unwrap_or(0) as f64 / 1000.0
    }
}

pub(crate) const HOUR: u64 = 3_600_000;
