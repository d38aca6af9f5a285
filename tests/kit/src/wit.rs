//! What the worlds of the WIT package import, read from the package itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use wit_parser::{Resolve, WorldItem};

/// The two worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// Agents.
    Agent,
    /// Tools.
    Tool,
}

/// The functions that a world imports, as `interface.function`, sorted.
///
/// # Errors
///
/// When the package cannot be read.
pub fn imports(world: World) -> Result<Vec<String>> {
    let name = match world {
        World::Agent => "agent",
        World::Tool => "tool",
    };
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit"))?;
    let world = resolve.select_world(&[package], Some(name))?;
    let mut functions = Vec::new();
    for (key, item) in &resolve.worlds[world].imports {
        match item {
            WorldItem::Interface { id, .. } => {
                let interface = &resolve.interfaces[*id];
                let name = interface.name.as_deref().context("an interface without a name")?;
                functions.extend(
                    interface.functions.keys().map(|function| format!("{name}.{function}")),
                );
            }
            WorldItem::Function(function) => functions.push(function.name.clone()),
            WorldItem::Type { .. } => {
                let _named_type = key;
            }
        }
    }
    functions.sort();
    Ok(functions)
}

/// The functions of every interface of WASI 0.2 that wasmtime knows, as `wasi:package/interface.function`, sorted. What is
/// unstable is not among them.
///
/// # Errors
///
/// When the packages of wasmtime cannot be found or read.
pub fn wasi() -> Result<Vec<String>> {
    let mut resolve = Resolve::default();
    resolve.push_dir(wasmtime_wasi_http()?.join("wit"))?;
    let mut functions = Vec::new();
    for (_, interface) in &resolve.interfaces {
        let (Some(package), Some(name)) = (interface.package, interface.name.as_deref()) else {
            continue;
        };
        let package = &resolve.packages[package].name;
        let called =
            |function: &String| format!("{}:{}/{name}.{function}", package.namespace, package.name);
        functions.extend(interface.functions.keys().map(called));
    }
    functions.sort();
    Ok(functions)
}

/// The folder of the crate that has the WIT of all of WASI.
#[allow(clippy::disallowed_methods, reason = "this is how cargo talks to a test")]
fn wasmtime_wasi_http() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(workspace)
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let package = packages.iter().find(|package| package["name"] == "wasmtime-wasi-http");
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
    Ok(folder.context("wasmtime-wasi-http is no dependency")?.to_owned())
}
