//! Randomness that is the same again for the same seed.

use core::time::Duration;

/// A small generator (a Weyl sequence with a mixing function). Good enough to spread retries, and for nothing secret.
#[derive(Debug, Clone)]
pub(crate) struct Prng(u64);

impl Prng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws how one event's delays are spread. One draw serves all delays of the event, so that taking the longer of
    /// two does not favour long ones.
    pub(crate) fn spread(&mut self) -> Spread {
        Spread((self.next() >> 32) as u32)
    }
}

/// Where within the jitter's range a delay falls: 0 is the short end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread(u32);

impl Spread {
    /// The long end.
    pub(crate) const LONGEST: Self = Self(u32::MAX);

    /// `delay` moved within plus and minus `percent` of it.
    pub(crate) fn around(self, delay: Duration, percent: u8) -> Duration {
        let reach = fraction(delay, u32::from(percent.min(100)), 100);
        (delay - reach).saturating_add(self.share(reach.saturating_mul(2)))
    }

    /// `delay` moved up by at most `percent` of it.
    pub(crate) fn above(self, delay: Duration, percent: u8) -> Duration {
        let reach = fraction(delay, u32::from(percent.min(100)), 100);
        delay.saturating_add(self.share(reach))
    }

    /// Its share of a time.
    pub(crate) fn share(self, of: Duration) -> Duration {
        fraction(of, self.0, u32::MAX)
    }
}

/// `duration` × `numerator` / `denominator`, for a numerator not above the denominator.
fn fraction(duration: Duration, numerator: u32, denominator: u32) -> Duration {
    let nanos = duration.as_nanos() * u128::from(numerator) / u128::from(denominator);
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    Duration::new(seconds, (nanos % 1_000_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_spread_over_the_whole_range_and_never_outside_it() {
        let mut prng = Prng::new(7);
        let second = Duration::from_secs(1);
        let drawn: Vec<_> = (0..1000)
            .map(|_| prng.spread().around(second, 20))
            .collect();
        let (least, most) = (drawn.iter().min().unwrap(), drawn.iter().max().unwrap());
        assert!(*least >= Duration::from_millis(800) && *least < Duration::from_millis(810));
        assert!(*most <= Duration::from_millis(1200) && *most > Duration::from_millis(1190));
    }

    #[test]
    fn the_same_seed_spreads_alike() {
        let draw = |seed| {
            let mut prng = Prng::new(seed);
            [0; 8].map(|_| prng.spread().around(Duration::from_secs(60), 20))
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn the_longest_delay_there_is_does_not_overflow() {
        assert_eq!(Spread(u32::MAX).around(Duration::MAX, 100), Duration::MAX);
        assert_eq!(Spread(u32::MAX).above(Duration::MAX, 20), Duration::MAX);
        assert_eq!(Spread(0).around(Duration::MAX, 100), Duration::ZERO);
    }
}
