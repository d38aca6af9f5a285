//! Files that are counted apart, because nobody here wrote them: vendored, built, generated.

use checkrein_guest::prelude::*;

use crate::languages::{ending_of, name_of};

/// Why a file is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Apart {
    /// Code of others that was copied in, or was installed by a package manager.
    Vendored,
    /// What a build or a cache left behind.
    Built,
    /// Written by a program: lock files, minified files, generated code.
    Generated,
    /// Images, archives, programs: nothing that has lines.
    Binary,
    /// Larger than what is read.
    Large,
}

impl Apart {
    /// What such files are called in a report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Apart::Vendored => "vendored",
            Apart::Built => "build output and caches",
            Apart::Generated => "generated, lock files, minified",
            Apart::Binary => "binary",
            Apart::Large => "too large to read",
        }
    }
}

/// Folders of version control. They are not even listed.
pub(crate) const VERSION_CONTROL: &[&str] = &[".git/", ".hg/", ".svn/", ".jj/", ".bzr/", "CVS/"];

const VENDORED: &[&str] = &[
    "node_modules",
    "bower_components",
    "jspm_packages",
    "vendor",
    "third_party",
    "third-party",
    "thirdparty",
    "site-packages",
    "Pods",
    "Carthage",
    "elm-stuff",
    "_vendor",
];

const BUILT: &[&str] = &[
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".nox",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".gradle",
    ".next",
    ".nuxt",
    ".svelte-kit",
    ".parcel-cache",
    ".turbo",
    ".terraform",
    ".dart_tool",
    ".stack-work",
    "dist-newstyle",
    ".bloop",
    ".metals",
    ".eggs",
    ".cache",
    ".direnv",
    "DerivedData",
    "CMakeFiles",
    "zig-cache",
    ".zig-cache",
    "bazel-bin",
    "bazel-out",
];

const GENERATED_NAMES: &[&str] = &[
    "cargo.lock",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "bun.lock",
    "bun.lockb",
    "composer.lock",
    "gemfile.lock",
    "poetry.lock",
    "pipfile.lock",
    "pdm.lock",
    "uv.lock",
    "go.sum",
    "mix.lock",
    "flake.lock",
    "pubspec.lock",
    "podfile.lock",
    "deno.lock",
    "packages.lock.json",
    "gradle.lockfile",
    "conan.lock",
    "cabal.project.freeze",
    "module.bazel.lock",
    ".terraform.lock.hcl",
    "package.resolved",
];

const GENERATED_ENDS: &[&str] = &[
    ".min.js",
    ".min.css",
    ".min.mjs",
    ".js.map",
    ".css.map",
    ".mjs.map",
    ".d.ts.map",
    ".bundle.js",
    ".pb.go",
    ".pb.h",
    ".pb.cc",
    "_pb2.py",
    "_pb2.pyi",
    "_pb2_grpc.py",
    "_pb.js",
    "_pb.d.ts",
    ".g.dart",
    ".freezed.dart",
    ".designer.cs",
    ".g.cs",
    ".generated.ts",
    ".generated.rs",
    ".generated.go",
    ".snap",
];

/// Why the file at that place below its folder is counted apart, as far as its path tells.
pub(crate) fn by_path(below: &str) -> Option<Apart> {
    let mut parts = below.split('/').peekable();
    while let Some(part) = parts.next() {
        let Some(next) = parts.peek() else { break };
        if VENDORED.contains(&part) {
            return Some(Apart::Vendored);
        }
        // A folder `target` is build output only if it looks like one.
        let target = part == "target"
            && (matches!(
                *next,
                "debug"
                    | "release"
                    | "CACHEDIR.TAG"
                    | "classes"
                    | ".rustc_info.json"
                    | "doc"
                    | "tmp"
            ) || next.starts_with("wasm32-")
                || next.contains("-unknown-"));
        if target || BUILT.contains(&part) {
            return Some(Apart::Built);
        }
    }
    let name = name_of(below).to_ascii_lowercase();
    let generated = GENERATED_NAMES.contains(&name.as_str())
        || GENERATED_ENDS.iter().any(|end| name.ends_with(end));
    if generated {
        return Some(Apart::Generated);
    }
    crate::languages::is_binary(below).then_some(Apart::Binary)
}

/// The first part of the path that makes it vendored or built: the folder that a report names.
pub(crate) fn folder(below: &str) -> Option<&str> {
    let mut end = 0;
    for part in below.split('/') {
        end += part.len();
        if end == below.len() {
            return None;
        }
        if VENDORED.contains(&part) || BUILT.contains(&part) || part == "target" {
            return Some(&below[..end]);
        }
        end += 1;
    }
    None
}

/// A short name for the sort of a binary file.
pub(crate) fn sort_of(path: &str) -> String {
    let name = name_of(path).to_ascii_lowercase();
    ending_of(&name)
        .filter(|ending| ending.len() <= 12)
        .map_or_else(|| "no ending".to_owned(), |ending| format!(".{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_tell_what_nobody_here_wrote() {
        assert_eq!(by_path("web/node_modules/a/index.js"), Some(Apart::Vendored));
        assert_eq!(by_path("target/debug/build/x"), Some(Apart::Built));
        assert_eq!(by_path("src/target/mod.rs"), None);
        assert_eq!(by_path("vendor"), None);
        assert_eq!(by_path("Cargo.lock"), Some(Apart::Generated));
        assert_eq!(by_path("a/app.min.js"), Some(Apart::Generated));
        assert_eq!(by_path("a/logo.png"), Some(Apart::Binary));
        assert_eq!(by_path("src/main.rs"), None);
    }

    #[test]
    fn a_folder_counted_apart_has_a_name() {
        assert_eq!(folder("web/node_modules/a/node_modules/b"), Some("web/node_modules"));
        assert_eq!(folder("src/main.rs"), None);
        assert_eq!(folder("vendor"), None);
    }
}
