//! The foreign programs that `tests/tools/fetch` brought, and what to do where they are missing.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// A Python with the official SDK.
#[derive(Debug)]
pub struct Python {
    /// The interpreter.
    pub program: PathBuf,
}

/// The official server-everything.
#[derive(Debug)]
pub struct Everything {
    /// The Node.js that runs it.
    pub node: PathBuf,
    /// Its main script.
    pub script: PathBuf,
}

/// The official conformance suite.
#[derive(Debug)]
pub struct Conformance {
    /// The Node.js that runs it.
    pub node: PathBuf,
    /// Its main script.
    pub script: PathBuf,
}

/// The Python, unless it was not fetched.
pub fn python() -> Result<Python, Missing> {
    Ok(Python {
        program: find("python/bin/python")?,
    })
}

/// The server-everything, unless it was not fetched.
pub fn everything() -> Result<Everything, Missing> {
    let script = "npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    Ok(Everything {
        node: find("bin/node")?,
        script: find(script)?,
    })
}

/// The conformance suite, unless it was not fetched.
pub fn conformance() -> Result<Conformance, Missing> {
    Ok(Conformance {
        node: find("bin/node")?,
        script: find("npm/node_modules/@modelcontextprotocol/conformance/dist/index.js")?,
    })
}

/// The Go command, unless it was not fetched.
pub fn go() -> Result<PathBuf, Missing> {
    find("bin/go")
}

/// Whether there is a C++ compiler; a C compiler is asked of everybody, C++ is not.
pub fn cxx() -> Result<(), Missing> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    match Command::new(&compiler).arg("--version").output() {
        Ok(_) => Ok(()),
        Err(_) => Err(Missing(compiler.into())),
    }
}

/// Something that a test needs is not there.
#[derive(Debug)]
pub struct Missing(PathBuf);

fn find(path: &str) -> Result<PathBuf, Missing> {
    let path = crate::target().join("tools").join(path);
    if path.exists() {
        Ok(path)
    } else {
        Err(Missing(path))
    }
}

/// Takes what a test needs. Where it is missing the test fails, unless the run keeps a list of what it skipped
/// (`make test` does, shows it at the end and fails as a whole).
pub fn need<T>(test: &str, found: Result<T, Missing>) -> Option<T> {
    let Missing(path) = match found {
        Ok(found) => return Some(found),
        Err(missing) => missing,
    };
    let Some(list) = std::env::var_os("MCPCONN_SKIPPED") else {
        panic!(
            "{} is missing: run tests/tools/fetch, or the tests by `make test`, which lists what it skips",
            path.display()
        );
    };
    let line = format!("{test}: {} is missing\n", path.display());
    append(Path::new(&list), &line);
    None
}

fn append(list: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(list);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| {
            panic!(
                "cannot note in {} that this was skipped: {error}",
                list.display()
            )
        });
}
