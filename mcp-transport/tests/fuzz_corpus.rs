//! The checks of the fuzz targets, over their corpus and over mutations of it from a fixed seed.

#[path = "../fuzz/checks/envelope.rs"]
#[allow(unreachable_pub)]
mod envelope;
#[path = "../fuzz/checks/http_answer.rs"]
#[allow(unreachable_pub)]
mod http_answer;
#[path = "../fuzz/checks/line.rs"]
#[allow(unreachable_pub)]
mod line;
#[path = "../fuzz/checks/sse.rs"]
#[allow(unreachable_pub)]
mod sse;

use std::path::Path;

/// How often each seed is changed; less where a check opens connections.
const MUTATIONS: usize = 2000;
const FEW_MUTATIONS: usize = 50;

/// xorshift64*: the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound.max(1)
    }
}

/// What breaks parsers most often.
const PIECES: [&[u8]; 14] = [
    b"\n",
    b"\r",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\x97",
    b"null",
    b"\"id\":",
    b",",
    "\u{2028}".as_bytes(),
];

fn mutate(bytes: &mut Vec<u8>, random: &mut Random, other: &[u8]) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(5) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 => {
                let piece = PIECES[random.below(PIECES.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            2 => {
                let end = at + random.below(bytes.len() - at + 1);
                bytes.drain(at..end);
            }
            3 => {
                let end = at + random.below(bytes.len() - at + 1);
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => {
                let from = random.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
}

fn run(target: &str, mutations: usize, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut seeds: Vec<_> = std::fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    // The order of a directory is any.
    seeds.sort();
    let seeds: Vec<_> = seeds
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    assert!(seeds.len() >= 8, "the corpus is missing");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for seed in &seeds {
        check(seed);
        let mut changed = seed.clone();
        for _ in 0..mutations {
            let other = &seeds[random.below(seeds.len())];
            mutate(&mut changed, &mut random, other);
            check(&changed);
            // Far from every seed little is found, and much is slow.
            if random.below(8) == 0 || changed.len() > 4096 {
                changed.clone_from(seed);
            }
        }
    }
}

#[test]
fn lines_are_the_same_however_the_stream_is_cut() {
    run("line", MUTATIONS, line::check);
}

#[test]
fn envelopes_point_at_what_is_there_and_read_back_what_we_write() {
    run("envelope", MUTATIONS, envelope::check);
}

#[test]
fn events_are_those_of_the_reference_however_the_stream_is_cut() {
    run("sse", MUTATIONS, sse::check);
}

#[test]
fn whatever_a_server_answers_the_request_is_settled_once() {
    run("http_answer", FEW_MUTATIONS, http_answer::check);
}
