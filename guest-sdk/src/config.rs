//! From the operator's values to one typed configuration.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::Failure;

/// Reads all values into one type.
pub(crate) fn read<T: DeserializeOwned>(
    keys: Vec<String>,
    get: impl Fn(&str) -> Option<String>,
) -> Result<T, Failure> {
    let mut table = Map::new();
    for key in keys {
        if let Some(text) = get(&key) {
            let value: Value = serde_json::from_str(&text).map_err(|error| {
                Failure::invalid(format!("configuration `{key}` is not JSON: {error}"))
            })?;
            table.insert(key, value);
        }
    }
    serde_json::from_value(Value::Object(table)).map_err(|error| {
        Failure::invalid(format!(
            "the configuration of this plugin does not fit: {error}; see [configuration] in its plugin.toml"
        ))
    })
}
