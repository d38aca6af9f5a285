//! A value that must not be seen: keys and passwords on their way from the operator to what uses them.

use std::fmt;

/// A secret. It can be used, but it is never shown: not in logs, not in errors, not by [`fmt::Debug`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a value out of sight.
    pub fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }

    /// The value itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `text` with the secret blotted out wherever it stands. Endpoints repeat a key that they do not accept.
    pub fn scrub(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, "[secret]") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show_in_debug_output() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "Secret(…) Some(Secret(…))");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn a_secret_is_blotted_out_of_text() {
        let secret = Secret::new("sk-123");
        assert_eq!(secret.scrub("key sk-123 is not sk-1234"), "key [secret] is not [secret]4");
        assert_eq!(Secret::new("").scrub("abc"), "abc");
    }
}
