//! Words about texts that others wrote: where something stands, how it is shown, what was probably meant.

use std::fmt;
use std::path::{Path, PathBuf};

/// Characters of a foreign text that an error shows.
const SHOWN: usize = 160;

/// Keys longer than this are not compared: nobody mistyped one of ours.
const COMPARED: usize = 48;

/// A position in a file, counted from 1, and what stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, as it was named.
    pub file: PathBuf,
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
    /// The key, with those of the tables that it is in: `plugins.http.limits.memory`. None for a place that belongs to no key.
    pub key: Option<String>,
}

impl Place {
    /// The place of a byte offset; the end of the text for an offset behind it.
    pub(super) fn of(file: &Path, text: &str, offset: usize) -> Place {
        let mut end = offset.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &text[..end];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            key: None,
        }
    }

    /// The same place, as that of a key.
    pub(super) fn with_key(self, key: Option<String>) -> Place {
        Place { key, ..self }
    }

    /// The position alone, for words that name the key themselves.
    pub(super) fn position(&self) -> String {
        format!("{}:{}:{}", shown(&self.file), self.line, self.column)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.position())?;
        match &self.key {
            Some(key) => write!(f, ": `{key}`"),
            None => Ok(()),
        }
    }
}

/// A foreign text as it may stand in an error or on a terminal: control characters and those that turn the
/// direction of writing are escaped, and a long text is cut.
pub fn printable(text: &str) -> String {
    let mut out = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == SHOWN {
            out.push('…');
            break;
        }
        if is_plain(character) {
            out.push(character);
        } else {
            out.extend(character.escape_unicode());
        }
    }
    out
}

/// A path as it may stand in an error or on a terminal. Paths are not cut.
pub(super) fn shown(path: &Path) -> String {
    let mut out = String::new();
    for character in path.to_string_lossy().chars() {
        if is_plain(character) {
            out.push(character);
        } else {
            out.extend(character.escape_unicode());
        }
    }
    out
}

/// Shows as one sign and does nothing to its neighbours.
pub(super) fn is_plain(character: char) -> bool {
    !character.is_control()
        && !matches!(character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The candidate that was probably meant, if one is near enough.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let length = word.chars().count();
    if length > COMPARED {
        return None;
    }
    let bound = (length / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter(|candidate| candidate.chars().count() <= COMPARED)
        .map(|candidate| {
            (distance(&word.to_lowercase().replace('_', "-"), &candidate.to_lowercase()), candidate)
        })
        .filter(|(distance, _)| *distance <= bound)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().collect();
    let to: Vec<char> = to.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        let text = "a = 1\nä = 2\n";
        let at = |offset| {
            let place = Place::of(Path::new("f"), text, offset);
            (place.line, place.column)
        };
        assert_eq!(
            [at(0), at(4), at(6), at(8), at(7), at(999)],
            [(1, 1), (1, 5), (2, 1), (2, 2), (2, 1), (3, 1)]
        );
    }

    #[test]
    fn foreign_text_is_shown_without_its_control_characters_and_not_in_full() {
        assert_eq!(printable("a\x1b[31mb\u{202e}c\n"), "a\\u{1b}[31mb\\u{202e}c\\u{a}");
        assert_eq!(printable(&"x".repeat(1000)).chars().count(), SHOWN + 1);
        assert_eq!(printable("grüße, 世界"), "grüße, 世界");
    }

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        let keys = ["memory", "model-tokens", "log-bytes"];
        assert_eq!(nearest("memroy", keys), Some("memory"));
        assert_eq!(nearest("log_bytes", keys), Some("log-bytes"));
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest(&"m".repeat(5000), keys), None);
    }
}
