//! Texts as they stand on a terminal: made harmless, measured, in columns.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::Duration;

use checkrein::plugin::printable;

use super::code::Code;
use super::problem::Problem;

/// A foreign text with its line breaks, and without what would move the cursor or turn the writing.
pub(super) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' | ' '..='~' => out.push(character),
            _ => out.push_str(&printable(character.encode_utf8(&mut [0; 4]))),
        }
    }
    out
}

/// A foreign text in one line of at most `most` characters.
pub(super) fn line(text: &str, most: usize) -> String {
    let mut words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(most) {
        words.truncate(end);
        words.push('…');
    }
    shown(&words)
}

/// Bytes, as people read them.
pub(super) fn size(bytes: u64) -> String {
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

/// A number in groups of three digits.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time, as people read it.
pub(super) fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{seconds}.{} s", time.subsec_millis() / 100),
        60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        _ => format!("{}:{:02} h", seconds / 3600, seconds / 60 % 60),
    }
}

/// Rows in columns. The last column is as wide as it is.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if column + 1 < row.len() {
                line.extend(std::iter::repeat_n(' ', width(column) - cell.chars().count() + 2));
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Writes the result of a command to standard output. A reader that has gone wanted no more of it: that is no fault.
pub(super) fn print(text: &str) -> Result<(), Problem> {
    let mut out = io::stdout().lock();
    let written =
        if out.is_terminal() { write!(out, "{}", shown(text)) } else { write!(out, "{text}") };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Problem::because(Code::Failed, "could not write to standard output", error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_keeps_its_lines_and_loses_its_power_over_the_terminal() {
        assert_eq!(shown("a\tb\n\x1b[2Jü\r\u{202e}"), "a\tb\n\\u{1b}[2Jü\\u{d}\\u{202e}");
        assert_eq!(line("  a\n b\x07 ", 20), "a b\\u{7}");
        assert_eq!(line("äbcd", 3), "äbc…");
    }

    #[test]
    fn amounts_are_shown_as_people_write_them() {
        assert_eq!(
            [size(0), size(1023), size(1536), size(5 << 20)],
            ["0 B", "1023 B", "1.5 KiB", "5.0 MiB"]
        );
        assert_eq!([count(7), count(1000), count(1_234_567)], ["7", "1,000", "1,234,567"]);
        let seconds = |seconds| time(Duration::from_secs(seconds));
        assert_eq!(
            [seconds(0), seconds(3), seconds(65), seconds(3700)],
            ["0 ms", "3.0 s", "1:05 min", "1:01 h"]
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["ä", "b", "c"], vec!["long", "", "d e"], vec!["x", "y", ""]];
        let rows = rows.map(|row| row.into_iter().map(str::to_owned).collect());
        assert_eq!(columns(&rows), "ä     b  c\nlong     d e\nx     y\n");
    }
}
