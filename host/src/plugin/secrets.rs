//! Where an operator keeps a secret, and the one moment at which it is fetched.

use std::path::PathBuf;

use serde::Deserialize;

use super::configuration::path;
use super::file::{self, FileError};
use super::names::Variable;
use crate::secret::Secret;

/// The most bytes of a file with a secret.
const MOST: u64 = 64 << 10;

/// Where a secret is kept: `{ env = "NAME" }` or `{ file = "path" }`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretSource {
    /// In an environment variable of the host.
    #[serde(rename = "env")]
    Environment(Variable),
    /// In a file. One end of line at its end is not part of the secret.
    File(#[serde(deserialize_with = "path")] PathBuf),
}

impl SecretSource {
    /// Fetches the secret. `environment` looks a variable up; this room does not read the environment itself.
    ///
    /// # Errors
    /// When it is not there, or not text.
    pub fn fetch(
        &self,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Secret, SecretError> {
        match self {
            SecretSource::Environment(name) => match environment(name.as_str()) {
                Some(value) if !value.is_empty() => Ok(Secret::new(value)),
                Some(_) | None => Err(SecretError::Unset { name: name.clone() }),
            },
            SecretSource::File(path) => {
                let mut value = file::text(path, file::read(path, MOST)?)?;
                let end = value
                    .strip_suffix('\n')
                    .map(|rest| rest.strip_suffix('\r').unwrap_or(rest).len());
                value.truncate(end.unwrap_or(value.len()));
                if value.is_empty() {
                    return Err(SecretError::Empty { path: path.clone() });
                }
                Ok(Secret::new(value))
            }
        }
    }
}

/// Why a secret cannot be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The variable is not set, or empty.
    #[error("the environment variable {name} is not set; set it to the secret")]
    Unset {
        /// The variable.
        name: Variable,
    },
    /// The file is empty.
    #[error("{} is empty; write the secret into it", super::text::shown(path))]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read a secret")]
    File(#[from] FileError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_comes_from_the_environment_that_the_caller_shows() {
        let source = SecretSource::Environment(Variable::parse("TOKEN").unwrap());
        let found = source.fetch(&|name| (name == "TOKEN").then(|| "hunter2".to_owned())).unwrap();
        assert_eq!(found.expose(), "hunter2");
        assert!(matches!(source.fetch(&|_| None), Err(SecretError::Unset { .. })));
        assert!(matches!(source.fetch(&|_| Some(String::new())), Err(SecretError::Unset { .. })));
    }

    #[test]
    fn a_secret_comes_from_a_file_without_its_last_line_end() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("token");
        let source = SecretSource::File(path.clone());
        let fetch = || source.fetch(&|_| None);
        assert!(matches!(fetch(), Err(SecretError::File(FileError::Missing { .. }))));
        for (content, secret) in [("a b\n", "a b"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(fetch().unwrap().expose(), secret);
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(matches!(fetch(), Err(SecretError::Empty { .. })));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(fetch(), Err(SecretError::File(FileError::NotText { offset: 0, .. }))));
    }
}
