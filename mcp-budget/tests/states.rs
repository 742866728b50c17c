//! The transition relation: every state, every event, as a table that the budget is held to and that the documentation
//! is made of.

mod diagram;
mod support;

use std::{collections::BTreeMap, time::Duration};

use mcp_budget::{Cause, Reason, Refusal, State, Timestamp, Transition};
use support::{Bench, exact};

/// Something that happens to a binding.
#[derive(Clone, Copy)]
struct Event {
    /// In the words of the table.
    name: &'static str,
    happens: fn(&mut Bench, generation: u64),
}

const fn event(name: &'static str, happens: fn(&mut Bench, u64)) -> Event {
    Event { name, happens }
}

const EVENTS: [Event; 20] = [
    event("it is wanted", |bench, _| bench.budget.hold(bench.now)),
    event("a call waits", |bench, _| {
        bench.budget.attend(bench.now, true)
    }),
    event("it is time", |bench, _| {
        if let Some(at) = bench.budget.timeout() {
            bench.now = bench.now.max(at);
        }
        bench.poll();
    }),
    event("opened", |bench, home| {
        bench.budget.opened(bench.now, home);
    }),
    event("proof", |bench, home| {
        bench.budget.proven(bench.now, home);
    }),
    event("lost: transient", |bench, home| {
        lose(bench, home, Cause::Transient)
    }),
    event("lost: permanent", |bench, home| {
        lose(bench, home, Cause::Permanent)
    }),
    event("lost: credentials", |bench, home| {
        lose(bench, home, Cause::Auth)
    }),
    event("lost: local", |bench, home| lose(bench, home, Cause::Local)),
    event("lost: routine", |bench, home| {
        lose(bench, home, Cause::Routine)
    }),
    event("lost: fatal", |bench, home| lose(bench, home, Cause::Fatal)),
    event("closed by its owner", |bench, home| {
        bench.budget.closed(bench.now, home);
    }),
    event("its owner lets it go", |bench, _| {
        bench.budget.let_go(bench.now);
    }),
    event("a call is refused", |bench, _| {
        bench.budget.knock(bench.now)
    }),
    event("wake", |bench, _| bench.budget.wake(bench.now)),
    event("a scoped session gives proof", |bench, _| {
        if let Some(scoped) = scoped(bench) {
            bench.budget.proven(bench.now, scoped);
        }
    }),
    event("a scoped session is lost", |bench, _| {
        if let Some(scoped) = scoped(bench) {
            lose(bench, scoped, Cause::Transient);
        }
    }),
    event("old generation", |bench, _| {
        for cause in [Cause::Transient, Cause::Fatal] {
            lose(bench, 4711, cause);
        }
        bench.budget.proven(bench.now, 4711);
    }),
    event("shutdown", |bench, _| {
        bench.budget.stop(bench.now, Reason::Shutdown)
    }),
    event("an earlier time", |bench, _| {
        bench.budget.poll(Timestamp::ZERO);
    }),
];

fn lose(bench: &mut Bench, generation: u64, cause: Cause) {
    bench.budget.lost(bench.now, generation, cause.into());
}

/// A scoped session, if leave is given at once or after the delay that it is given.
fn scoped(bench: &mut Bench) -> Option<u64> {
    if let Err(Refusal::Wait(Some(at))) = bench.budget.may_leave(bench.now) {
        bench.now = at;
    }
    bench.scoped().ok()
}

/// A state, and how a binding came there.
struct Situation {
    state: State,
    /// What else matters, in the words of the table.
    after: &'static str,
    arrive: fn() -> (Bench, u64),
    /// What changes by which event. All others change nothing.
    changes: &'static [(&'static str, &'static str)],
}

fn at(mut bench: Bench) -> (Bench, u64) {
    let generation = bench.standing().generation;
    // Late enough for the floor to be over, and too early for anything else.
    bench.pass(Duration::from_millis(1));
    (bench, generation)
}

