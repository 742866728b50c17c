//! Hosts in Go: built with the Go that was fetched, against the header and the shared library.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{library::library, scratch::Scratch};

/// Builds the package of a folder of the checkout into the scratch folder and gives the program's path.
#[track_caller]
pub fn build(go: &Path, package: &str, scratch: &Scratch) -> PathBuf {
    let library = library();
    let libraries = library.libraries.display();
    let program = scratch.path().join("go-host");
    // Below target/, as everything that a test writes; Go keeps counters in the home folder, too.
    let cache = crate::target().join("cache").join("go");

    let mut command = Command::new(go);
    command.args(["build", "-o"]).arg(&program).arg(".");
    command.current_dir(crate::checkout().join(package));
    command.env("CGO_CFLAGS", format!("-I{}", library.include.display()));
    command.env(
        "CGO_LDFLAGS",
        format!("-L{libraries} -Wl,-rpath,{libraries}"),
    );
    command
        .env("CGO_ENABLED", "1")
        .env("GOTOOLCHAIN", "local")
        .env("GOENV", "off");
    for (variable, folder) in [
        ("GOCACHE", "build"),
        ("GOPATH", "path"),
        ("HOME", "home"),
        ("XDG_CONFIG_HOME", "home"),
    ] {
        command.env(variable, cache.join(folder));
    }
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{package} does not build:\n{errors}"
    );
    program
}
