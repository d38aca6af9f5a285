//! Reading TOML into types, with errors that name the place, the key and what was probably meant.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::text::{Place, nearest, printable};

/// Reads a whole document.
pub(super) fn read<T: DeserializeOwned>(text: &str, file: &Path) -> Result<T, DocumentError> {
    let table = parse(text, file)?;
    T::deserialize(toml::Deserializer::from(table)).map_err(|error| explain(text, file, &error))
}

/// Reads the part of a document at that path into a type; none when there is no such part.
pub(super) fn read_part<T: DeserializeOwned>(
    text: &str,
    file: &Path,
    path: &[&str],
) -> Result<Option<T>, DocumentError> {
    let (last, above) = match path.split_last() {
        Some(split) => split,
        None => return read(text, file).map(Some),
    };
    let mut table = parse(text, file)?.into_inner();
    for step in above {
        match table.remove(*step).map(Spanned::into_inner) {
            Some(DeValue::Table(below)) => table = below,
            _ => return Ok(None),
        }
    }
    let Some(value) = table.remove(*last) else { return Ok(None) };
    T::deserialize(toml::de::ValueDeserializer::from(value))
        .map(Some)
        .map_err(|error| explain(text, file, &error))
}

/// The place of a key or an element in a document that has been read before: keys by name, elements by number.
pub(super) fn locate(text: &str, file: &Path, path: &[&str]) -> Place {
    let mut offset = 0;
    if let Ok(table) = DeTable::parse(text) {
        let mut table = Some(table.get_ref());
        let mut array = None;
        for step in path {
            let value: Option<&Spanned<DeValue<'_>>> = match (table, array) {
                (Some(table), _) => table.get_key_value(*step).map(|(key, value)| {
                    offset = key.span().start;
                    value
                }),
                (None, Some(array)) => {
                    let array: &toml::de::DeArray<'_> = array;
                    step.parse::<usize>().ok().and_then(|index| array.get(index)).inspect(|value| {
                        offset = value.span().start;
                    })
                }
                (None, None) => None,
            };
            table = value.and_then(|value| value.get_ref().as_table());
            array = value.and_then(|value| value.get_ref().as_array());
        }
    }
    let steps = path.iter().map(|step| step.parse().map_or_else(|_| Step::key(step), Step::Index));
    Place::of(file, text, offset).with_key(joined(&steps.collect::<Vec<_>>()))
}

/// Whether a document has that key.
pub(super) fn stands(text: &str, key: &[&str]) -> bool {
    let Ok(document) = DeTable::parse(text) else { return false };
    let (mut table, mut found) = (Some(document.get_ref()), false);
    for step in key {
        let value = table.and_then(|table| table.get(*step));
        found = value.is_some();
        table = value.and_then(|value| value.get_ref().as_table());
    }
    found
}

/// One step of the way to a value.
#[derive(Debug, Clone)]
enum Step {
    /// A key, as it can be written.
    Key(String),
    /// A place in an array, from 0.
    Index(usize),
}

impl Step {
    fn key(name: &str) -> Step {
        let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_bare = !name.is_empty() && name.chars().all(bare);
        let name = printable(name);
        Step::Key(if is_bare { name } else { format!("\"{name}\"") })
    }
}

/// The way as people write it; none for the document itself.
fn joined(steps: &[Step]) -> Option<String> {
    let mut all = String::new();
    for step in steps {
        match step {
            Step::Key(key) if all.is_empty() => all.push_str(key),
            Step::Key(key) => all.extend([".", key]),
            Step::Index(index) => all.push_str(&format!("[{index}]")),
        }
    }
    Some(all).filter(|all| !all.is_empty())
}

/// The way to what stands exactly there: a key, or a value.
fn way_to(text: &str, span: &Range<usize>) -> Vec<Step> {
    let Ok(document) = DeTable::parse(text) else { return Vec::new() };
    let mut way = Vec::new();
    in_table(document.get_ref(), span, &mut way);
    way
}

/// Whether it is in that table; then the way is longer.
fn in_table(table: &DeTable<'_>, span: &Range<usize>, way: &mut Vec<Step>) -> bool {
    table.iter().any(|(key, value)| {
        way.push(Step::key(key.get_ref()));
        let found = key.span() == *span || in_value(value, span, way);
        if !found {
            way.pop();
        }
        found
    })
}

fn in_value(value: &Spanned<DeValue<'_>>, span: &Range<usize>, way: &mut Vec<Step>) -> bool {
    if value.span() == *span {
        return true;
    }
    if let Some(table) = value.get_ref().as_table() {
        return in_table(table, span, way);
    }
    let Some(array) = value.get_ref().as_array() else { return false };
    array.iter().enumerate().any(|(index, value)| {
        way.push(Step::Index(index));
        let found = in_value(value, span, way);
        if !found {
            way.pop();
        }
        found
    })
}

fn parse<'t>(text: &'t str, file: &Path) -> Result<Spanned<DeTable<'t>>, DocumentError> {
    DeTable::parse(text).map_err(|error| DocumentError::Syntax {
        place: place(text, file, &error),
        reason: printable(error.message()),
    })
}

fn place(text: &str, file: &Path, error: &toml::de::Error) -> Place {
    Place::of(file, text, error.span().map_or(0, |span| span.start))
}

