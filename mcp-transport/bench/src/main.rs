//! This crate beside a raw ping-pong of the same bytes and beside rmcp, in one run: calls over stdio and over HTTP, and
//! what a session costs that is idle.
//!
//! What is compared is the CPU time of the client's process, and the time that passes. Only the ratios mean anything:
//! each is the median of rounds that take turns, on the machine as it is just then. `README.md` says what each line is
//! meant to be, and why it is more where it is.
//!
//! Without arguments all is measured, with some only the lines that contain one of them.

mod http;
mod http_raw;
mod http_server;
mod idle;
mod peak;
mod stdio;
mod stdio_raw;
mod stdio_server;
mod table;

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve-stdio"] => stdio_server::serve(),
        ["serve-http"] => http_server::serve().expect("it serves"),
        ["peak", way, who] => peak::measure(way, who),
        ["idle", who, url, sessions] => idle::measure(who, url, sessions),
        _ => {
            stay_on_one_processor();
            stdio::measure();
            http::measure();
            peak::compare();
            idle::compare();
        }
    }
}

/// Whether this line is to be measured.
fn is_wanted(line: &str) -> bool {
    let mut wanted = std::env::args().skip(1).peekable();
    wanted.peek().is_none() || wanted.any(|part| line.contains(&part))
}

/// With every server that is started from here: where the kernel puts each of the two decides more than what is done,
/// and is not what is to be measured.
fn stay_on_one_processor() {
    // SAFETY: a set of processors is numbers only; the kernel reads it.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &raw const one);
    }
}

fn this_program() -> String {
    let program = std::env::current_exe().expect("a path");
    program.to_str().expect("UTF-8").to_owned()
}

/// The runtime of a client: one thread, on which what waits does the input and output too.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}
