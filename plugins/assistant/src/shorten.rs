//! Long texts, made short with a word about how much is missing.

/// The text itself, or its beginning and its end with a note between that says how much was cut. The result has at
/// most about `most` bytes.
pub(crate) fn middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    // The beginning says what it is, so it gets the larger part.
    let room = most.saturating_sub(100);
    let head = floor(text, room / 3 * 2);
    let tail = ceil(text, text.len() - room / 3);
    let cut = tail - head;
    format!(
        "{}\n[... {cut} of {} bytes were cut out here; ask for a smaller part to see them ...]\n{}",
        &text[..head],
        text.len(),
        &text[tail..]
    )
}

/// The first line, free of control characters, with at most `most` characters.
pub(crate) fn line(text: &str, most: usize) -> String {
    let first = text.trim().lines().next().unwrap_or("");
    let mut short: String =
        first.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect();
    if first.chars().nth(most).is_some() || text.trim().len() > first.len() {
        short.push('…');
    }
    short
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn ceil(text: &str, at: usize) -> usize {
    (at..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_stays_as_it_is() {
        assert_eq!(middle("abc", 3), "abc");
        assert_eq!(line("abc", 3), "abc");
    }

    #[test]
    fn a_long_text_keeps_both_ends_and_says_what_is_missing() {
        let text = format!("start{}end", "ä€😀".repeat(1_000));
        for most in [1_000, 1_001, 1_002, 1_003, 1_004] {
            let short = middle(&text, most);
            assert!(short.len() <= most, "{}", short.len());
            assert!(short.starts_with("start") && short.ends_with("end"));
            let kept = short.split("\n[... ").next().map_or(0, str::len)
                + short.split(" ...]\n").nth(1).map_or(0, str::len);
            let note = format!("{} of {} bytes were cut out", text.len() - kept, text.len());
            assert!(short.contains(&note), "{short}");
        }
    }

    #[test]
    fn a_line_is_one_line_without_control_characters() {
        assert_eq!(line("  a\tb\u{1b}[0m\nsecond", 20), "a b [0m…");
        assert_eq!(line("äöü", 2), "äö…");
    }
}
