use std::path::Path;

use mcpconn_tests::{
    c_host::{self, Language, Link},
    go_host,
    scratch::Scratch,
    tools,
};

use crate::{DEMO_SERVER, start};

#[track_caller]
fn says_hello(program: &Path) {
    let end = c_host::start(program, &[DEMO_SERVER])
        .finish()
        .expect_success();
    assert_eq!(end.stdout, "hello\n");
}

#[test]
fn the_example_in_c_calls_a_tool() {
    let scratch = Scratch::new();
    says_hello(&c_host::compile(
        "../../examples/c/hello.c",
        Language::C99,
        Link::Shared,
        &scratch,
    ));
}

#[test]
fn the_example_in_cpp_calls_a_tool() {
    let Some(()) = tools::need("the example in C++", tools::cxx()) else {
        return;
    };
    let scratch = Scratch::new();
    says_hello(&c_host::compile(
        "../../examples/cpp/hello.cpp",
        Language::Cxx17,
        Link::Shared,
        &scratch,
    ));
}

#[test]
fn the_example_in_go_calls_a_tool() {
    let Some(go) = tools::need("the example in Go", tools::go()) else {
        return;
    };
    let scratch = Scratch::new();
    says_hello(&go_host::build(&go, "examples/go", &scratch));
}

#[test]
fn the_quickstart_shows_all_that_it_has_to_show() {
    let scratch = Scratch::new();
    start("../../examples/c/quickstart.c", &[DEMO_SERVER], &scratch)
        .finish()
        .expect_success();
}