/// Turns what serde says into something that people can act on. serde reports an unknown key only as text, so
/// the text is taken apart here; `unknown_keys_are_taken_apart` fails when its wording changes.
fn explain(text: &str, file: &Path, error: &toml::de::Error) -> DocumentError {
    let way = error.span().map_or_else(Vec::new, |span| way_to(text, &span));
    let place = place(text, file, error).with_key(joined(&way));
    let message = error.message();
    if let Some((key, expected)) = unknown(message, "unknown field `") {
        let hint = hint(&key, &expected);
        return DocumentError::UnknownKey { place, key: printable(&key), hint };
    }
    if let Some((word, expected)) = unknown(message, "unknown variant `") {
        let reason = format!("`{}` is not known here{}", printable(&word), hint(&word, &expected));
        return DocumentError::Invalid { place, reason };
    }
    if let Some(key) =
        message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'))
    {
        let whole = way.into_iter().chain([Step::key(key)]).collect::<Vec<_>>();
        let place = place.with_key(joined(&whole));
        return DocumentError::MissingKey { place, key: printable(key) };
    }
    DocumentError::Invalid { place, reason: printable(message) }
}

/// The unknown word and the words that are known in its place.
fn unknown(message: &str, start: &str) -> Option<(String, Vec<String>)> {
    let rest = message.strip_prefix(start)?;
    // The last one: the word itself was written by somebody else and may contain anything.
    let (word, expected) = match rest.rfind("`, expected ") {
        Some(end) => (&rest[..end], &rest[end + 2..]),
        None => (&rest[..rest.rfind('`')?], ""),
    };
    let expected = expected.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    Some((word.to_owned(), expected))
}

fn hint(word: &str, expected: &[String]) -> String {
    match nearest(word, expected.iter().map(String::as_str)) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if expected.is_empty() => "; nothing can stand here".to_owned(),
        None => format!("; known here: {}", expected.join(", ")),
    }
}

/// Reads a value from a text, or says why it cannot.
type Parse<T> = fn(&str) -> Result<T, String>;

/// Reads a value from a number, or says why it cannot.
type Whole<T> = fn(u64) -> Result<T, String>;

/// Deserialises from a text. What `parse` refuses is reported at the place of the text.
pub(super) fn from_text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expecting: &'static str,
    parse: Parse<T>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Scalar {
        expecting,
        text: Some(parse),
        whole: None,
        kind: PhantomData,
    })
}

/// Deserialises from a number that is not negative.
pub(super) fn from_whole<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expecting: &'static str,
    whole: Whole<T>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Scalar {
        expecting,
        text: None,
        whole: Some(whole),
        kind: PhantomData,
    })
}

/// Deserialises from a text or from a number that is not negative.
pub(super) fn from_text_or_whole<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expecting: &'static str,
    text: Parse<T>,
    whole: Whole<T>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Scalar {
        expecting,
        text: Some(text),
        whole: Some(whole),
        kind: PhantomData,
    })
}

/// Deserialises a struct from a table only. By itself serde also takes an array, field by field in their order.
pub(super) fn table<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Strict::deserialize(deserializer).map(|table| table.0)
}

/// Deserialises a list of structs, each from a table only.
pub(super) fn tables<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let list = Vec::<Strict<T>>::deserialize(deserializer)?;
    Ok(list.into_iter().map(|table| table.0).collect())
}

/// Deserialises structs by name, each from a table only.
pub(super) fn named_tables<'de, D, K, T>(deserializer: D) -> Result<BTreeMap<K, T>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
    T: Deserialize<'de>,
{
    let all = BTreeMap::<K, Strict<T>>::deserialize(deserializer)?;
    Ok(all.into_iter().map(|(name, table)| (name, table.0)).collect())
}

struct Strict<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Strict<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict<T>, D::Error> {
        deserializer.deserialize_map(OnlyTable(PhantomData))
    }
}

struct OnlyTable<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyTable<T> {
    type Value = Strict<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Strict<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Strict)
    }
}

struct Scalar<T> {
    expecting: &'static str,
    text: Option<Parse<T>>,
    whole: Option<Whole<T>>,
    kind: PhantomData<T>,
}

impl<T> Visitor<'_> for Scalar<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<T, E> {
        match self.text {
            Some(parse) => parse(value).map_err(E::custom),
            None => Err(E::invalid_type(serde::de::Unexpected::Str(&printable(value)), &self)),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<T, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::custom(format!("{value} is below zero; expected {}", self.expecting))),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<T, E> {
        match self.whole {
            Some(whole) => whole(value).map_err(E::custom),
            None => Err(E::invalid_type(serde::de::Unexpected::Unsigned(value), &self)),
        }
    }
}

impl DocumentError {
    /// Where.
    pub fn place(&self) -> &Place {
        match self {
            DocumentError::Syntax { place, .. }
            | DocumentError::UnknownKey { place, .. }
            | DocumentError::MissingKey { place, .. }
            | DocumentError::Invalid { place, .. } => place,
        }
    }
}

/// Why a document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// It is not TOML: mend the text.
    #[error("{place}: this is not TOML: {reason}")]
    Syntax {
        /// Where.
        place: Place,
        /// What the parser says.
        reason: String,
    },
    /// Nobody reads that key: remove or rename it.
    #[error("{}: unknown key `{key}`{hint}", .place.position())]
    UnknownKey {
        /// Where.
        place: Place,
        /// The key, escaped.
        key: String,
        /// What was probably meant, or what is known.
        hint: String,
    },
    /// A key that must be there is not: add it.
    #[error("{}: the key `{key}` is missing here; add it", .place.position())]
    MissingKey {
        /// The table that lacks it, with the whole key.
        place: Place,
        /// The key.
        key: String,
    },
    /// A value does not fit: change it.
    #[error("{place}: {reason}")]
    Invalid {
        /// Where.
        place: Place,
        /// What is wrong with it, escaped.
        reason: String,
    },
}

/// What cannot be done, and where it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub(super) place: Option<Place>,
    pub(super) reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for Refusal {}
