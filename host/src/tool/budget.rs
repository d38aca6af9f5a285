//! What a schema may cost, found out before anything is made of it.
//!
//! The validator keeps no notes: a subschema that is referred to twice is checked twice, and so a few lines can ask
//! for 2^40 checks. Here a schema is walked as the validator will walk it, every reference followed each time, and
//! refused when that is too much. Two things are refused whatever they cost. A schema that refers to itself, because
//! then the arguments decide how much the walk is; and a reference that is not a pointer into the schema itself.
//!
//! Every value counts, also those that no keyword leads to: too much is counted rather than too little.

use serde_json::Value;

/// Bytes of a schema's text.
pub(super) const MOST_TEXT: usize = 64 << 10;

/// Values of a schema with every reference followed.
const MOST_VALUES: usize = 10_000;

/// How deep they lie. The validator calls itself this deep, on a stack that is not ours to choose.
const MOST_DEPTH: usize = 128;

/// Patterns of a schema with every reference followed.
const MOST_PATTERNS: usize = 64;

/// Bytes of one pattern, and of one reference.
const LONGEST: usize = 1 << 10;

/// How often a schema may ask for what is left over (`unevaluatedItems`, `unevaluatedProperties`). Each can double
/// the work.
const MOST_LEFT_OVER: u32 = 4;

/// What a pattern costs for one byte, in checks of a value.
const PATTERN: usize = 64;

/// How large a schema is with every reference followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) values: usize,
    pub(super) patterns: usize,
    left_over: u32,
    /// Bytes of the longest path through it.
    pub(super) path: usize,
}

impl Size {
    /// What a byte of arguments costs to check, in checks of a value.
    pub(super) fn weight(&self) -> usize {
        (self.values + PATTERN * self.patterns) << self.left_over
    }
}

/// Measures a schema.
pub(super) fn measure(schema: &Value) -> Result<Size, Excess> {
    if let Some(dialect) = schema.get("$schema").and_then(Value::as_str)
        && dialect.contains("draft-04")
    {
        return Err(Excess::Dialect);
    }
    let mut walk = Walk { root: schema, size: Size::default(), following: Vec::new() };
    walk.value(schema, At { depth: 0, path: 0 })?;
    Ok(walk.size)
}

struct Walk<'a> {
    root: &'a Value,
    size: Size,
    /// The references that the walk is behind.
    following: Vec<&'a str>,
}

#[derive(Clone, Copy)]
struct At {
    depth: usize,
    path: usize,
}

impl At {
    fn below(self, name: usize) -> At {
        At { depth: self.depth + 1, path: self.path + name + 1 }
    }
}

