use mcpconn_tests::{
    c_host::{self, Language, Link},
    scratch::Scratch,
};

use crate::{DEMO_SERVER, start};

#[test]
fn the_examples_in_c_compile_without_a_warning_as_c_and_as_cpp() {
    let scratch = Scratch::new();
    for example in ["../../examples/c/hello.c", "../../examples/c/quickstart.c"] {
        c_host::compile(example, Language::C99, Link::Shared, &scratch);
        c_host::compile(example, Language::Cxx17, Link::Shared, &scratch);
    }
}

#[test]
fn the_quickstart_shows_all_that_it_has_to_show() {
    let scratch = Scratch::new();
    start("../../examples/c/quickstart.c", &[DEMO_SERVER], &scratch)
        .finish()
        .expect_success();
}
