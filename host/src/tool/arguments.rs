//! Whether the arguments of a call fit the schema of its tool.
//!
//! Schema and arguments come from two strangers, so what a check costs is bounded by both: what a schema may be is
//! said in [`budget`](super::budget), and arguments that are too long for their schema are refused unread.

use serde_json::Value;

use super::budget::{self, Excess, MOST_TEXT, Size};

/// How many faults one answer names: a model corrects a few at a time.
const NAMED: usize = 5;

/// Bytes of arguments times the weight of the schema: more is not checked at all.
const MOST_COST: usize = 1 << 28;

/// No more than this takes no longer than a few milliseconds.
const QUICK: usize = 1 << 18;

/// Bytes that a list of all faults may take. The validator makes all of it before it names the first.
const MOST_FAULTS: usize = 64 << 20;

/// Bytes that a fault takes beside the value and the path that it quotes.
const FAULT: usize = 512;

/// Bytes of one compiled pattern, and of what is kept while it is matched.
const MOST_PATTERN: usize = 1 << 16;
const MOST_MATCHING: usize = 1 << 18;

/// The schema of a tool's arguments, ready to check with.
#[derive(Debug)]
pub struct Arguments {
    validator: jsonschema::Validator,
    size: Size,
}

impl Arguments {
    /// Reads a schema. Patterns in it are matched in linear time, whatever the tool wrote, and it can refer to
    /// nothing outside itself. What it says of formats is for the model; nothing is checked against it.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] when it is not JSON, not a schema of an object, or would take too long to check with.
    pub fn new(schema: &str) -> Result<Arguments, SchemaError> {
        if schema.len() > MOST_TEXT {
            return Err(Excess::Text.into());
        }
        let mut schema: Value = serde_json::from_str(schema)
            .map_err(|error| SchemaError::NotJson(error.to_string()))?;
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(SchemaError::NotObject);
        }
        let size = budget::measure(&schema)?;
        // Its own name could be the one of a schema that the validator knows, and its references would lead there.
        if let Some(members) = schema.as_object_mut() {
            members.remove("$id");
        }
        let patterns = jsonschema::PatternOptions::regex()
            .size_limit(MOST_PATTERN)
            .dfa_size_limit(MOST_MATCHING);
        let validator = jsonschema::options()
            .with_pattern_options(patterns)
            .should_validate_formats(false)
            .build(&schema)
            .map_err(|error| SchemaError::NotSchema(shortened(&error.to_string())))?;
        Ok(Arguments { validator, size })
    }

    /// How large the schema is.
    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// Whether a check of this text takes no longer than a thread that others wait for can be kept.
    pub(super) fn is_quick(&self, text: &str) -> bool {
        let cost = self.cost(text);
        cost <= QUICK || cost > MOST_COST
    }

    fn cost(&self, text: &str) -> usize {
        text.len().saturating_mul(self.size.weight())
    }

    /// Checks the arguments of a call, which are JSON text. No text at all stands for no arguments. Gives the
    /// text to pass on, or what is wrong in words that a model can act on.
    ///
    /// # Errors
    ///
    /// The words.
    pub fn check(&self, text: &str) -> Result<String, String> {
        if self.cost(text) > MOST_COST {
            let (bytes, most) = (text.len(), MOST_COST / self.size.weight().max(1));
            return Err(format!(
                "the arguments have {bytes} bytes; this tool takes at most {most}: ask for less at once"
            ));
        }
        let text = if text.trim().is_empty() { "{}" } else { text };
        let value: Value = serde_json::from_str(text)
            .map_err(|error| format!("the arguments are not JSON: {error}"))?;
        if self.validator.is_valid(&value) {
            return Ok(text.to_owned());
        }
        let unfit = "the arguments do not fit the tool's schema";
        if self.faults(&value, text.len()) > MOST_FAULTS {
            return Err(format!("{unfit}; they are too long to say where: try with less"));
        }
        let faults: Vec<String> = self
            .validator
            .iter_errors(&value)
            .take(NAMED)
            .map(|error| {
                let at = error.instance_path().to_string();
                let at = if at.is_empty() {
                    "the arguments".to_owned()
                } else {
                    format!("`{}`", shortened(&at))
                };
                format!("{at}: {}", shortened(&error.to_string()))
            })
            .collect();
        Err(format!("{unfit}: {}", faults.join("; ")))
    }

    /// Bytes that all faults together can take: each value of the schema finds at most one in each value of the
    /// arguments, and a fault holds a copy of the value and the paths to it.
    fn faults(&self, value: &Value, bytes: usize) -> usize {
        let (values, path) = extent(value);
        let each = FAULT + path + self.size.path;
        values.saturating_mul(each).saturating_add(bytes).saturating_mul(self.size.values)
    }
}

