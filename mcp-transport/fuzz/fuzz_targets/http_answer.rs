#![no_main]

#[path = "../checks/http_answer.rs"]
mod check;
#[path = "../checks/sse.rs"]
#[allow(dead_code)]
mod sse;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
