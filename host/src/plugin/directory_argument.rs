//! `--dir`: a directory that is given on the command line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::names::Mount;
use super::text::{nearest, printable};
use crate::sandbox::{Access, Directory};

/// One `--dir [NAME=]PATH[:ro|:rw]`. Without a suffix the directory can only be read.
///
/// What stands before the first `=` is a name if it looks like one; a path such as `a=b` is written `./a=b`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryArgument {
    /// The name under which guests find it, if one was written.
    pub name: Option<Mount>,
    /// The directory on the host, as it was written.
    pub path: PathBuf,
    /// What may be done in it.
    pub access: Access,
}

impl DirectoryArgument {
    /// Reads an argument.
    ///
    /// # Errors
    /// When it names no path, or ends in something that looks like a mistyped `:ro` or `:rw`.
    pub fn parse(text: &str) -> Result<DirectoryArgument, DirectoryArgumentError> {
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) => match Mount::parse(name) {
                Ok(name) => (Some(name), rest),
                Err(_) => (None, text),
            },
            None => (None, text),
        };
        let (path, access) = match rest.rsplit_once(':') {
            Some((path, "ro")) => (path, Access::Read),
            Some((path, "rw")) => (path, Access::ReadWrite),
            Some((_, suffix)) if is_mistyped(suffix) => {
                return Err(DirectoryArgumentError::Suffix { suffix: printable(suffix) });
            }
            Some(_) | None => (rest, Access::Read),
        };
        if path.is_empty() || path.contains('\0') {
            return Err(DirectoryArgumentError::NoPath { argument: printable(text) });
        }
        Ok(DirectoryArgument { name, path: PathBuf::from(path), access })
    }

    /// Gives every directory its name. The only one without a name is called `work`; of several, each has the
    /// last part of its path as its name.
    ///
    /// # Errors
    /// When a path gives no name, or two directories have the same.
    pub fn name_all(
        arguments: &[DirectoryArgument],
    ) -> Result<Vec<Directory>, DirectoryArgumentError> {
        let lone = arguments.iter().filter(|argument| argument.name.is_none()).count() == 1;
        let mut taken = BTreeSet::new();
        let mut directories = Vec::new();
        for argument in arguments {
            let mount = match &argument.name {
                Some(name) => Some(name.clone()),
                None if lone => Mount::parse("work").ok(),
                None => last_part(&argument.path),
            };
            let Some(mount) = mount else {
                return Err(DirectoryArgumentError::NoName { path: shown(&argument.path) });
            };
            let directory = Directory {
                mount: mount.guest_path(),
                path: argument.path.clone(),
                access: argument.access,
            };
            if !taken.insert(mount.clone()) {
                return Err(DirectoryArgumentError::Repeated {
                    mount,
                    path: shown(&argument.path),
                });
            }
            directories.push(directory);
        }
        Ok(directories)
    }
}

impl std::str::FromStr for DirectoryArgument {
    type Err = DirectoryArgumentError;

    fn from_str(text: &str) -> Result<DirectoryArgument, DirectoryArgumentError> {
        DirectoryArgument::parse(text)
    }
}

fn is_mistyped(suffix: &str) -> bool {
    matches!(suffix, "" | "r" | "w" | "wr" | "or" | "read" | "write" | "read-write" | "read-only")
        || (suffix.len() == 2 && nearest(suffix, ["ro", "rw"]).is_some())
}

fn last_part(path: &Path) -> Option<Mount> {
    path.file_name().and_then(|name| name.to_str()).and_then(|name| Mount::parse(name).ok())
}

fn shown(path: &Path) -> String {
    super::text::shown(path)
}

/// Why directories on the command line cannot be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryArgumentError {
    /// There is no path in it.
    #[error("`{argument}` names no directory; write PATH, PATH:rw or NAME=PATH:rw")]
    NoPath {
        /// The argument, escaped.
        argument: String,
    },
    /// What follows the last `:` is probably meant as `ro` or `rw`.
    #[error("`:{suffix}` is no kind of access; write `:ro` or `:rw`")]
    Suffix {
        /// What stands there, escaped.
        suffix: String,
    },
    /// The path does not end in something that can be a name.
    #[error("the directory {path} needs a name; write NAME={path}")]
    NoName {
        /// The path, escaped.
        path: String,
    },
    /// Two directories have one name.
    #[error("two directories are called `{mount}`; write NAME={path} with another name")]
    Repeated {
        /// The name.
        mount: Mount,
        /// The second one's path, escaped.
        path: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Option<String>, String, Access) {
        let argument = DirectoryArgument::parse(text).unwrap();
        (
            argument.name.map(|name| name.to_string()),
            argument.path.display().to_string(),
            argument.access,
        )
    }

    #[test]
    fn an_argument_has_a_path_and_may_have_a_name_and_an_access() {
        assert_eq!(parsed("."), (None, ".".to_owned(), Access::Read));
        assert_eq!(parsed("src:ro"), (None, "src".to_owned(), Access::Read));
        assert_eq!(parsed("src:rw"), (None, "src".to_owned(), Access::ReadWrite));
        assert_eq!(
            parsed("out=/tmp/o:rw"),
            (Some("out".to_owned()), "/tmp/o".to_owned(), Access::ReadWrite)
        );
        assert_eq!(parsed("./a=b"), (None, "./a=b".to_owned(), Access::Read));
        assert_eq!(parsed("a:b"), (None, "a:b".to_owned(), Access::Read));
    }

    #[test]
    fn an_argument_that_was_mistyped_gives_nothing() {
        for bad in
            ["", ":rw", "x=", "x=:ro", "src:wr", "src:rW", "src:", "src:write", "src:rx", "a\0b"]
        {
            assert!(DirectoryArgument::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn directories_get_names() {
        let named = |arguments: &[&str]| {
            let arguments: Vec<_> =
                arguments.iter().map(|text| DirectoryArgument::parse(text).unwrap()).collect();
            DirectoryArgument::name_all(&arguments)
                .map(|all| all.into_iter().map(|directory| directory.mount).collect::<Vec<_>>())
        };
        assert_eq!(named(&["."]).unwrap(), ["/work"]);
        assert_eq!(named(&["x", "o=y"]).unwrap(), ["/work", "/o"]);
        assert_eq!(named(&["a/x", "y/"]).unwrap(), ["/x", "/y"]);
        assert!(matches!(named(&[".", "y"]), Err(DirectoryArgumentError::NoName { .. })));
        assert!(matches!(named(&["a/x", "b/x"]), Err(DirectoryArgumentError::Repeated { .. })));
        assert!(matches!(named(&["a", "work=b"]), Err(DirectoryArgumentError::Repeated { .. })));
    }
}