/// How many values there are, and the bytes of the longest path to one of them.
fn extent(value: &Value) -> (usize, usize) {
    let below = |(values, path): (usize, usize), (name, value): (usize, &Value)| {
        let (more, longest) = extent(value);
        (values + more, path.max(name + 1 + longest))
    };
    match value {
        Value::Array(items) => items.iter().map(|item| (8, item)).fold((1, 0), below),
        Value::Object(members) => {
            members.iter().map(|(key, value)| (key.len(), value)).fold((1, 0), below)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (1, 0),
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
    /// Checking with it could take too long.
    #[error("the schema of its arguments is more than is taken: {0}")]
    Excess(#[from] Excess),
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
        assert!(matches!(
            Arguments::new(r#"{"type":"object","properties":3}"#),
            Err(SchemaError::NotSchema(_))
        ));
        let outside =
            r#"{"type":"object","properties":{"a":{"$ref":"https://example.org/x.json"}}}"#;
        assert!(matches!(Arguments::new(outside), Err(SchemaError::Excess(Excess::Reference(_)))));
    }

    #[test]
    fn deep_nesting_is_an_answer_and_not_a_crash() {
        let arguments = Arguments::new(r#"{"type":"object"}"#).unwrap();
        assert!(arguments.check(&"[".repeat(100_000)).is_err());
    }

    /// Far more than any of these takes, and far less than what they ask for.
    const SOON: std::time::Duration = std::time::Duration::from_secs(20);

    #[test]
    fn hostile_schemas_are_refused_soon() {
        let began = std::time::Instant::now();
        let chain: Vec<String> = (1..=40)
            .map(|n| {
                format!(
                    r##""d{n}":{{"allOf":[{{"$ref":"#/$defs/d{0}"}},{{"$ref":"#/$defs/d{0}"}}]}}"##,
                    n - 1
                )
            })
            .collect();
        let doubling = format!(
            r##"{{"type":"object","$ref":"#/$defs/d40","$defs":{{"d0":{{}},{}}}}}"##,
            chain.join(",")
        );
        let large =
            r##"{"type":"object","properties":{"a":{"pattern":"((\\w{1,90}){1,90}){1,90}"}}}"##
                .to_owned();
        let many: Vec<String> = (0..1_000).map(|n| format!(r#""a{n}":{{}}"#)).collect();
        let many = format!(r#"{{"type":"object","patternProperties":{{{}}}}}"#, many.join(","));
        let long = format!(r#"{{"type":"object","title":"{}"}}"#, "x".repeat(MOST_TEXT));
        let tree = r##"{"type":"object","properties":{"a":{"$ref":"#"}}}"##.to_owned();
        for schema in [doubling, many, long, tree] {
            assert!(
                matches!(Arguments::new(&schema), Err(SchemaError::Excess(_))),
                "{}",
                shortened(&schema)
            );
        }
        assert!(matches!(Arguments::new(&large), Err(SchemaError::NotSchema(_))));
        assert!(began.elapsed() < SOON);
    }

    #[test]
    fn the_largest_schema_there_may_be_fits_on_the_stack() {
        let nested = (0..62).fold(r#"{"type":"object"}"#.to_owned(), |inner, _| {
            format!(r#"{{"allOf":[{inner}]}}"#)
        });
        let schema = format!(r#"{{"type":"object","not":{nested}}}"#);
        // Either is an answer: what matters is that there is one.
        if let Ok(arguments) = Arguments::new(&schema) {
            assert!(arguments.check("{}").is_err());
        }
    }

    #[test]
    fn arguments_that_are_too_long_for_their_schema_are_refused_unread() {
        let any: Vec<String> = (0..2_000).map(|n| format!(r#"{{"required":["r{n}"]}}"#)).collect();
        let arguments =
            Arguments::new(&format!(r#"{{"type":"object","allOf":[{}]}}"#, any.join(","))).unwrap();
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20));
        assert!(arguments.is_quick(&long), "it is refused at once");
        assert!(arguments.check(&long).unwrap_err().contains("ask for less"));
        assert!(!arguments.is_quick(&long[..10_000]));
    }

    #[test]
    fn faults_that_would_fill_the_memory_are_not_listed() {
        let any: Vec<String> = (0..20)
            .map(|n| format!(r#"{{"items":{{"minLength":{n},"type":"string"}}}}"#))
            .collect();
        let schema =
            format!(r#"{{"type":"object","properties":{{"a":{{"allOf":[{}]}}}}}}"#, any.join(","));
        let arguments = Arguments::new(&schema).unwrap();
        let wrong = |items: usize| format!(r#"{{"a":[{}1]}}"#, "1,".repeat(items));
        assert!(arguments.check(&wrong(200_000)).unwrap_err().contains("too long to say where"));
        assert!(arguments.check(&wrong(3)).unwrap_err().contains("`/a/0`"));
    }
}
