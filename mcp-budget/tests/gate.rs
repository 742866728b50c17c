//! The gate, with a clock that the test moves.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashSet},
    time::Duration,
};

use mcp_budget::{Gate, GateLimits, Ticket, Timestamp, Urgency};

const SECOND: Duration = Duration::from_secs(1);

fn at(time: Duration) -> Timestamp {
    Timestamp::ZERO.plus(time)
}

/// Lets all in who may, and tells who it was.
fn admitted(gate: &mut Gate, now: Timestamp) -> Vec<Ticket> {
    std::iter::from_fn(|| gate.poll(now)).collect()
}

/// Lets in one after the other, each leaving at once, with time passing as it must.
fn in_turn(gate: &mut Gate, now: &mut Timestamp, most: usize) -> Vec<Ticket> {
    let mut order = Vec::new();
    while order.len() < most {
        match gate.poll(*now) {
            Some(ticket) => {
                gate.leave(*now, ticket);
                order.push(ticket);
            }
            None => match gate.timeout() {
                Some(at) => *now = at.max(*now),
                None => break,
            },
        }
    }
    order
}

/// When each of a fleet's servers connected. Each stays inside as long as it takes.
fn fleet(limits: GateLimits, takes: &[Duration]) -> Vec<Timestamp> {
    let mut gate = Gate::new(limits.clone());
    let mut now = Timestamp::ZERO;
    let tickets: BTreeMap<_, _> = (0..takes.len())
        .map(|n| (gate.ask(now, n as u64, Urgency::Reconnect), n))
        .collect();
    let mut connected = vec![Timestamp::NEVER; takes.len()];
    let mut ends = BinaryHeap::new();
    let mut starts = Vec::new();
    loop {
        while let Some(ticket) = gate.poll(now) {
            starts.push(now);
            let n = tickets[&ticket];
            connected[n] = now.plus(takes[n]);
            ends.push(Reverse((connected[n], ticket)));
        }
        let end = ends.peek().map(|Reverse((end, _))| *end);
        let Some(next) = end.into_iter().chain(gate.timeout()).min() else {
            break;
        };
        now = next;
        while let Some(Reverse((end, ticket))) = ends.peek().copied() {
            if end > now {
                break;
            }
            ends.pop();
            gate.leave(now, ticket);
        }
        assert!(gate.in_flight() <= limits.in_flight as usize);
    }
    assert_eq!(starts.len(), takes.len());
    // Within any second no more than a burst and the rate.
    let most = (limits.burst + limits.per_second) as usize;
    for window in starts.windows(most + 1) {
        assert!(window[most].since(window[0]) >= SECOND);
    }
    connected
}

#[test]
fn a_burst_goes_in_at_once_and_then_the_rate_holds() {
    let limits = GateLimits {
        in_flight: 100,
        ..GateLimits::default()
    };
    let mut gate = Gate::new(limits);
    for server in 0..40 {
        gate.ask(Timestamp::ZERO, server, Urgency::Awaited);
    }
    assert_eq!(admitted(&mut gate, Timestamp::ZERO).len(), 16);
    assert_eq!(gate.timeout(), Some(at(SECOND / 20)));
    assert_eq!(admitted(&mut gate, at(SECOND / 20)).len(), 1);
    assert_eq!(admitted(&mut gate, at(SECOND * 2)).len(), 16);
}

#[test]
fn no_more_are_in_flight_than_allowed_and_one_counts_for_five_seconds_at_most() {
    let mut gate = Gate::new(GateLimits::default());
    for server in 0..40 {
        gate.ask(Timestamp::ZERO, server, Urgency::Awaited);
    }
    let first = admitted(&mut gate, Timestamp::ZERO);
    assert_eq!(first.len(), 16);
    assert_eq!(admitted(&mut gate, at(SECOND)), []);
    gate.leave(at(SECOND), first[3]);
    gate.leave(at(SECOND), first[3]);
    assert_eq!(admitted(&mut gate, at(SECOND)).len(), 1);
    assert_eq!(gate.timeout(), Some(at(SECOND * 5)));
    assert_eq!(admitted(&mut gate, at(SECOND * 5)).len(), 15);
}

#[test]
fn a_thousand_servers_back_at_the_same_instant_connect_within_the_rate() {
    let connected = fleet(GateLimits::default(), &[SECOND / 10; 1000]);
    let last = connected.iter().max().unwrap();
    assert!(*last <= at(SECOND * 50), "{last:?}");
}