const SITUATIONS: [Situation; 15] = [
    Situation {
        state: State::Idle,
        after: "",
        arrive: || at(Bench::new(exact())),
        changes: &[
            ("it is wanted", "waiting"),
            ("a call waits", "waiting"),
            ("a scoped session is lost", "waiting, a charge"),
            ("shutdown", "stopped"),
        ],
    },
    Situation {
        state: State::Connecting,
        after: "for the first time",
        arrive: || {
            let mut b = Bench::held(exact());
            b.attempt();
            at(b)
        },
        changes: &[
            ("opened", "unproven"),
            ("lost: transient", "waiting, a charge"),
            ("lost: permanent", "parked"),
            ("lost: credentials", "parked"),
            ("lost: local", "waiting"),
            ("lost: routine", "waiting, a charge"),
            ("lost: fatal", "stopped"),
            ("closed by its owner", "idle"),
            ("its owner lets it go", "idle"),
            ("a scoped session is lost", "a charge"),
            ("shutdown", "stopped"),
        ],
    },
    Situation {
        state: State::Connecting,
        after: "as the last initial retry",
        arrive: || {
            let mut b = Bench::held(exact());
            for _ in 0..3 {
                b.fail(Cause::Transient);
            }
            b.attempt();
            at(b)
        },
        changes: &[
            ("opened", "unproven"),
            ("lost: transient", "parked, a charge"),
            ("lost: permanent", "parked"),
            ("lost: credentials", "parked"),
            ("lost: local", "waiting"),
            ("lost: routine", "parked, a charge"),
            ("lost: fatal", "stopped"),
            ("closed by its owner", "waiting"),
            ("its owner lets it go", "waiting"),
            ("shutdown", "stopped"),
        ],
    },
    Situation {
        state: State::Connecting,
        after: "once proven",
        arrive: || {
            let (mut b, home) = Bench::proven(exact());
            b.lose(home, Cause::Transient);
            b.attempt();
            at(b)
        },
        changes: &[
            ("opened", "unproven"),
            ("lost: transient", "waiting, a charge"),
            ("lost: permanent", "waiting, a charge"),
            ("lost: credentials", "parked"),
            ("lost: local", "waiting"),
            ("lost: routine", "waiting, a charge"),
            ("lost: fatal", "stopped"),
            ("closed by its owner", "idle"),
            ("its owner lets it go", "idle"),
            ("a scoped session is lost", "a charge"),
            ("shutdown", "stopped"),
        ],
    },
    Situation {
        state: State::Connecting,
        after: "as a parked binding's probe",
        arrive: || {
            let mut b = Bench::held(exact());
            b.park();
            b.attempt();
            at(b)
        },
        changes: &[
            ("opened", "unproven"),
            ("lost: transient", "parked"),
            ("lost: permanent", "parked"),
            ("lost: credentials", "parked"),
            ("lost: local", "parked"),
            ("lost: routine", "parked"),
            ("lost: fatal", "stopped"),
            ("closed by its owner", "parked"),
            ("its owner lets it go", "parked"),
            ("shutdown", "stopped"),
        ],
    },
    Situation {
        state: State::Unproven,
        after: "with budget left",
        arrive: || {
            let mut b = Bench::held(exact());
            b.flap();
            b.open();
            at(b)
        },
        changes: &[
            ("proof", "proven, charges cleared"),
            ("lost: transient", "waiting, a charge"),
            ("lost: permanent", "parked"),
            ("lost: credentials", "waiting"),
            ("lost: local", "waiting"),
            ("lost: routine", "waiting, a charge"),
            ("lost: fatal", "stopped"),
            ("closed by its owner", "waiting"),
            ("its owner lets it go", "waiting"),
            ("a scoped session gives proof", "charges cleared"),
            ("a scoped session is lost", "a charge"),
            ("shutdown", "stopped"),
        ],
    },
    Situation {
        state: State::Unproven,
        after: "with none left",
        arrive: || {
            let mut b = Bench::held(exact());
            for _ in 0..5 {
                b.flap();
            }
            b.open();
            at(b)
        },
        changes: &[
            ("proof", "proven, charges cleared"),
            ("lost: transient", "parked, a charge"),
            ("lost: permanent", "parked"),
            ("lost: credentials", "waiting"),
            ("lost: local", "waiting"),
            ("lost: routine", "parked, a charge"),
            ("lost: fatal", "stopped"),
            ("closed by its owner", "waiting"),
            ("its owner lets it go", "waiting"),
            ("shutdown", "stopped"),
        ],
    },
    Situation {
        state: State::Unproven,
        after: "once proven",
        arrive: || {
            let (mut b, home) = Bench::proven(exact());
            b.lose(home, Cause::Transient);
            b.open();
            at(b)
        },
        changes: &[
            ("proof", "proven"),
            ("lost: transient", "waiting, a charge"),
            ("lost: permanent", "waiting, a charge"),
            ("lost: credentials", "idle"),
            ("lost: local", "waiting"),
            ("lost: routine", "waiting, a charge"),
            ("lost: fatal", "stopped"),
            ("closed by its owner", "idle"),
            ("its owner lets it go", "idle"),
            ("a scoped session is lost", "a charge"),
            ("shutdown", "stopped"),
        ],
    },
    Situation {
        state: State::Unproven,
        after: "as a parked binding's probe",
        arrive: || {
            let mut b = Bench::held(exact());
            b.park();
            b.open();
            at(b)
        },
        changes: &[
            ("proof", "proven, charges cleared"),
            ("lost: transient", "parked"),
            ("lost: permanent", "parked"),
            ("lost: credentials", "parked"),
            ("lost: local", "parked"),
            ("lost: routine", "parked"),
            ("lost: fatal", "stopped"),
            ("closed by its owner", "parked"),
            ("its owner lets it go", "parked"),
            ("a scoped session gives proof", "charges cleared"),
            ("a scoped session is lost", "parked"),
            ("shutdown", "stopped"),
        ],
    },
    Situation {
        state: State::Proven,
        after: "",
        arrive: || at(Bench::proven(exact()).0),
        changes: &[
            ("lost: transient", "waiting"),
            ("lost: permanent", "waiting"),
            ("lost: credentials", "idle"),
            ("lost: local", "waiting"),
            ("lost: routine", "idle"),
            ("lost: fatal", "stopped"),
            ("closed by its owner", "idle"),
            ("its owner lets it go", "idle"),
            ("a scoped session is lost", "a charge"),
            ("shutdown", "stopped"),
        ],
    },
    Situation {
        state: State::Waiting,
        after: "after a failure",
        arrive: || {
            let mut b = Bench::held(exact());
            b.flap();
            b.flap();
            at(b)
        },
        changes: &[
            ("it is time", "connecting"),
            ("wake", "sooner"),
            ("a scoped session gives proof", "charges cleared, later"),
            ("a scoped session is lost", "a charge, later"),
            ("shutdown", "stopped"),
        ],
    },
    Situation {
        state: State::Waiting,
        after: "woken",
        arrive: || {
            let mut b = Bench::held(exact());
            b.park();
            b.budget.wake(b.now);
            at(b)
        },
        changes: &[("it is time", "connecting"), ("shutdown", "stopped")],
    },
    Situation {
        state: State::Parked,
        after: "budget spent",
        arrive: || {
            let mut b = Bench::held(exact());
            b.park();
            at(b)
        },
        changes: &[
            ("it is time", "connecting"),
            ("a call is refused", "sooner"),
            ("wake", "waiting"),
            ("a scoped session gives proof", "sooner"),
            ("a scoped session is lost", "sooner"),
            ("shutdown", "stopped"),
        ],
    },
    Situation {
        state: State::Parked,
        after: "credentials needed",
        arrive: || {
            let mut b = Bench::held(exact());
            b.fail(Cause::Auth);
            at(b)
        },
        changes: &[("wake", "waiting"), ("shutdown", "stopped")],
    },
    Situation {
        state: State::Stopped,
        after: "",
        arrive: || {
            let mut b = Bench::held(exact());
            b.budget.stop(b.now, Reason::Shutdown);
            at(b)
        },
        changes: &[],
    },
];

