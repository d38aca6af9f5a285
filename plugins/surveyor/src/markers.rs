//! Markers that people leave for later, in comments and texts.

use checkrein_guest::prelude::*;

use crate::languages::Use;
use crate::words;

/// A kind of marker. The order is that of urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Kind {
    /// Something is broken.
    Fixme,
    /// Something is dubious.
    Xxx,
    /// Something is done the wrong way.
    Hack,
    /// Something is missing.
    Todo,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Kind; 4] = [Kind::Fixme, Kind::Xxx, Kind::Hack, Kind::Todo];

    /// The word itself.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Fixme => "FIXME",
            Kind::Xxx => "XXX",
            Kind::Hack => "HACK",
            Kind::Todo => "TODO",
        }
    }
}

/// The expression for a line that may have a marker.
pub(crate) const PATTERN: &str = r"\b(?:FIXME|XXX|HACK|TODO)\b";

/// What starts a comment in one language or another.
const COMMENTS: &[&str] = &[
    "//", "/*", "#", "--", "<!--", ";", "%", "\"\"\"", "'''", "(*", "{-", "REM ", "rem ", "dnl ",
    "\\\"", "@c ",
];

/// A marker in a line: its kind, and what it says.
pub(crate) fn find(line: &str, used_for: Use) -> Option<(Kind, String)> {
    let mut from = 0;
    while let Some((start, kind)) = next(line, from) {
        let end = start + kind.word().len();
        from = end;
        let (before, after) = (&line[..start], &line[end..]);
        if is_marker(before, after, used_for) {
            return Some((kind, says(after)));
        }
    }
    None
}

fn next(line: &str, from: usize) -> Option<(usize, Kind)> {
    let places = Kind::ALL
        .iter()
        .filter_map(|kind| line[from..].find(kind.word()).map(|at| (from + at, *kind)));
    places.min()
}

fn is_marker(before: &str, after: &str, used_for: Use) -> bool {
    let is_part = |c: char| {
        c.is_alphanumeric() || matches!(c, '_' | '"' | '\'' | '`' | '\\' | '$' | '|' | '/' | '.')
    };
    // `TODO` in quotes, in a path or in a longer name is not one; nor is it in a list of such words.
    if before
        .chars()
        .next_back()
        .is_some_and(|c| is_part(c) && !before.ends_with("//") && !before.ends_with("\"\"\""))
    {
        return false;
    }
    if after.chars().next().is_some_and(|c| {
        c.is_alphanumeric() || matches!(c, '_' | '"' | '\'' | '`' | '|' | '/' | '=')
    }) {
        return false;
    }
    if before.ends_with('-') && !before.ends_with("--")
        || after.starts_with('-') && !after.starts_with("--")
    {
        return false;
    }
    let lead = before.trim_start();
    let bare = lead.is_empty()
        || lead.chars().all(|c| matches!(c, '*' | '-' | '+' | '>' | '[' | ']' | ' ' | '…'));
    match used_for {
        // In running text a marker is followed by what it means, or stands at the start.
        Use::Prose => {
            bare || after.starts_with(':') || after.starts_with('(') || lead.starts_with("<!--")
        }
        Use::Code | Use::Data => {
            // After an odd number of quotes it is part of a string.
            let quotes = before.matches('"').count() - before.matches("\\\"").count();
            if quotes % 2 == 1 && !before.contains("\"\"\"") {
                return false;
            }
            let lead_in = COMMENTS.iter().any(|comment| before.contains(comment));
            // The lines of a block comment often have no mark of their own.
            lead_in || bare && !after.trim_start().starts_with(['=', ',', ';', ')', '{'])
        }
    }
}

/// The words behind a marker, short and on one line.
fn says(after: &str) -> String {
    let text = after.trim_start_matches([':', '-', ' ', '.', '!', '\t']).trim_end();
    let text =
        text.trim_end_matches("*/").trim_end_matches("-->").trim_end_matches("\"\"\"").trim_end();
    words::first(text, 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(line: &str) -> Option<String> {
        find(line, Use::Code).map(|(kind, text)| format!("{}|{text}", kind.word()))
    }

    fn prose(line: &str) -> bool {
        find(line, Use::Prose).is_some()
    }

    #[test]
    fn markers_stand_in_comments() {
        assert_eq!(code("    // TODO: do it").as_deref(), Some("TODO|do it"));
        assert_eq!(code("x = 1 # FIXME(ann) wrong").as_deref(), Some("FIXME|(ann) wrong"));
        assert_eq!(code("/* XXX odd */").as_deref(), Some("XXX|odd"));
        assert_eq!(code(" * HACK").as_deref(), Some("HACK|"));
        assert_eq!(code("//TODO later").as_deref(), Some("TODO|later"));
        assert_eq!(code("-- TODO: sql").as_deref(), Some("TODO|sql"));
        assert_eq!(code("<!-- TODO html -->").as_deref(), Some("TODO|html"));
        assert_eq!(code("   TODO in a block comment").as_deref(), Some("TODO|in a block comment"));
        assert_eq!(code("// see \"TODO\", but FIXME: this").as_deref(), Some("FIXME|this"));
    }

    #[test]
    fn words_that_only_look_like_markers_are_none() {
        for line in [
            "let kinds = [\"TODO\", \"FIXME\"];",
            "TODO = 1",
            "const TODO: u8 = 1;",
            "// TODO_LIST",
            "mktemp /tmp/a.XXX # template",
            "// the TODO-list",
            "TODOS",
            "// a|TODO|b",
            "TODO,",
            "assert(find(\"// TODO: x\"));",
            "say(\"a \\\"// TODO: x\");",
        ] {
            assert_eq!(code(line), None, "{line}");
        }
    }

    #[test]
    fn running_text_speaks_about_markers_without_being_one() {
        assert!(prose("TODO: write this"));
        assert!(prose("- [ ] TODO write this"));
        assert!(prose("It works (FIXME: not always)."));
        assert!(!prose("The tool counts TODO markers in files."));
    }
}
