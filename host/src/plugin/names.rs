//! Names that stand in manifests and configurations: each is checked once, when it is read.

use std::fmt;

use serde::Deserialize;
use serde::de::Deserializer;

use super::document::from_text;
use super::text::printable;

/// Makes a type of its own for one kind of name.
macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $rule:literal, $holds:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(String);

        impl $type {
            /// Checks a name.
            ///
            /// # Errors
            /// When the text breaks the rule of these names.
            pub fn parse(text: &str) -> Result<$type, NameError> {
                let holds: fn(&str) -> bool = $holds;
                if holds(text) {
                    Ok($type(text.to_owned()))
                } else {
                    Err(NameError { text: printable(text), what: $what, rule: $rule })
                }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = NameError;

            fn from_str(text: &str) -> Result<$type, NameError> {
                $type::parse(text)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                from_text(deserializer, $what, |text| $type::parse(text).map_err(|error| error.to_string()))
            }
        }
    };
}

name!(
    /// The name of a plugin.
    Name,
    "the name of a plugin",
    "a lower-case letter, then lower-case letters, digits and `-`, at most 32 characters",
    |text| starts(text, |c| c.is_ascii_lowercase())
        && all(text, 32, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
);

name!(
    /// The name of a schedule, or of the session that one or more of them share.
    ScheduleName,
    "the name of a schedule or of its session",
    "a lower-case letter or digit, then lower-case letters, digits and `-`, at most 32 characters",
    |text| starts(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit())
        && all(text, 32, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
);

name!(
    /// The name of a directory as guests see it: `work` is found at `/work`.
    Mount,
    "the name of a directory",
    "a letter or digit, then letters, digits, `.`, `_` and `-`, at most 32 characters, no slash",
    |text| starts(text, |c| c.is_ascii_alphanumeric()) && all(text, 32, is_word)
);

name!(
    /// The name of an environment variable.
    Variable,
    "the name of an environment variable",
    "a letter or `_`, then letters, digits and `_`, at most 128 characters",
    |text| starts(text, |c| c.is_ascii_alphabetic() || c == '_')
        && all(text, 128, |c| c.is_ascii_alphanumeric() || c == '_')
);

name!(
    /// The name under which a tool asks for a secret.
    SecretName,
    "the name of a secret",
    "a letter or digit, then letters, digits, `.`, `_` and `-`, at most 64 characters",
    |text| starts(text, |c| c.is_ascii_alphanumeric()) && all(text, 64, is_word)
);

name!(
    /// The name that an operator gave a model.
    ModelName,
    "the name of a model",
    "a letter or digit, then letters, digits, `.`, `_`, `-`, `:` and `/`, at most 64 characters",
    |text| starts(text, |c| c.is_ascii_alphanumeric()) && all(text, 64, |c| is_word(c) || matches!(c, ':' | '/'))
);

name!(
    /// The version of a plugin: shown, not compared.
    Version,
    "the version of a plugin",
    "a digit, then letters, digits, `.`, `-` and `+`, at most 64 characters, such as \"0.1.0\"",
    |text| starts(text, |c| c.is_ascii_digit())
        && all(text, 64, |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'))
);

impl Mount {
    /// The path at which a guest finds the directory.
    pub fn guest_path(&self) -> String {
        format!("/{}", self.0)
    }
}

fn starts(text: &str, first: fn(char) -> bool) -> bool {
    text.chars().next().is_some_and(first)
}

fn all(text: &str, most: usize, each: fn(char) -> bool) -> bool {
    text.len() <= most && text.chars().all(each)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// A text that is no such name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` cannot be {what}; one is {rule}")]
pub struct NameError {
    /// The text, escaped.
    pub text: String,
    /// What it should have been.
    pub what: &'static str,
    /// How such names look.
    pub rule: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_names_keep_to_their_rule() {
        for good in ["a", "files", "web-search-2", &"a".repeat(32)] {
            assert_eq!(Name::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "Files", "2d", "-a", "a_b", "ä", "a b", "a/b", "..", &"a".repeat(33)] {
            assert!(Name::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_name_of_a_directory_leads_anywhere() {
        for bad in ["", ".", "..", "a/b", "/work", "a\\b", "*", "a\0b"] {
            assert!(Mount::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Mount::parse("work").unwrap().guest_path(), "/work");
    }

    #[test]
    fn a_refused_name_is_shown_escaped() {
        let error = Name::parse("a\x1b]0;x\x07").unwrap_err().to_string();
        assert!(
            error.starts_with("`a\\u{1b}]0;x\\u{7}` cannot be the name of a plugin"),
            "{error}"
        );
    }
}
