//! `include/mcpconn.h` is what the sources say.
#![cfg(feature = "capi")]

use std::{fs, path::Path};

/// The files of the C face, in the order in which a reader of the header wants them.
const SOURCES: [&str; 20] = [
    "status",
    "str",
    "text",
    "error",
    "options",
    "client",
    "scope",
    "call",
    "event",
    "answer",
    "credentials",
    "server",
    "session",
    "explicit_close",
    "snapshot",
    "link",
    "budget",
    "pool_words",
    "pool",
    "version",
];

#[test]
fn the_committed_header_is_what_the_sources_generate() {
    let krate = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(krate.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(krate.join(format!("src/abi/{source}.rs")));
    }
    let mut generated = Vec::new();
    builder.generate().unwrap().write(&mut generated);
    let generated = String::from_utf8(generated).unwrap();

    let committed = krate.join("../include/mcpconn.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        fs::write(&committed, &generated).unwrap();
    }
    let committed = fs::read_to_string(&committed).unwrap_or_default();
    assert!(
        committed == generated,
        "include/mcpconn.h is not what src/abi/ says: run `UPDATE_HEADER=1 cargo test -p mcp-ffi --features capi \
         --test header` and commit it"
    );
}