impl Situation {
    fn change(&self, event: &str) -> &'static str {
        let found = self.changes.iter().find(|(name, _)| *name == event);
        found.map_or("", |(_, change)| change)
    }
}

/// What an event changed, in the words of the table.
fn change(before: Transition, after: Transition) -> String {
    let mut words = Vec::new();
    if after.state != before.state {
        words.push(after.state.to_string());
    }
    if after.charges > before.charges {
        words.push("a charge".into());
    }
    if after.charges < before.charges {
        words.push("charges cleared".into());
    }
    if let (Some(old), Some(new)) = (before.next_try, after.next_try) {
        if after.state == before.state && new < old {
            words.push("sooner".into());
        }
        if after.state == before.state && new > old {
            words.push("later".into());
        }
    }
    words.join(", ")
}

#[test]
fn every_event_does_in_every_state_what_the_table_says() {
    for situation in &SITUATIONS {
        for event in EVENTS {
            let (mut bench, generation) = (situation.arrive)();
            let before = bench.standing();
            assert_eq!(before.state, situation.state, "{}", situation.after);
            (event.happens)(&mut bench, generation);
            assert_eq!(
                change(before, bench.standing()),
                situation.change(event.name),
                "{} {}: {}",
                situation.state,
                situation.after,
                event.name
            );
        }
        for (name, _) in situation.changes {
            assert!(EVENTS.iter().any(|event| event.name == *name), "{name}");
        }
    }
}

