//! Counting lines, words and characters of a text that comes in pieces.

/// The counts of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    /// Lines; the last one needs no line end.
    pub(crate) lines: u64,
    /// Lines with nothing but white space.
    pub(crate) blank: u64,
    /// Words: what stands between white space.
    pub(crate) words: u64,
    /// Characters, line ends included.
    pub(crate) characters: u64,
    /// The longest line in characters, without its end, and its number.
    pub(crate) longest: (u64, u64),
    /// Line ends by kind.
    pub(crate) lf: u64,
    pub(crate) crlf: u64,
    pub(crate) cr: u64,
    /// Characters of the line so far.
    length: u64,
    /// The line has something else than white space.
    full: bool,
    in_word: bool,
    /// A carriage return was the last character: the line feed after it belongs to it.
    after_cr: bool,
}

impl Counter {
    /// Counts the next piece of the text.
    pub(crate) fn push(&mut self, text: &str) {
        // Most texts are ASCII, and then a byte is a character.
        if text.is_ascii() {
            for byte in text.bytes() {
                self.character(char::from(byte));
            }
        } else {
            for character in text.chars() {
                self.character(character);
            }
        }
    }

    fn character(&mut self, character: char) {
        self.characters += 1;
        if character == '\n' {
            if self.after_cr {
                self.after_cr = false;
                self.crlf += 1;
            } else {
                self.lf += 1;
            }
            self.end_line();
            return;
        }
        if self.after_cr {
            // It stood alone, as on old Macs.
            self.after_cr = false;
            self.cr += 1;
            self.end_line();
        }
        if character == '\r' {
            self.after_cr = true;
            self.in_word = false;
            return;
        }
        self.length += 1;
        if character.is_whitespace() {
            self.in_word = false;
        } else {
            self.full = true;
            self.words += u64::from(!self.in_word);
            self.in_word = true;
        }
    }

    fn end_line(&mut self) {
        self.lines += 1;
        self.blank += u64::from(!self.full);
        if self.length > self.longest.0 {
            self.longest = (self.length, self.lines);
        }
        self.length = 0;
        self.full = false;
        self.in_word = false;
    }

    /// Counts what is left, and says whether the last line had an end.
    pub(crate) fn finish(&mut self) -> bool {
        if self.after_cr {
            self.after_cr = false;
            self.cr += 1;
            self.end_line();
        }
        let open = self.length > 0;
        if open {
            self.end_line();
        }
        !open && self.lines > 0
    }

    /// How the lines end, in a word.
    pub(crate) fn line_ends(&self) -> &'static str {
        match (self.lf, self.crlf, self.cr) {
            (0, 0, 0) => "none",
            (_, 0, 0) => "lf",
            (0, _, 0) => "crlf",
            (0, 0, _) => "cr",
            _ => "mixed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> Counter {
        let (mut whole, mut pieces) = (Counter::default(), Counter::default());
        whole.push(text);
        for character in text.chars() {
            pieces.push(&character.to_string());
        }
        assert_eq!(whole.finish(), pieces.finish());
        assert_eq!(whole, pieces, "pieces count as the whole does");
        whole
    }

    #[test]
    fn lines_words_and_characters_are_counted() {
        let counter = count("two words\n\n  \t\nünï çode\u{a0}x\nend");
        assert_eq!((counter.lines, counter.blank, counter.words), (5, 2, 6));
        assert_eq!((counter.characters, counter.longest), (30 - 1, (10, 4)));
    }

    #[test]
    fn a_last_line_counts_with_and_without_an_end() {
        assert_eq!(count("").lines, 0);
        assert_eq!(count("a").lines, 1);
        assert_eq!(count("a\n").lines, 1);
        assert_eq!(count("\n").lines, 1);
        assert_eq!(count("a\r").lines, 1);
        assert_eq!(count("a\r\n\r\n").lines, 2);
    }

    #[test]
    fn line_ends_are_told_apart() {
        let ends = |text| count(text).line_ends();
        assert_eq!(ends("a"), "none");
        assert_eq!(ends("a\nb\n"), "lf");
        assert_eq!(ends("a\r\nb\r\n"), "crlf");
        assert_eq!(ends("a\rb\r"), "cr");
        assert_eq!(ends("a\nb\r\n"), "mixed");
    }

    #[test]
    fn words_do_not_grow_together_across_lines() {
        assert_eq!(count("a\rb\nc\r\nd").words, 4);
    }
}
