//! Whether the arguments of a call fit the schema of its tool.

use serde_json::Value;

/// How many faults one answer names: a model corrects a few at a time.
const NAMED: usize = 5;

/// The schema of a tool's arguments, ready to check with.
#[derive(Debug)]
pub struct Arguments {
    validator: jsonschema::Validator,
}

impl Arguments {
    /// Reads a schema. Patterns in it are matched in linear time, whatever the tool wrote, and it can refer to
    /// nothing outside itself.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] when it is not JSON, or not a schema of an object.
    pub fn new(schema: &str) -> Result<Arguments, SchemaError> {
        let schema: Value = serde_json::from_str(schema).map_err(|error| SchemaError::NotJson(error.to_string()))?;
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(SchemaError::NotObject);
        }
        let validator = jsonschema::options()
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .build(&schema)
            .map_err(|error| SchemaError::NotSchema(error.to_string()))?;
        Ok(Arguments { validator })
    }

    /// Checks the arguments of a call, which are JSON text. No text at all stands for no arguments. Gives the
    /// text to pass on, or what is wrong in words that a model can act on.
    ///
    /// # Errors
    ///
    /// The words.
    pub fn check(&self, text: &str) -> Result<String, String> {
        let text = if text.trim().is_empty() { "{}" } else { text };
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("the arguments are not JSON: {error}"))?;
        let faults: Vec<String> = self
            .validator
            .iter_errors(&value)
            .take(NAMED)
            .map(|error| {
                let at = error.instance_path().to_string();
                let at = if at.is_empty() { "the arguments".to_owned() } else { format!("`{at}`") };
                format!("{at}: {}", shortened(&error.to_string()))
            })
            .collect();
        if faults.is_empty() {
            return Ok(text.to_owned());
        }
        Err(format!("the arguments do not fit the tool's schema: {}", faults.join("; ")))
    }
}

/// A fault quotes the value that is at fault; a long one is cut.
fn shortened(words: &str) -> String {
    const MOST: usize = 300;
    match words.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words.to_owned(),
    }
}

/// A tool's schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// It is not JSON.
    #[error("the schema of its arguments is not JSON: {0}")]
    NotJson(String),
    /// It does not describe an object.
    #[error("the schema of its arguments must have the type `object`")]
    NotObject,
    /// It is not a schema.
    #[error("the schema of its arguments is no JSON Schema: {0}")]
    NotSchema(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","properties":{"n":{"type":"integer","minimum":1},"s":{"type":"string",
        "pattern":"^(a+)+$"}},"required":["n"],"additionalProperties":false}"#;

    #[test]
    fn arguments_are_checked_against_the_schema() {
        let arguments = Arguments::new(SCHEMA).unwrap();
        assert_eq!(arguments.check(r#"{"n":1}"#).as_deref(), Ok(r#"{"n":1}"#));
        for wrong in ["", "{", "[]", r#"{"n":"1"}"#, r#"{"n":0}"#, r#"{"n":1,"m":2}"#] {
            assert!(arguments.check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pattern_that_explodes_elsewhere_is_matched_in_linear_time() {
        let arguments = Arguments::new(SCHEMA).unwrap();
        let hostile = format!(r#"{{"n":1,"s":"{}b"}}"#, "a".repeat(100_000));
        let answer = arguments.check(&hostile).unwrap_err();
        assert!(answer.len() < 2_000, "{} bytes", answer.len());
    }

    #[test]
    fn what_is_no_schema_of_an_object_is_refused() {
        assert!(matches!(Arguments::new("{"), Err(SchemaError::NotJson(_))));
        assert_eq!(Arguments::new(r#"{"type":"string"}"#).unwrap_err(), SchemaError::NotObject);
        assert!(matches!(Arguments::new(r#"{"type":"object","properties":3}"#), Err(SchemaError::NotSchema(_))));
        let outside = r#"{"type":"object","properties":{"a":{"$ref":"https://example.org/x.json"}}}"#;
        assert!(matches!(Arguments::new(outside), Err(SchemaError::NotSchema(_))));
    }

    #[test]
    fn deep_nesting_is_an_answer_and_not_a_crash() {
        let arguments = Arguments::new(r#"{"type":"object"}"#).unwrap();
        assert!(arguments.check(&"[".repeat(100_000)).is_err());
    }
}
