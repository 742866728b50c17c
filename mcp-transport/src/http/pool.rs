//! Which connection a request goes over: decided from what there is, with the time as an argument.
//!
//! A connection of HTTP/1.1 is used by one request at a time, the one used last before the others; one of HTTP/2 by all.
//! Who finds none waits, and gets whatever comes first: one that is given back, or one that was made.

use std::{collections::VecDeque, mem};

use http::{
    Uri,
    uri::{Authority, Scheme},
};
use tokio::time::Instant;

/// Where a connection leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin(Scheme, Authority);

impl Origin {
    /// `None` for a URI that is not absolute.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        Some(Self(uri.scheme()?.clone(), uri.authority()?.clone()))
    }
}

/// A connection that can be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<C, S> {
    /// For the finder alone.
    Own(C),
    /// Together with others.
    Shared(S),
}

/// How many may be in the making that nobody waits for any more: they serve who comes next, but a server that answers
/// none would be knocked at by ever more.
const SPARE: usize = 4;

/// Names one who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// Connections for one request each `C`, such as many share `S`, and who waits for one `W`.
#[derive(Debug)]
pub(super) struct Pool<C, S, W> {
    // A binding has one origin, two at most: a list is the fastest map.
    places: Vec<Place<C, S, W>>,
    tickets: u64,
}

#[derive(Debug)]
struct Place<C, S, W> {
    origin: Origin,
    /// Each with when it must not be used any more; the one used last is the last.
    idle: Vec<(Instant, C)>,
    shared: Option<(Instant, S)>,
    waiting: VecDeque<(Ticket, W)>,
    /// How many are being made: never fewer than wait.
    making: usize,
}

impl<C, S: Clone, W> Pool<C, S, W> {
    pub(super) fn new() -> Self {
        Self {
            places: Vec::new(),
            tickets: 0,
        }
    }

    fn place(&mut self, origin: &Origin) -> &mut Place<C, S, W> {
        let at = self.places.iter().position(|place| place.origin == *origin);
        let at = at.unwrap_or_else(|| {
            self.places.push(Place {
                origin: origin.clone(),
                idle: Vec::new(),
                shared: None,
                waiting: VecDeque::new(),
                making: 0,
            });
            self.places.len() - 1
        });
        &mut self.places[at]
    }

    /// A connection to use now. One that is shared may then be used until `until` at least.
    pub(super) fn take(
        &mut self,
        origin: &Origin,
        now: Instant,
        until: Instant,
    ) -> Option<Found<C, S>> {
        let place = self.place(origin);
        if let Some((limit, shared)) = place.shared.as_mut().filter(|(limit, _)| now < *limit) {
            *limit = until;
            return Some(Found::Shared(shared.clone()));
        }
        // What is over stays for `expire`: one that is not may stand before it, as servers say how long each is kept.
        let at = place.idle.iter().rposition(|(limit, _)| now < *limit)?;
        Some(Found::Own(place.idle.remove(at).1))
    }

    /// Waits, and has one made, which ends as [`made`](Self::made) or [`failed`](Self::failed).
    pub(super) fn wait(&mut self, origin: &Origin, who: W) -> Ticket {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        let place = self.place(origin);
        place.waiting.push_back((ticket, who));
        place.making += 1;
        ticket
    }

    /// Waits no more, whatever for. Says whether the one that it has made is one too many, if it is not made yet.
    pub(super) fn leave(&mut self, origin: &Origin, ticket: Ticket) -> bool {
        let place = self.place(origin);
        place.waiting.retain(|(other, _)| *other != ticket);
        place.making > place.waiting.len() + SPARE
    }

    /// One was made, and is given or shared next.
    pub(super) fn made(&mut self, origin: &Origin) {
        self.place(origin).making -= 1;
    }

    /// One could not be made. Gives who is to hear of it: who had it made, or if that one was given another, one who
    /// would wait for nothing.
    pub(super) fn failed(&mut self, origin: &Origin, ticket: Ticket) -> Option<W> {
        let place = self.place(origin);
        place.making -= 1;
        let waiting = &mut place.waiting;
        let at = waiting.iter().position(|(other, _)| *other == ticket);
        let at = at.or((waiting.len() > place.making).then_some(0))?;
        waiting.remove(at).map(|(_, who)| who)
    }

    /// A connection that is free: for the first who waits and takes it (`hand` gives it back where nobody is there any
    /// more), or to be used until `until`. True if it stays here.
    pub(super) fn give(
        &mut self,
        origin: &Origin,
        mut connection: C,
        until: Instant,
        mut hand: impl FnMut(W, C) -> Result<(), C>,
    ) -> bool {
        let place = self.place(origin);
        while let Some((_, who)) = place.waiting.pop_front() {
            match hand(who, connection) {
                Ok(()) => return false,
                Err(back) => connection = back,
            }
        }
        place.idle.push((until, connection));
        true
    }

    /// A connection that many share, for all who wait and to be used until `until`. If there is one already, that is
    /// used instead, and this one dropped.
    pub(super) fn share(
        &mut self,
        origin: &Origin,
        connection: S,
        until: Instant,
        mut hand: impl FnMut(W, S),
    ) {
        let place = self.place(origin);
        let (_, shared) = place.shared.get_or_insert((until, connection));
        for (_, who) in place.waiting.drain(..) {
            hand(who, shared.clone());
        }
    }

    /// The connection that was shared is of no use.
    pub(super) fn unshare(&mut self, origin: &Origin) {
        self.place(origin).shared = None;
    }

