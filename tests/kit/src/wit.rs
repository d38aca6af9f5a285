//! What the worlds of the WIT package import, read from the package itself.

use std::path::Path;

use anyhow::{Context, Result};
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
