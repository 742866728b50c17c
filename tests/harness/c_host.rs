//! Hosts in C: compiled against the header and the library as any user would.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{child::Child, library::library, scratch::Scratch};

/// The language that a host is compiled as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// C99, by `$CC` or cc.
    C99,
    /// C++17, by `$CXX` or c++.
    Cxx17,
}

/// Which of the two libraries a host links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// `libmcpconn.so`.
    Shared,
    /// `libmcpconn.a`.
    Static,
}

/// What a static library of Rust needs besides, as `rustc --print native-static-libs` tells.
const SYSTEM_LIBRARIES: [&str; 5] = ["-lpthread", "-ldl", "-lm", "-lgcc_s", "-lc"];

/// Compiles a host of `tests/c/` into the scratch folder and gives its path. A warning fails the test.
#[track_caller]
pub fn compile(source: &str, language: Language, link: Link, scratch: &Scratch) -> PathBuf {
    let library = library();
    let source = crate::checkout().join("tests/c").join(source);
    let stem = source.file_stem().expect("a source has a name");
    let program = scratch.path().join(stem);

    let mut command = compiler(language);
    command.args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-g", "-pthread"]);
    // For a checker, such as -fsanitize=address.
    let more = std::env::var("MCPCONN_CFLAGS").unwrap_or_default();
    command.args(more.split_whitespace());
    command.arg("-I").arg(&library.include);
    command.arg(&source).arg("-o").arg(&program);
    match link {
        Link::Shared => {
            let run_path = format!("-Wl,-rpath,{}", library.libraries.display());
            command
                .arg("-L")
                .arg(&library.libraries)
                .arg("-lmcpconn")
                .arg(run_path);
        }
        Link::Static => {
            command
                .arg(library.libraries.join("libmcpconn.a"))
                .args(SYSTEM_LIBRARIES);
        }
    }
    expect_success(&mut command, &source);
    program
}

/// Starts a host; under the command that `MCPCONN_UNDER` names (valgrind, say), if it does.
pub fn start(program: &Path, arguments: &[&str]) -> Child {
    Child::start(&mut command(program, arguments))
}

/// The command that [`start`] starts.
pub fn command(program: &Path, arguments: &[&str]) -> Command {
    let under = std::env::var("MCPCONN_UNDER").unwrap_or_default();
    let mut words = under.split_whitespace();
    let mut command = match words.next() {
        Some(under) => Command::new(under),
        None => Command::new(program),
    };
    if !under.is_empty() {
        command.args(words).arg(program);
    }
    command.args(arguments);
    command
}

fn compiler(language: Language) -> Command {
    let (variable, usual, arguments): (_, _, &[&str]) = match language {
        Language::C99 => ("CC", "cc", &["-std=c99"]),
        // `-x c++`, because the same source may be compiled as both.
        Language::Cxx17 => ("CXX", "c++", &["-std=c++17", "-x", "c++"]),
    };
    let program = std::env::var_os(variable).unwrap_or_else(|| usual.into());
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

#[track_caller]
fn expect_success(command: &mut Command, source: &Path) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{} does not compile:\n{errors}",
        source.display()
    );
}