/// Every way there is from one state to another, with the events that lead there.
fn ways() -> BTreeMap<(usize, usize), Vec<&'static str>> {
    let mut ways: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for situation in &SITUATIONS {
        for (event, change) in situation.changes {
            let to = change.split(", ").next().unwrap_or_default();
            if let Some(to) = STATES.iter().position(|state| state.to_string() == to) {
                let from = place(situation.state);
                let events = ways.entry((from, to)).or_default();
                if !events.contains(event) {
                    events.push(event);
                }
            }
        }
    }
    ways
}

fn place(state: State) -> usize {
    STATES.iter().position(|other| *other == state).unwrap()
}

const STATES: [State; 7] = [
    State::Idle,
    State::Connecting,
    State::Unproven,
    State::Proven,
    State::Waiting,
    State::Parked,
    State::Stopped,
];

#[test]
fn from_every_state_two_events_lead_to_stopped_and_none_leads_back() {
    let ways = ways();
    let stopped = place(State::Stopped);
    for from in 0..stopped {
        assert!(ways[&(from, stopped)].contains(&"shutdown"));
    }
    assert!(ways.keys().all(|(from, _)| *from != stopped));
}

/// The documentation's tables.
fn document() -> String {
    let mut text = String::from(INTRODUCTION);
    for state in STATES {
        let of_it: Vec<_> = SITUATIONS.iter().filter(|s| s.state == state).collect();
        let happens = |event: &&Event| of_it.iter().any(|s| !s.change(event.name).is_empty());
        text += &format!("\n## {state}\n\n");
        if !EVENTS.iter().any(|event| happens(&event)) {
            text += "Nothing changes it.\n";
            continue;
        }
        let columns: Vec<_> = of_it
            .iter()
            .map(|s| if s.after.is_empty() { "then" } else { s.after })
            .collect();
        text += &format!("| event | {} |\n", columns.join(" | "));
        text += &format!("| --- |{}\n", " --- |".repeat(columns.len()));
        for event in EVENTS.iter().filter(happens) {
            let cells: Vec<_> = of_it
                .iter()
                .map(|s| match s.change(event.name) {
                    "" => "·",
                    change => change,
                })
                .collect();
            text += &format!("| {} | {} |\n", event.name, cells.join(" | "));
        }
    }
    text
}

const INTRODUCTION: &str = "\
The transition relation: what each event does in each state.

Made from the table in `tests/states.rs`, to which the budget is held. Of the home session's events *lost* is also an
attempt that failed, and *it is time* is the end of whatever the budget waits for. The tables say the state that
follows, a charge taken or charges cleared, and whether the next try comes sooner or later; · is no change. An event
that a state's table does not name changes nothing in that state, and what bears an old generation or comes with an
earlier time changes nothing anywhere.
";

/// Run with `UPDATE=1` in the environment to write the files anew.
#[test]
fn the_documentation_shows_this_very_table() {
    let files = [
        ("states.svg", diagram::svg(&ways())),
        ("transitions.md", document()),
    ];
    for (name, made) in files {
        let path = format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap();
        assert!(
            committed == made,
            "docs/{name} is not what the table makes; run this test with UPDATE=1"
        );
    }
}