    /// What must not be used any more, and when the next is due.
    pub(super) fn expire(&mut self, now: Instant) -> (Vec<Found<C, S>>, Option<Instant>) {
        let mut over = Vec::new();
        let mut next: Option<Instant> = None;
        for place in &mut self.places {
            let (ended, kept): (Vec<_>, _) = mem::take(&mut place.idle)
                .into_iter()
                .partition(|(limit, _)| *limit <= now);
            place.idle = kept;
            over.extend(
                ended
                    .into_iter()
                    .map(|(_, connection)| Found::Own(connection)),
            );
            let ended = place.shared.take_if(|(limit, _)| *limit <= now);
            over.extend(ended.map(|(_, connection)| Found::Shared(connection)));
            let idle = place.idle.iter().map(|(limit, _)| *limit);
            let limits = idle.chain(place.shared.iter().map(|(limit, _)| *limit));
            next = limits.chain(next).min();
        }
        (over, next)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    type Numbers = Pool<u32, u32, u32>;

    fn origin(uri: &'static str) -> Origin {
        Origin::of(&Uri::from_static(uri)).expect("absolute")
    }

    fn second(n: u64, zero: Instant) -> Instant {
        zero + Duration::from_secs(n)
    }

    fn nobody(_: u32, _: u32) -> Result<(), u32> {
        panic!("nobody waits")
    }

    #[test]
    fn the_one_used_last_is_used_first_and_only_within_its_time() {
        let (mut pool, a, zero) = (Numbers::new(), origin("http://a"), Instant::now());
        for (connection, until) in [(1, 9), (2, 5), (3, 3)] {
            assert!(pool.give(&a, connection, second(until, zero), nobody));
        }
        let mut take = |now| pool.take(&a, second(now, zero), zero);
        assert_eq!(take(2), Some(Found::Own(3)));
        assert_eq!(take(5), Some(Found::Own(1)), "2 is over");
        assert_eq!(take(5), None);
        let (over, next) = pool.expire(second(5, zero));
        assert_eq!((over, next), (vec![Found::Own(2)], None));
    }

    #[test]
    fn a_connection_serves_its_origin_alone() {
        let (mut pool, zero) = (Numbers::new(), Instant::now());
        let until = second(1, zero);
        assert!(pool.give(&origin("http://a"), 1, until, nobody));
        for other in ["https://a", "http://b", "http://a:81"] {
            assert_eq!(pool.take(&origin(other), zero, until), None);
        }
        let found = pool.take(&origin("http://A/x"), zero, until);
        assert_eq!(found, Some(Found::Own(1)));
    }

    #[test]
    fn who_waits_gets_what_comes_first_in_order() {
        let (mut pool, a, zero) = (Numbers::new(), origin("http://a"), Instant::now());
        for who in [10, 11, 12] {
            pool.wait(&a, who);
        }
        let mut handed = Vec::new();
        for connection in [1, 2] {
            pool.made(&a);
            let stays = pool.give(&a, connection, zero, |who, connection| match who {
                10 => Err(connection),
                _ => {
                    handed.push((who, connection));
                    Ok(())
                }
            });
            assert!(!stays);
        }
        assert_eq!(handed, [(11, 1), (12, 2)]);
        pool.made(&a);
        assert!(pool.give(&a, 3, zero, nobody));
    }

    #[test]
    fn nobody_waits_for_what_is_not_made() {
        let (mut pool, a, zero) = (Numbers::new(), origin("http://a"), Instant::now());
        let [one, two, three] = [10, 11, 12].map(|who| pool.wait(&a, who));
        assert_eq!(pool.failed(&a, two), Some(11), "who had it made");
        // One that was given back: there are enough in the making for who still waits.
        assert!(!pool.give(&a, 1, zero, |who, _| {
            assert_eq!(who, 10);
            Ok(())
        }));
        assert_eq!(pool.failed(&a, one), None);
        let four = pool.wait(&a, 13);
        // What was made for the last goes to the first, who still has one in the making.
        pool.made(&a);
        assert!(!pool.give(&a, 2, zero, |who, _| {
            assert_eq!(who, 12);
            Ok(())
        }));
        assert_ne!(three, four);
        assert_eq!(pool.failed(&a, three), Some(13));
    }

    #[test]
    fn of_those_that_nobody_waits_for_any_more_a_few_are_made_on() {
        let (mut pool, a) = (Numbers::new(), origin("http://a"));
        let tickets: Vec<_> = (0..10).map(|who| pool.wait(&a, who)).collect();
        let mut given_up = 0;
        for ticket in tickets {
            if pool.leave(&a, ticket) {
                assert_eq!(pool.failed(&a, ticket), None);
                given_up += 1;
            }
        }
        assert_eq!(given_up, 10 - SPARE);
    }

    #[test]
    fn one_that_is_shared_serves_all_and_lives_as_long_as_it_is_used() {
        let (mut pool, a, zero) = (Numbers::new(), origin("https://a"), Instant::now());
        for who in [10, 11] {
            pool.wait(&a, who);
        }
        let mut handed = Vec::new();
        pool.share(&a, 1, second(4, zero), |who, shared| {
            handed.push((who, shared));
        });
        assert_eq!(handed, [(10, 1), (11, 1)]);
        pool.share(&a, 2, second(9, zero), |_, _| panic!("nobody waits"));
        let found = pool.take(&a, second(3, zero), second(7, zero));
        assert_eq!(found, Some(Found::Shared(1)), "the first is kept");
        assert_eq!(
            pool.expire(second(6, zero)),
            (vec![], Some(second(7, zero)))
        );
        let (over, next) = pool.expire(second(7, zero));
        assert_eq!((over, next), (vec![Found::Shared(1)], None));
        assert_eq!(pool.take(&a, second(6, zero), second(7, zero)), None);
        pool.share(&a, 3, second(9, zero), |_, _| {});
        pool.unshare(&a);
        assert_eq!(pool.take(&a, zero, zero), None);
    }
}
