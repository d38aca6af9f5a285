//! The tools of this run, and whether a call that the model asks for can be made at all.

use checkrein_guest::prelude::*;

/// The tools of this run.
#[derive(Debug)]
pub(crate) struct Toolbox {
    specs: Vec<ToolSpec>,
}

impl Toolbox {
    /// These tools.
    pub(crate) fn new(specs: Vec<ToolSpec>) -> Toolbox {
        Toolbox { specs }
    }

    /// The tools, as a model is offered them.
    pub(crate) fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    /// The arguments of a call, in one spelling for all that mean the same.
    ///
    /// # Errors
    /// A result for the model that says what is wrong with the call.
    pub(crate) fn check(&self, call: &ToolCall) -> Result<String, ToolResult> {
        let refuse = |status: &str, content: String| ToolResult {
            id: call.id.clone(),
            status: status.to_owned(),
            content,
        };
        if self.find(&call.name).is_none() {
            return Err(refuse("not-found", self.unknown(&call.name)));
        }
        // Models leave the arguments empty when a tool takes none.
        let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
        match serde_json::from_str::<Value>(text) {
            Ok(arguments @ Value::Object(_)) => Ok(arguments.to_string()),
            Ok(_) => Err(refuse(
                "invalid",
                "the arguments are JSON, but not an object; send one object with the arguments by name"
                    .to_owned(),
            )),
            Err(error) => Err(refuse(
                "invalid",
                format!(
                    "the arguments are not JSON ({error}); the call was not made; send one complete JSON object"
                ),
            )),
        }
    }

    /// Whether a call can be made once more without harm.
    pub(crate) fn is_repeatable(&self, name: &str) -> bool {
        self.find(name)
            .is_some_and(|tool| tool.has_hint(Hint::ReadOnly) || tool.has_hint(Hint::Idempotent))
    }

    /// Whether a call may have changed something.
    pub(crate) fn may_change(&self, name: &str) -> bool {
        self.find(name).is_some_and(|tool| !tool.has_hint(Hint::ReadOnly))
    }

    fn find(&self, name: &str) -> Option<&ToolSpec> {
        self.specs.iter().find(|tool| tool.name == name)
    }

    fn unknown(&self, name: &str) -> String {
        let plain = |name: &str| name.to_lowercase().replace(['-', '.', ' ', ':'], "_");
        let wanted = plain(name);
        let near = self.specs.iter().find(|tool| {
            let known = plain(&tool.name);
            known == wanted || known.ends_with(&format!("_{wanted}"))
        });
        if let Some(near) = near {
            return format!("there is no tool `{name}`; do you mean `{}`?", near.name);
        }
        if self.specs.is_empty() {
            return format!("there is no tool `{name}`: this run has no tools at all");
        }
        let names: Vec<&str> = self.specs.iter().map(|tool| tool.name.as_str()).collect();
        format!("there is no tool `{name}`; there are: {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toolbox() -> Toolbox {
        let tool = |name: &str, hint: Option<Hint>| ToolSpec {
            name: name.to_owned(),
            hints: hint.into_iter().map(|hint| hint.as_str().to_owned()).collect(),
            ..ToolSpec::default()
        };
        Toolbox::new(vec![tool("files_read", Some(Hint::ReadOnly)), tool("files_write", None)])
    }

    fn check(name: &str, arguments: &str) -> Result<String, String> {
        let call =
            ToolCall { id: "1".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
        toolbox().check(&call).map_err(|result| format!("[{}] {}", result.status, result.content))
    }

    #[test]
    fn arguments_get_one_spelling() {
        assert_eq!(
            check("files_read", " { \"b\" : 1, \"a\":2 }"),
            check("files_read", "{\"a\":2,\"b\":1}")
        );
        assert_eq!(check("files_read", "").as_deref(), Ok("{}"));
    }

    #[test]
    fn a_call_that_makes_no_sense_is_answered_with_what_would() {
        assert!(
            check("files_read", "{\"path\": \"/wo")
                .unwrap_err()
                .starts_with("[invalid] the arguments are not JSON")
        );
        assert!(check("files_read", "[1]").unwrap_err().contains("not an object"));
        assert_eq!(
            check("read", "{}").unwrap_err(),
            "[not-found] there is no tool `read`; do you mean `files_read`?"
        );
        assert!(check("Files.Read", "{}").unwrap_err().contains("`files_read`?"));
        assert!(check("launch", "{}").unwrap_err().ends_with("there are: files_read, files_write"));
    }

    #[test]
    fn hints_say_what_may_be_done_again() {
        assert!(toolbox().is_repeatable("files_read") && !toolbox().is_repeatable("files_write"));
        assert!(toolbox().may_change("files_write") && !toolbox().may_change("files_read"));
        assert!(!toolbox().is_repeatable("launch") && !toolbox().may_change("launch"));
    }
}
