//! Builds a workspace of guests for `wasm32-wasip2` from the build script of a host crate.
//!
//! The guests are a workspace of their own, with a lock file of their own. They are built into `<target>/guests`,
//! beside the folders of the outer build: the outer target folder itself is locked while a build script runs, and
//! a folder in `OUT_DIR` would be built anew for every flavour of the outer build.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target for which guests are compiled.
pub const TARGET: &str = "wasm32-wasip2";

/// Variables of the outer build that must not reach the inner one: flags and wrappers are for the outer target.
const NOT_INHERITED: [&str; 6] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "LLVM_PROFILE_FILE",
    "CARGO_MAKEFLAGS",
];

/// Builds all packages of the guest workspace in `workspace`, and gives the folder with the components.
///
/// # Errors
///
/// [`BuildError`], whose text says what to do.
#[allow(clippy::disallowed_methods, reason = "a build script reads what cargo tells it")]
pub fn build(workspace: &Path) -> Result<PathBuf, BuildError> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    if !has_target(&rustc) {
        return Err(BuildError::NoTarget);
    }
    let out = env::var_os("OUT_DIR").map(PathBuf::from).ok_or(BuildError::NotABuildScript)?;
    let target = target_folder(&out).ok_or(BuildError::NotABuildScript)?.join("guests");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--release", "--locked", "--target", TARGET, "--manifest-path"])
        .arg(workspace.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target);
    for (name, _) in env::vars_os() {
        let prefixes =
            ["CARGO_BUILD_", "CARGO_TARGET_", "CARGO_PROFILE_", "CARGO_FEATURE_", "CARGO_CFG_"];
        let text = name.to_string_lossy();
        if NOT_INHERITED.contains(&&*text) || prefixes.iter().any(|prefix| text.starts_with(prefix))
        {
            command.env_remove(&name);
        }
    }
    let output = command.output().map_err(BuildError::NoCargo)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(BuildError::Failed { workspace: workspace.to_owned(), said });
    }
    Ok(target.join(TARGET).join("release"))
}

/// Says to cargo which changes make the guests stale.
pub fn rerun_if_changed(paths: &[&Path]) -> String {
    paths.iter().map(|path| format!("cargo::rerun-if-changed={}\n", path.display())).collect()
}

/// Whether the standard library for guests is there.
fn has_target(rustc: &OsStr) -> bool {
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).output();
    sysroot.is_ok_and(|output| {
        let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        sysroot.join("lib/rustlib").join(TARGET).join("lib").is_dir()
    })
}

/// The outer target folder: the nearest one above with cargo's own mark in it. Cargo sets no mark in a folder that was
/// there before it, such as a mounted one; then it is the one in which the profile has its `build`.
fn target_folder(out: &Path) -> Option<&Path> {
    let marked = out.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    let build = || out.ancestors().find(|folder| folder.ends_with("build"));
    marked.or_else(|| build()?.parent()?.parent())
}

/// The guests could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The target is not installed.
    NoTarget,
    /// This does not run as a build script of cargo.
    NotABuildScript,
    /// Cargo could not be started.
    NoCargo(std::io::Error),
    /// The build failed.
    Failed {
        /// Which workspace.
        workspace: PathBuf,
        /// What cargo said.
        said: String,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::NoTarget => {
                write!(
                    f,
                    "guests need the Rust target {TARGET}, which is not installed: run `rustup target add {TARGET}`"
                )
            }
            BuildError::NotABuildScript => {
                f.write_str("guests are built from a build script of cargo, and this is none")
            }
            BuildError::NoCargo(error) => {
                write!(f, "cargo could not be started to build the guests: {error}")
            }
            BuildError::Failed { workspace, said } => {
                write!(f, "the guests in {} could not be built:\n{said}", workspace.display())
            }
        }
    }
}

impl std::error::Error for BuildError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_folder_is_found_with_and_without_the_mark_of_cargo() {
        let folder = env::temp_dir().join(format!("checkrein-guest-build-{}", std::process::id()));
        let out = folder.join("target/debug/build/package-0/out");
        std::fs::create_dir_all(&out).unwrap();
        assert_eq!(target_folder(&out), Some(&*folder.join("target")));
        std::fs::write(folder.join("CACHEDIR.TAG"), "").unwrap();
        assert_eq!(target_folder(&out), Some(&*folder));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
