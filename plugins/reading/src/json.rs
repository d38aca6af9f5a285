//! How long a text becomes as JSON, so that answers stay below what may cross the door.

/// The length of `text` as a JSON string, quotes included.
pub fn json_len(text: &str) -> usize {
    let extra = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..=0x1f => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(extra).sum::<usize>() + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_counted() {
        assert_eq!(json_len("plain"), 7);
        assert_eq!(json_len("a\"b\n\u{1}"), 2 + 1 + 2 + 1 + 2 + 6);
        assert_eq!(json_len("é"), 4);
    }
}
