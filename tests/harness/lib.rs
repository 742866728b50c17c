//! What the end-to-end tests share: the library as a C host sees it, programs that are watched while they run,
//! servers, a proxy that stands in the way, and the proof that nothing is left behind.

pub mod c_host;
pub mod child;
pub mod demo_log;
pub mod go_host;
pub mod library;
pub mod processes;
pub mod proxy;
pub mod scratch;
pub mod server;
pub mod told;
pub mod tools;

use std::path::{Path, PathBuf};

/// The root of the checkout.
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the checkout")
}

/// The folder that cargo builds into; everything that is not committed goes below it.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout().join("target"), PathBuf::from)
}
