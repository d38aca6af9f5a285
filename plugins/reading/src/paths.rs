//! Paths as an agent writes them, and what goes wrong with them, in words.

use std::io;
use std::path::{Component, Path, PathBuf};

use checkrein_guest::prelude::*;

/// The directories that this run was granted, as it names them. They stay the same for the whole run.
#[cfg(target_arch = "wasm32")]
pub fn roots() -> &'static [PathBuf] {
    static ROOTS: std::sync::OnceLock<Vec<PathBuf>> = std::sync::OnceLock::new();
    ROOTS.get_or_init(|| {
        let granted = wasip2::filesystem::preopens::get_directories();
        let mut roots: Vec<PathBuf> =
            granted.into_iter().map(|(_, name)| PathBuf::from(name)).collect();
        roots.sort();
        roots
    })
}

/// Outside the sandbox there are no grants: every absolute path will do.
#[cfg(not(target_arch = "wasm32"))]
pub fn roots() -> &'static [PathBuf] {
    &[]
}

/// Where a path of an agent points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file or directory below a grant.
    Path(PathBuf),
    /// Above the grants: all of them.
    Roots(Vec<PathBuf>),
}

impl Place {
    /// A place that is one path.
    ///
    /// # Errors
    /// When it is above the grants.
    pub fn path(self, given: &str) -> Result<PathBuf, Failure> {
        match self {
            Place::Path(path) => Ok(path),
            Place::Roots(roots) => Err(Failure::invalid(format!(
                "`{given}` is not a file: name a path below {}",
                listed(&roots)
            ))),
        }
    }

    /// The paths to start from.
    pub fn starts(self) -> Vec<PathBuf> {
        match self {
            Place::Path(path) => vec![path],
            Place::Roots(roots) => roots,
        }
    }
}

/// Makes the path absolute and free of `.` and `..`, and checks that it lies below a grant.
///
/// # Errors
/// When it does not.
pub fn resolve(given: &str) -> Result<Place, Failure> {
    let roots = roots();
    if roots.is_empty() && cfg!(target_arch = "wasm32") {
        return Err(Failure::denied(format!(
            "`{given}` cannot be reached: this run was granted no directory"
        )));
    }
    resolve_below(given, roots)
}

fn resolve_below(given: &str, roots: &[PathBuf]) -> Result<Place, Failure> {
    if given.contains('\0') {
        return Err(Failure::invalid(format!("the path {given:?} contains a zero character")));
    }
    let trimmed = given.trim_start_matches("./");
    let relative = !given.starts_with('/');
    if relative && (trimmed.is_empty() || trimmed == ".") {
        return Ok(match roots {
            [only] => Place::Path(only.clone()),
            _ => Place::Roots(roots.to_vec()),
        });
    }
    let from_root = clean(&Path::new("/").join(trimmed));
    let within = |path: &Path| roots.iter().any(|root| path.starts_with(root));
    let path = match roots {
        // `work/src` is a slip for `/work/src`, unless there is such a directory below.
        [only] if relative => {
            let below = clean(&only.join(trimmed));
            if within(&from_root) && below.symlink_metadata().is_err() { from_root } else { below }
        }
        _ => from_root,
    };
    if roots.is_empty() && !cfg!(target_arch = "wasm32") || within(&path) {
        return Ok(Place::Path(path));
    }
    if roots.iter().any(|root| root.starts_with(&path)) {
        return Ok(Place::Roots(
            roots.iter().filter(|root| root.starts_with(&path)).cloned().collect(),
        ));
    }
    let granted = if roots.is_empty() {
        "this run was granted no directory".to_owned()
    } else {
        format!("this run was granted {}", listed(roots))
    };
    Err(Failure::denied(format!("`{given}` cannot be reached: {granted}")))
}

fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            Component::Normal(name) => clean.push(name),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    clean
}

fn listed(roots: &[PathBuf]) -> String {
    roots.iter().map(|root| show(root)).collect::<Vec<_>>().join(", ")
}

