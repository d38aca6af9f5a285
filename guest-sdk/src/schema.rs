//! From a Rust type to the JSON Schema that a model reads.

use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde_json::{Value, json};

/// The schema of the arguments as JSON text: an object schema, subschemas in place, nothing that a model need not read.
pub(crate) fn of<T: JsonSchema>() -> String {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = None;
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // What the tool does stands in its own description; the struct's would say it again, in every request.
    schema.remove("title");
    schema.remove("description");
    RecursiveTransform(drop_number_formats).transform(&mut schema);
    // Several model services refuse an object schema without properties.
    if schema.get("type") == Some(&json!("object")) && schema.get("properties").is_none() {
        schema.insert("properties".to_owned(), json!({}));
    }
    Value::from(schema).to_string()
}

/// `uint32` and its like are no formats of JSON Schema; the bounds beside them say the same.
fn drop_number_formats(schema: &mut Schema) {
    let numeric = schema.get("format").and_then(Value::as_str).is_some_and(|format| {
        format.starts_with("uint")
            || format.starts_with("int")
            || matches!(format, "float" | "double")
    });
    if numeric {
        schema.remove("format");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoArguments;

    /// Not for models.
    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is used")]
    struct Arguments {
        /// The file to read.
        path: String,
        /// How many lines.
        lines: Option<u32>,
        /// Where to start.
        #[schemars(default)]
        start: Start,
    }

    #[derive(JsonSchema, Default, serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    #[allow(dead_code, reason = "only its schema is used")]
    enum Start {
        #[default]
        Top,
        Bottom,
    }

    #[test]
    fn doc_comments_become_descriptions_and_subschemas_stand_in_place() {
        let schema: Value = serde_json::from_str(&of::<Arguments>()).unwrap();
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["required"], json!(["path"]));
        assert_eq!(
            schema["properties"]["path"],
            json!({"type": "string", "description": "The file to read."})
        );
        assert_eq!(
            schema["properties"]["lines"],
            json!({"type": ["integer", "null"], "minimum": 0, "description": "How many lines."})
        );
        assert_eq!(schema["properties"]["start"]["enum"], json!(["top", "bottom"]));
        let text = schema.to_string();
        assert!(
            !text.contains("$ref") && !text.contains("$schema") && !text.contains("title"),
            "{text}"
        );
    }

    #[test]
    fn no_arguments_are_an_object_schema_too() {
        let schema: Value = serde_json::from_str(&of::<NoArguments>()).unwrap();
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["properties"], json!({}));
    }
}