impl<'a> Walk<'a> {
    fn value(&mut self, value: &'a Value, at: At) -> Result<(), Excess> {
        self.size.values += 1;
        self.size.path = self.size.path.max(at.path);
        if self.size.values > MOST_VALUES {
            return Err(Excess::Values);
        }
        if at.depth > MOST_DEPTH {
            return Err(Excess::Depth);
        }
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.value(item, at.below(4))),
            Value::Object(members) => members.iter().try_for_each(|(key, value)| {
                self.keyword(key, value, at)?;
                self.value(value, at.below(key.len()))
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn keyword(&mut self, key: &str, value: &'a Value, at: At) -> Result<(), Excess> {
        match (key, value) {
            ("$ref", Value::String(to)) => self.follow(to, at),
            ("$dynamicRef" | "$recursiveRef", Value::String(to)) => {
                Err(Excess::Reference(to.clone()))
            }
            // With a name of its own a part of the schema would be what its references start from.
            ("$id" | "$schema", Value::String(_)) if at.depth > 0 => Err(Excess::Named),
            ("pattern", Value::String(pattern)) => self.pattern(pattern),
            ("patternProperties", Value::Object(patterns)) => {
                patterns.keys().try_for_each(|pattern| self.pattern(pattern))
            }
            ("unevaluatedItems" | "unevaluatedProperties", _) => {
                self.size.left_over += 1;
                if self.size.left_over > MOST_LEFT_OVER { Err(Excess::LeftOver) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    fn follow(&mut self, to: &'a str, at: At) -> Result<(), Excess> {
        let nowhere = || Excess::Reference(to.chars().take(100).collect());
        // What is percent-encoded has two readings, and only one of them would be measured.
        let pointer = to
            .strip_prefix('#')
            .filter(|_| to.len() <= LONGEST && !to.contains('%'))
            .ok_or_else(nowhere)?;
        if self.following.contains(&pointer) {
            return Err(Excess::Recursive(pointer.to_owned()));
        }
        let target = self.root.pointer(pointer).ok_or_else(nowhere)?;
        self.following.push(pointer);
        self.value(target, at.below(to.len()))?;
        self.following.pop();
        Ok(())
    }

    fn pattern(&mut self, pattern: &str) -> Result<(), Excess> {
        self.size.patterns += 1;
        if self.size.patterns > MOST_PATTERNS || pattern.len() > LONGEST {
            Err(Excess::Patterns)
        } else {
            Ok(())
        }
    }
}

/// Why a schema is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Excess {
    /// Too much text.
    #[error("it has more than {MOST_TEXT} bytes")]
    Text,
    /// Too many values.
    #[error(
        "it has more than {MOST_VALUES} values, counting again at each reference what it leads to"
    )]
    Values,
    /// Too deep.
    #[error("it is more than {MOST_DEPTH} deep, counting what references lead to")]
    Depth,
    /// Too many patterns, or too long a one.
    #[error("it has more than {MOST_PATTERNS} patterns, or one of more than {LONGEST} bytes")]
    Patterns,
    /// Too often left over.
    #[error("it has more than {MOST_LEFT_OVER} `unevaluatedItems` and `unevaluatedProperties`")]
    LeftOver,
    /// It refers to itself.
    #[error("`#{0}` leads back to itself; write the levels out that the tool needs")]
    Recursive(String),
    /// A reference that is not followed.
    #[error("the reference `{0}` is not `#/…`, the plain path of a place in it")]
    Reference(String),
    /// A part of it has a name.
    #[error("a part of it has a `$id` or `$schema` of its own")]
    Named,
    /// An old one.
    #[error("it is written in draft 4; the oldest that is read is draft 6")]
    Dialect,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reference_counts_each_time_what_it_leads_to() {
        let once = measure(&json!({"$defs": {"a": {"type": "string", "pattern": "a"}}})).unwrap();
        let twice = json!({"$defs": {"a": {"type": "string", "pattern": "a"}},
            "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"$ref": "#/$defs/a"}}});
        let twice = measure(&twice).unwrap();
        assert_eq!((once.values, once.patterns), (5, 1));
        assert_eq!((twice.values, twice.patterns), (16, 3));
    }

    #[test]
    fn references_that_double_at_each_step_are_too_much() {
        let mut schema =
            json!({"type": "object", "$defs": {"d0": {"type": "object"}}, "$ref": "#/$defs/d40"});
        for n in 1..=40 {
            let below = json!({"$ref": format!("#/$defs/d{}", n - 1)});
            schema["$defs"][format!("d{n}")] = json!({"allOf": [below, below]});
        }
        assert_eq!(measure(&schema), Err(Excess::Values));
    }

    #[test]
    fn what_leads_back_to_itself_is_refused() {
        let tree = json!({"properties": {"left": {"$ref": "#"}}});
        assert_eq!(measure(&tree), Err(Excess::Recursive(String::new())));
        let far =
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"items": {"$ref": "#/$defs/a"}}}});
        assert!(matches!(measure(&far), Err(Excess::Recursive(_))));
        let around = json!({"$defs": {"a": {"items": {"$ref": "#/$defs"}}}});
        assert!(matches!(measure(&around), Err(Excess::Recursive(_))));
    }

    #[test]
    fn only_plain_paths_of_the_schema_itself_are_followed() {
        for to in
            ["https://example.org/x.json", "#anchor", "other#/a", "#/%24defs/a", "#/nowhere", "x"]
        {
            let schema = json!({"$defs": {"a": {}}, "properties": {"a": {"$ref": to}}});
            assert!(matches!(measure(&schema), Err(Excess::Reference(_))), "{to}");
        }
        assert!(matches!(measure(&json!({"$dynamicRef": "#meta"})), Err(Excess::Reference(_))));
        assert_eq!(
            measure(&json!({"$defs": {"a": {"$id": "https://example.org"}}})),
            Err(Excess::Named)
        );
        assert!(measure(&json!({"properties": {"$ref": {}, "$id": {}, "pattern": {}}})).is_ok());
    }

    #[test]
    fn a_chain_of_references_is_as_deep_as_it_is_long() {
        let mut schema = json!({"$defs": {"d0": {}}, "$ref": "#/$defs/d200"});
        for n in 1..=200 {
            schema["$defs"][format!("d{n}")] = json!({"$ref": format!("#/$defs/d{}", n - 1)});
        }
        assert_eq!(measure(&schema), Err(Excess::Depth));
    }

    #[test]
    fn patterns_are_counted_wherever_they_stand() {
        let many: serde_json::Map<String, Value> =
            (0..65).map(|n| (format!("p{n}"), json!({}))).collect();
        assert_eq!(measure(&json!({"patternProperties": many})), Err(Excess::Patterns));
        assert_eq!(measure(&json!({"pattern": "a".repeat(1_025)})), Err(Excess::Patterns));
        let left: Vec<Value> = (0..5).map(|_| json!({"unevaluatedItems": false})).collect();
        assert_eq!(measure(&json!({"allOf": left})), Err(Excess::LeftOver));
    }
}
