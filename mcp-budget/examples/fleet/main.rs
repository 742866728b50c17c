//! A fleet of 10,000 servers over a year, under a budget with its gate and under the plain policies that others use.
//!
//! Every night each server is restarted; once all are gone for an hour; every Monday the client's machine wakes and what
//! was open is dead; one server in a hundred flaps for 63 hours, until somebody mends it, and one dies half a minute
//! after each answer for as long. Somebody calls a server that is not connected every minute or so.
//!
//! Run it with `cargo run --release --example fleet`: it prints a table and writes the plot and the table of
//! `mcp-budget/docs`.

mod ours;
mod plain;
mod plot;
mod score;
mod world;

use std::fmt::Write;

use plain::Rule;
use plot::thousands;
use score::Score;

fn main() -> std::io::Result<()> {
    let scores = std::thread::scope(|scope| {
        let ours = scope.spawn(ours::run);
        let rules = [Rule::EachSecond, Rule::ResetOnHandshake, Rule::Lifetime];
        let plain = rules.map(|rule| scope.spawn(move || plain::run(rule)));
        let [a, b, c] = plain.map(|run| run.join().expect("a simulation went wrong"));
        [ours.join().expect("a simulation went wrong"), a, b, c]
    });
    let table = table(&scores);
    print!("{table}");
    for score in &scores {
        println!(
            "{}: {:.1} s of real time",
            score.name,
            score.real_time.as_secs_f64()
        );
    }
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");
    std::fs::write(format!("{docs}/fleet.svg"), plot::svg(&scores))?;
    std::fs::write(format!("{docs}/fleet.md"), table)
}

fn table(scores: &[Score]) -> String {
    let mut text = String::from(
        "| policy | attempts | per server, median | at most | in the worst second | recovery, median | p99 | \
         not connected though it could | given up for good |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for score in scores {
        let per_server = &score.per_server;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {:.1} s | {:.1} s | {:.3} % | {} |",
            score.name,
            thousands(score.attempts()),
            thousands(per_server[per_server.len() / 2]),
            thousands(per_server.last().copied().unwrap_or(0)),
            thousands(score.worst_second),
            score.recovery(50),
            score.recovery(99),
            score.missed_percent(),
            thousands(score.given_up() as u64),
        );
    }
    text
}
