//! How a tool of a plugin is called by models.

/// What model providers accept as the name of a tool.
const LONGEST: usize = 64;

/// The name by which a model calls a tool: the plugin's name, `_`, and the tool's own name.
///
/// # Errors
///
/// [`NameError`] when the result is not a name that model providers accept.
pub fn full_name(plugin: &str, tool: &str) -> Result<String, NameError> {
    let name = format!("{plugin}_{tool}");
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if tool.is_empty() || name.len() > LONGEST || !name.chars().all(fits) {
        return Err(NameError { name: name.escape_debug().to_string() });
    }
    Ok(name)
}

/// A tool has a name that no model could call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` cannot be the name of a tool: letters, digits, `_` and `-`, at most 64 with the plugin's name"
)]
pub struct NameError {
    name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_model_could_call_are_refused() {
        assert_eq!(full_name("files", "read").as_deref(), Ok("files_read"));
        for tool in ["", "read file", "lösche", "a\n", &"x".repeat(60)] {
            assert!(full_name("files", tool).is_err(), "{tool:?}");
        }
    }
}
