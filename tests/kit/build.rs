//! Builds the guests of the tests.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// The guests, and the files that cargo makes of them.
const GUESTS: [(&str, &str); 5] = [
    ("agent", "guest_agent.wasm"),
    ("bench-agent", "bench_agent.wasm"),
    ("bench-tool", "bench_tool.wasm"),
    ("neighbour", "guest_neighbour.wasm"),
    ("tool", "guest_tool.wasm"),
];

#[allow(clippy::disallowed_methods, reason = "this is how cargo talks to a build script")]
fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guests = root.join("tests/guests");
    let stale = [
        guests.clone(),
        root.join("guest-sdk/src"),
        root.join("guest-sdk/Cargo.toml"),
        root.join("wit"),
    ];
    say(&checkrein_guest_build::rerun_if_changed(&stale.each_ref().map(|path| path.as_path())));

    let built = checkrein_guest_build::build(&guests)?;
    let out = env::var("OUT_DIR")?;
    for (guest, file) in GUESTS {
        let component = Path::new(&out).join(guest).with_extension("wasm");
        fs::copy(built.join(file), component)?;
    }
    // Where all tests keep compiled code, so that a component is compiled once and not once for each test.
    let target = built.ancestors().nth(3).ok_or("the guests were built outside a target folder")?;
    say(&format!(
        "cargo::rustc-env=CHECKREIN_KIT_CACHE={}\n",
        target.join("tmp/code-cache").display()
    ));
    Ok(())
}

#[allow(clippy::print_stdout, reason = "this is how a build script talks to cargo")]
fn say(directives: &str) {
    print!("{directives}");
}
