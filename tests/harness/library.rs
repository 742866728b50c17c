//! The C library as a host finds it: a header, a shared and a static library.

use std::{path::PathBuf, process::Command, sync::OnceLock};

/// Where the header and the libraries lie.
#[derive(Debug)]
pub struct Library {
    /// The folder of `mcpconn.h`.
    pub include: PathBuf,
    /// The folder of `libmcpconn.so` and `libmcpconn.a`.
    pub libraries: PathBuf,
}

/// The library: the one that `MCPCONN_LIB_DIR` names, else built now, once per run.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library {
        include: crate::checkout().join("include"),
        libraries: std::env::var_os("MCPCONN_LIB_DIR").map_or_else(build, PathBuf::from),
    })
}

fn build() -> PathBuf {
    let built = Command::new(crate::checkout().join("tests/tools/lib"))
        .arg("dev")
        .output()
        .expect("tests/tools/lib runs");
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(
        built.status.success(),
        "the library does not build:\n{errors}"
    );
    PathBuf::from(String::from_utf8_lossy(&built.stdout).trim_end())
}
