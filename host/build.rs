//! Builds the first-party plugins, so that the command works alone.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// The plugins that are built in: the folder's name is also the component's.
const PLUGINS: [&str; 5] = ["assistant", "files", "http", "surveyor", "text"];

#[allow(clippy::disallowed_methods, reason = "a build script reads what cargo tells it")]
fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os("CARGO_FEATURE_PLUGINS").is_none() {
        say("cargo::rerun-if-changed=build.rs\n");
        return Ok(());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let plugins = root.join("plugins");
    let stale = [
        plugins.clone(),
        root.join("guest-sdk/src"),
        root.join("guest-sdk/Cargo.toml"),
        root.join("wit"),
    ];
    say(&checkrein_guest_build::rerun_if_changed(&stale.each_ref().map(|path| path.as_path())));

    let built = checkrein_guest_build::build(&plugins)?;
    let out = env::var("OUT_DIR")?;
    let mut code = String::from("&[\n");
    for plugin in PLUGINS {
        let component = Path::new(&out).join(plugin).with_extension("wasm");
        fs::copy(built.join(plugin).with_extension("wasm"), &component)?;
        let manifest = Path::new(&out).join(plugin).with_extension("toml");
        fs::copy(plugins.join(plugin).join("plugin.toml"), &manifest)?;
        code.push_str(&format!(
            "    Embedded {{ manifest: include_str!({manifest:?}), component: include_bytes!({component:?}) }},\n"
        ));
    }
    code.push(']');
    fs::write(Path::new(&out).join("first_party.rs"), code)?;
    Ok(())
}

#[allow(clippy::print_stdout, reason = "this is how a build script talks to cargo")]
fn say(directives: &str) {
    print!("{directives}");
}