/// The path as text.
pub fn show(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Why the system refused, in a few words.
pub fn reason(error: &io::Error) -> String {
    use io::ErrorKind;
    const WORDS: [(ErrorKind, &str); 7] = [
        (ErrorKind::NotFound, "does not exist"),
        (ErrorKind::PermissionDenied, "permission denied"),
        (ErrorKind::ReadOnlyFilesystem, "read-only"),
        (ErrorKind::IsADirectory, "is a directory"),
        (ErrorKind::NotADirectory, "a part of the path is not a directory"),
        (ErrorKind::AlreadyExists, "exists already"),
        (ErrorKind::StorageFull, "the disk is full"),
    ];
    let known = WORDS.iter().find(|(kind, _)| *kind == error.kind());
    known.map_or_else(|| error.to_string(), |(_, words)| (*words).to_owned())
}

/// Why the system refused to touch this path: a link that leads nowhere deserves to be called one.
pub fn reason_at(path: &Path, error: &io::Error) -> String {
    let why = reason(error);
    // The host lists a name that is no text with marks in place of what cannot be told, and knows no file of that name.
    let marked = path.file_name().is_some_and(|name| name.to_string_lossy().contains('\u{fffd}'));
    if marked && error.kind() == io::ErrorKind::NotFound {
        return "its name is not UTF-8, so it cannot be named here".to_owned();
    }
    if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
        return why;
    }
    match path.read_link() {
        Ok(target) => {
            format!("is a symbolic link to `{}`, which cannot be reached ({why})", show(&target))
        }
        Err(_) => format!("is a symbolic link that leads out of the granted directories ({why})"),
    }
}

/// A failure about one path, with what to do where that helps.
pub fn failure(doing: &str, path: &Path, error: &io::Error) -> Failure {
    let message = format!(
        "cannot {doing} {}: {}{}",
        show(path),
        reason_at(path, error),
        nearest(path, error)
    );
    let same_kind = io::Error::from(error.kind());
    Failure { message, ..Failure::from(same_kind) }
}

/// The nearest directory above a missing path that is there.
fn nearest(path: &Path, error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::NotFound {
        return String::new();
    }
    let there = path.ancestors().skip(1).find(|above| above.symlink_metadata().is_ok());
    there.map_or_else(String::new, |above| {
        format!(" (the nearest directory above it that exists is {})", show(above))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(given: &str, roots: &[&str]) -> String {
        let roots: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
        match resolve_below(given, &roots) {
            Ok(Place::Path(path)) => show(&path),
            Ok(Place::Roots(roots)) => format!("all of {}", listed(&roots)),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn paths_are_absolute_and_plain() {
        assert_eq!(resolved("/work/./a/../b//c", &["/work"]), "/work/b/c");
        assert_eq!(resolved("src/main.rs", &["/work"]), "/work/src/main.rs");
        assert_eq!(resolved("./src", &["/work"]), "/work/src");
        assert_eq!(resolved("work/src", &["/work"]), "/work/src");
        assert_eq!(resolved("", &["/work"]), "/work");
        assert_eq!(resolved(".", &["/work"]), "/work");
    }

    #[test]
    fn above_the_grants_are_all_grants() {
        assert_eq!(resolved("/", &["/data", "/work"]), "all of /data, /work");
        assert_eq!(resolved("", &["/data", "/work"]), "all of /data, /work");
        assert_eq!(resolved("/mnt", &["/mnt/a", "/mnt/b", "/work"]), "all of /mnt/a, /mnt/b");
    }

    #[test]
    fn a_name_that_is_no_text_is_called_one() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(reason_at(Path::new("/work/plain"), &missing), "does not exist");
        assert!(reason_at(Path::new("/work/\u{fffd}.txt"), &missing).contains("is not UTF-8"));
    }

    #[test]
    fn beside_the_grants_is_nothing() {
        let denied = "denied: `/etc/passwd` cannot be reached: this run was granted /work";
        assert_eq!(resolved("/etc/passwd", &["/work"]), denied);
        assert!(resolved("/work/../etc", &["/work"]).starts_with("denied:"));
        assert!(resolved("/workshop", &["/work"]).starts_with("denied:"));
        assert!(resolved("../x", &["/work"]).starts_with("denied:"));
        assert!(resolved("a\0b", &["/work"]).starts_with("invalid:"));
    }
}
