//! The `[configuration]` table of a plugin, as the JSON values that its guest will read.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;

use super::text::printable;

/// Levels of lists and tables. A JSON parser in a guest stops at 128.
const DEEPEST: usize = 64;

/// The configuration of a plugin, by key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings(BTreeMap<String, Value>);

impl Settings {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// All keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// These settings, with the values of `other` in place of theirs, key by key.
    #[must_use]
    pub fn under(&self, other: &Settings) -> Settings {
        let mut all = self.0.clone();
        all.extend(other.0.iter().map(|(key, value)| (key.clone(), value.clone())));
        Settings(all)
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Settings, D::Error> {
        let table = toml::Table::deserialize(deserializer)?;
        let mut all = BTreeMap::new();
        for (key, value) in table {
            let value = json(value, DEEPEST).map_err(|why| {
                serde::de::Error::custom(format!(
                    "the value of `{}` cannot be handed to the plugin: {why}",
                    printable(&key)
                ))
            })?;
            all.insert(key, value);
        }
        Ok(Settings(all))
    }
}

fn json(value: toml::Value, levels: usize) -> Result<Value, &'static str> {
    let below = levels.checked_sub(1).ok_or("it is nested too deep");
    Ok(match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(whole) => Value::from(whole),
        toml::Value::Float(number) => serde_json::Number::from_f64(number)
            .map(Value::Number)
            .ok_or("JSON has no inf and no nan")?,
        toml::Value::Boolean(truth) => Value::Bool(truth),
        toml::Value::Datetime(time) => Value::String(time.to_string()),
        toml::Value::Array(list) => {
            let below = below?;
            Value::Array(
                list.into_iter().map(|value| json(value, below)).collect::<Result<_, _>>()?,
            )
        }
        toml::Value::Table(table) => {
            let below = below?;
            Value::Object(
                table
                    .into_iter()
                    .map(|(key, value)| Ok((key, json(value, below)?)))
                    .collect::<Result<_, &'static str>>()?,
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_become_json() {
        let settings: Settings =
            toml::from_str("a = 1\nb = [1.5, \"x\"]\nc = { d = true }\ne = 2024-05-01T10:00:00Z")
                .unwrap();
        let all: Vec<_> = settings.iter().map(|(key, value)| (key, value.clone())).collect();
        let expected = [
            ("a", json!(1)),
            ("b", json!([1.5, "x"])),
            ("c", json!({"d": true})),
            ("e", json!("2024-05-01T10:00:00Z")),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn what_json_does_not_have_is_refused() {
        for bad in ["a = nan", "a = -inf", &format!("a = {}1{}", "[".repeat(70), "]".repeat(70))] {
            assert!(toml::from_str::<Settings>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_operator_overrides_key_by_key() {
        let own: Settings = toml::from_str("a = 1\nb = { c = 1, d = 2 }").unwrap();
        let other: Settings = toml::from_str("b = { c = 3 }\ne = 4").unwrap();
        let all = own.under(&other);
        assert_eq!(all.get("a"), Some(&json!(1)));
        assert_eq!(all.get("b"), Some(&json!({"c": 3})));
        assert_eq!(all.get("e"), Some(&json!(4)));
    }
}
