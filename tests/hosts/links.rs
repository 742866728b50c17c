use mcpconn_tests::{
    c_host::{self, Language, Link},
    scratch::Scratch,
    tools,
};

use crate::{DEMO_SERVER, start};

#[test]
fn a_host_in_c_moves_the_bytes_of_a_server_that_it_started_itself() {
    let scratch = Scratch::new();
    start("link.c", &[DEMO_SERVER], &scratch)
        .finish()
        .expect_success();
}

#[test]
fn a_host_in_cpp_moves_the_bytes_of_a_server_that_it_started_itself() {
    let Some(()) = tools::need("a host in C++", tools::cxx()) else {
        return;
    };
    let scratch = Scratch::new();
    let program = c_host::compile("link.c", Language::Cxx17, Link::Shared, &scratch);
    c_host::start(&program, &[DEMO_SERVER])
        .finish()
        .expect_success();
}

#[test]
fn a_host_moves_the_bytes_of_its_servers_from_inside_its_callback_and_ends_in_the_middle_of_it() {
    let scratch = Scratch::new();
    start("link_in_callbacks.c", &[], &scratch)
        .finish()
        .expect_success();
}
