//! Sets of names by pattern: which tools, models and agents are asked for and given.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::document::from_text;
use super::text::printable;

/// A name, or the beginning of one with a `*` at its end: `files_read`, `files_*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    /// The name, or its beginning.
    stem: String,
    /// Whether more may follow.
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum End {
    Exact,
    Open,
}

impl Pattern {
    /// Checks a pattern.
    ///
    /// # Errors
    /// When it is empty or too long, has a `*` elsewhere than at its end, or characters that no name has.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let (stem, end) = match text.strip_suffix('*') {
            Some(stem) => (stem, End::Open),
            None => (text, End::Exact),
        };
        let fits = !text.is_empty()
            && text.len() <= 128
            && stem.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '*' | '"' | '\\' | '`'));
        if fits {
            Ok(Pattern { stem: stem.to_owned(), end })
        } else {
            Err(PatternError { text: printable(text) })
        }
    }

    /// Whether the name is one of those meant.
    pub fn allows(&self, name: &str) -> bool {
        match self.end {
            End::Exact => name == self.stem,
            End::Open => name.starts_with(&self.stem),
        }
    }

    /// Whether every name that `other` means is meant here too.
    fn covers(&self, other: &Pattern) -> bool {
        match (self.end, other.end) {
            (End::Exact, End::Exact) => self.stem == other.stem,
            (End::Exact, End::Open) => false,
            (End::Open, End::Exact | End::Open) => other.stem.starts_with(&self.stem),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.stem)?;
        match self.end {
            End::Exact => Ok(()),
            End::Open => f.write_str("*"),
        }
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pattern, D::Error> {
        from_text(deserializer, "a name, or a pattern such as \"files_*\"", |text| {
            Pattern::parse(text).map_err(|error| error.to_string())
        })
    }
}

/// A set of names: those that at least one pattern means. The default means none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns(Vec<Pattern>);

impl Patterns {
    /// Every name.
    pub fn any() -> Patterns {
        Patterns(vec![Pattern { stem: String::new(), end: End::Open }])
    }

    /// Whether the name is one of those meant.
    pub fn allows(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.allows(name))
    }

    /// Whether no name at all is meant.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patterns, sorted, none inside another.
    pub fn iter(&self) -> impl Iterator<Item = &Pattern> {
        self.0.iter()
    }

    /// The names that both sets mean.
    #[must_use]
    pub fn meet(&self, other: &Patterns) -> Patterns {
        self.iter().flat_map(|one| other.part_of(one)).collect()
    }

    /// What this set has of one pattern. Of two patterns that share a name, one contains the other.
    pub(super) fn part_of(&self, pattern: &Pattern) -> Vec<Pattern> {
        self.0
            .iter()
            .filter_map(|own| match (own.covers(pattern), pattern.covers(own)) {
                (true, _) => Some(pattern.clone()),
                (false, true) => Some(own.clone()),
                (false, false) => None,
            })
            .collect()
    }
}

impl FromIterator<Pattern> for Patterns {
    fn from_iter<I: IntoIterator<Item = Pattern>>(patterns: I) -> Patterns {
        let mut patterns: Vec<Pattern> = patterns.into_iter().collect();
        // Sorted by stem and `a*` before `a`, a pattern is followed at once by all that it contains.
        patterns.sort_by(|a, b| a.stem.cmp(&b.stem).then(b.end.cmp(&a.end)));
        let mut kept: Vec<Pattern> = Vec::new();
        for pattern in patterns {
            if !kept.last().is_some_and(|last| last.covers(&pattern)) {
                kept.push(pattern);
            }
        }
        Patterns(kept)
    }
}

impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pattern) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            pattern.fmt(f)?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Patterns, D::Error> {
        deserializer.deserialize_any(Words)
    }
}

/// A list of patterns; `true` and `false` stand for all and none.
struct Words;

impl<'de> Visitor<'de> for Words {
    type Value = Patterns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a list of names such as [\"files_*\"], or true for all of them, or false for none",
        )
    }

    fn visit_bool<E: serde::de::Error>(self, all: bool) -> Result<Patterns, E> {
        Ok(if all { Patterns::any() } else { Patterns::default() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Patterns, A::Error> {
        let mut patterns = Vec::new();
        while let Some(pattern) = list.next_element::<Pattern>()? {
            patterns.push(pattern);
        }
        Ok(patterns.into_iter().collect())
    }
}

/// A text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a name or pattern; write a name, or its beginning and a `*` at the end")]
pub struct PatternError {
    /// The text, escaped.
    pub text: String,
}
