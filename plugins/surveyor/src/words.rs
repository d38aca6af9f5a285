//! Numbers, paths and tables as people read them in Markdown.

/// `1234567` as `1,234,567`.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 file`, `2 files`.
pub(crate) fn count(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(value), if value == 1 { one } else { many })
}

/// A number of bytes, such as `12.3 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1_023.95 {
            break;
        }
        value /= 1_024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// A share, such as `12 %`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0 %".to_owned();
    }
    match (part as f64 * 100.0 / whole as f64).round() {
        rounded if rounded < 1.0 && part > 0 => "< 1 %".to_owned(),
        rounded if rounded > 99.0 && part < whole => "> 99 %".to_owned(),
        rounded => format!("{rounded} %"),
    }
}

/// A text as code, whatever is in it: no control characters, on one line.
pub(crate) fn code(text: &str) -> String {
    let plain = plain(text);
    let mut fence = String::from("`");
    while plain.contains(&fence) {
        fence.push('`');
    }
    let space =
        if plain.starts_with('`') || plain.ends_with('`') || plain.is_empty() { " " } else { "" };
    format!("{fence}{space}{plain}{space}{fence}")
}

/// A text without what would change how the text around it is shown.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => plain.push(' '),
            // Marks that turn the direction of writing make a path look like another one.
            '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}'
            | '\u{feff}' => {
                plain.extend(c.escape_unicode());
            }
            c if c.is_control() => plain.extend(c.escape_default()),
            c => plain.push(c),
        }
    }
    plain
}

/// Words of a file, as words: nothing of it is taken for Markdown.
pub(crate) fn prose(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in plain(text).chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '~' | '&' | '!')
        {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}

/// The first `most` characters, and a mark when there are more.
pub(crate) fn first(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}

/// On which side of its column a value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A table with aligned columns.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new(columns: &[(&str, Side)]) -> Table {
        let columns = columns.iter().map(|(name, side)| ((*name).to_owned(), *side)).collect();
        Table { columns, rows: Vec::new() }
    }

    /// One more row. Missing values are empty.
    pub(crate) fn row(&mut self, values: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> =
            values.into_iter().map(|value| value.replace('|', "\\|")).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as Markdown.
    pub(crate) fn render(&self) -> String {
        let width = |place: usize| {
            let values = self.rows.iter().map(|row| row[place].chars().count());
            values.chain([self.columns[place].0.chars().count(), 3]).max().unwrap_or(3)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        self.line(&mut text, &widths, &names);
        text.push('|');
        for ((_, side), width) in self.columns.iter().zip(&widths) {
            text.push(' ');
            match side {
                Side::Left => text.push_str(&"-".repeat(*width)),
                Side::Right => {
                    text.push_str(&"-".repeat(width - 1));
                    text.push(':');
                }
            }
            text.push_str(" |");
        }
        text.push('\n');
        for row in &self.rows {
            let values: Vec<&str> = row.iter().map(String::as_str).collect();
            self.line(&mut text, &widths, &values);
        }
        text
    }

    fn line(&self, text: &mut String, widths: &[usize], values: &[&str]) {
        text.push('|');
        for (((_, side), width), value) in self.columns.iter().zip(widths).zip(values) {
            let gap = " ".repeat(width - value.chars().count());
            match side {
                Side::Left => text.push_str(&format!(" {value}{gap} |")),
                Side::Right => text.push_str(&format!(" {gap}{value} |")),
            }
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(
            [number(0), number(999), number(1_000), number(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [size(0), size(1_023), size(1_024), size(1_536)],
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB"]
        );
        assert_eq!([size((1 << 20) - 1), size(5 << 30)], ["1.0 MiB", "5.0 GiB"]);
        assert_eq!(
            [percent(0, 0), percent(1, 1_000), percent(999, 1_000), percent(1, 3)],
            ["0 %", "< 1 %", "> 99 %", "33 %"]
        );
        assert_eq!(count(1, "file", "files") + &count(2, " file", " files"), "1 file2  files");
    }

    #[test]
    fn odd_names_stay_one_piece_of_code() {
        assert_eq!(code("a b"), "`a b`");
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(code("`"), "`` ` ``");
        assert_eq!(code("a\nb\u{1b}[0m"), "`a\\nb\\u{1b}[0m`");
        assert_eq!(code("a\u{202e}b"), "`a\\u{202e}b`");
    }

    #[test]
    fn words_of_files_are_not_markdown() {
        assert_eq!(prose("*see* [x](y) <b>"), "\\*see\\* \\[x\\](y) \\<b\\>");
        assert_eq!(first("äöü", 2), "äö…");
    }

    #[test]
    fn a_table_is_aligned() {
        let mut table = Table::new(&[("Name", Side::Left), ("Files", Side::Right)]);
        assert!(table.is_empty());
        table.row(["a|b".to_owned(), "1".to_owned()]);
        table.row(["Ä".to_owned(), "12,345".to_owned()]);
        assert_eq!(
            table.render(),
            "| Name |  Files |\n\
             | ---- | -----: |\n\
             | a\\|b |      1 |\n\
             | Ä    | 12,345 |\n"
        );
    }
}