#[test]
fn with_a_hundred_hung_ones_among_them_the_other_nine_hundred_connect_within_the_rate() {
    let hung = SECOND * 3600;
    let spread: Vec<_> = (0..1000)
        .map(|n| if n % 10 == 3 { hung } else { SECOND / 10 })
        .collect();
    let live = |takes: &[Duration], connected: Vec<Timestamp>| {
        let both = takes.iter().zip(connected);
        let live: Vec<_> = both.filter(|(takes, _)| **takes != hung).collect();
        assert_eq!(live.len(), 900);
        live.iter().map(|(_, at)| *at).max().unwrap()
    };
    let last = live(&spread, fleet(GateLimits::default(), &spread));
    assert!(last <= at(SECOND * 51), "{last:?}");
    // At the worst all hung ones come first: they hold everybody up for as long as they count.
    let mut first = spread.clone();
    first.sort_by_key(|takes| Reverse(*takes));
    let last = live(&first, fleet(GateLimits::default(), &first));
    assert!(last <= at(SECOND * (50 + 5 * 100 / 16)), "{last:?}");
}

#[test]
fn connects_that_a_call_waits_for_go_first_then_reconnects_then_probes() {
    let mut gate = Gate::new(GateLimits::default());
    let mut now = Timestamp::ZERO;
    use Urgency::{Awaited, Probe, Reconnect};
    let asked = [Probe, Reconnect, Awaited, Probe, Awaited, Reconnect];
    let tickets: Vec<_> = (0..)
        .zip(asked)
        .map(|(n, urgency)| gate.ask(now, n, urgency))
        .collect();
    let order = in_turn(&mut gate, &mut now, 10);
    assert_eq!(order, [2, 4, 1, 5, 0, 3].map(|n| tickets[n]));
}

#[test]
fn servers_take_turns_however_many_connects_one_of_them_wants() {
    let mut gate = Gate::new(GateLimits::default());
    let mut now = Timestamp::ZERO;
    let greedy: Vec<_> = (0..50)
        .map(|_| gate.ask(now, 1, Urgency::Awaited))
        .collect();
    let modest = [2, 3].map(|server| gate.ask(now, server, Urgency::Awaited));
    let order = in_turn(&mut gate, &mut now, 5);
    assert_eq!(
        order,
        [greedy[0], modest[0], modest[1], greedy[1], greedy[2]]
    );
}

#[test]
fn nobody_starves_behind_those_that_are_more_urgent() {
    let mut gate = Gate::new(GateLimits::default());
    let mut now = Timestamp::ZERO;
    let probe = gate.ask(now, 0, Urgency::Probe);
    let reconnect = gate.ask(now, 1, Urgency::Reconnect);
    let mut order = Vec::new();
    for server in 2..200 {
        gate.ask(now, server, Urgency::Awaited);
        gate.ask(now, server, Urgency::Reconnect);
        order.extend(in_turn(&mut gate, &mut now, 1));
    }
    let place = |ticket| order.iter().position(|other| *other == ticket);
    assert!(place(reconnect).unwrap() <= 17);
    assert!(place(probe).unwrap() <= 17);
}

#[test]
fn who_withdraws_costs_nobody_a_turn_and_nothing_of_the_rate() {
    let mut gate = Gate::new(GateLimits::default());
    let now = Timestamp::ZERO;
    for server in 0..1000 {
        for _ in 0..3 {
            let ticket = gate.ask(now, server, Urgency::Awaited);
            gate.leave(now, ticket);
        }
    }
    assert_eq!((gate.waiting(), gate.timeout()), (0, None));
    let ticket = gate.ask(now, 5000, Urgency::Awaited);
    assert_eq!(gate.poll(now), Some(ticket));
    assert_eq!(gate.poll(now), None);
}

#[test]
fn a_time_before_the_last_is_taken_as_the_last() {
    let mut gate = Gate::new(GateLimits::default());
    for server in 0..40 {
        gate.ask(at(SECOND), server, Urgency::Awaited);
    }
    assert_eq!(admitted(&mut gate, at(SECOND)).len(), 16);
    assert_eq!(admitted(&mut gate, Timestamp::ZERO).len(), 0);
    assert_eq!(gate.timeout(), Some(at(SECOND * 6)));
}

#[test]
fn limits_of_zero_let_in_one_at_a_time_and_never_nobody() {
    let limits = GateLimits {
        in_flight: 0,
        per_second: 0,
        burst: 0,
        counted_for: Duration::MAX,
        passed_over: 0,
    };
    let mut gate = Gate::new(limits);
    let mut now = Timestamp::ZERO;
    let asked: HashSet<_> = (0..10).map(|n| gate.ask(now, n, Urgency::Probe)).collect();
    let order = in_turn(&mut gate, &mut now, 100);
    assert_eq!(order.into_iter().collect::<HashSet<_>>(), asked);
    assert_eq!(now, at(SECOND * 9));
}
