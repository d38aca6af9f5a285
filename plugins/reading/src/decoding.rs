//! How to read the text of a file whose encoding is known.

use encoding_rs::{CoderResult, Decoder, Encoding, UTF_8, UTF_16BE, UTF_16LE};
use memchr::memchr;

/// An encoding, and how it was learnt.
#[derive(Debug, Clone, Copy)]
pub struct Decoding {
    encoding: &'static Encoding,
    /// Bytes at the very beginning that only mark the encoding.
    bom: usize,
    guessed: bool,
}

/// A piece of a file, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The text.
    pub text: String,
    /// Some bytes meant nothing in this encoding and became U+FFFD.
    pub replaced: bool,
}

impl Decoding {
    /// An encoding that needs no further word.
    pub(crate) fn plain(encoding: &'static Encoding) -> Decoding {
        Decoding { encoding, bom: 0, guessed: false }
    }

    /// An encoding that the file itself names by its first `bom` bytes.
    pub(crate) fn marked(encoding: &'static Encoding, bom: usize) -> Decoding {
        Decoding { encoding, bom, guessed: false }
    }

    /// An encoding that only seems likely.
    pub(crate) fn guessed(encoding: &'static Encoding) -> Decoding {
        Decoding { encoding, bom: 0, guessed: true }
    }

    /// The encoding of that name (any name that web browsers know), for a file that begins with `sample`.
    pub fn named(label: &str, sample: &[u8]) -> Option<Decoding> {
        let encoding = Encoding::for_label(label.trim().as_bytes())?;
        let bom = Encoding::for_bom(sample)
            .filter(|(marked, _)| *marked == encoding)
            .map_or(0, |(_, bom)| bom);
        Some(Decoding::marked(encoding, bom))
    }

    /// UTF-8 without a mark.
    pub fn utf8() -> Decoding {
        Decoding::plain(UTF_8)
    }

    /// The name of the encoding, in lower case.
    pub fn name(&self) -> String {
        self.encoding.name().to_ascii_lowercase()
    }

    /// The name, and how it was learnt where that is worth a word.
    pub fn describe(&self) -> String {
        let how = match (self.bom, self.guessed) {
            (0, false) => "",
            (0, true) => " (guessed)",
            _ => " (byte order mark)",
        };
        format!("{}{how}", self.name())
    }

    /// Whether the bytes are UTF-8 and can be taken as they are.
    pub fn is_utf8(&self) -> bool {
        self.encoding == UTF_8
    }

    /// How many bytes at the very beginning of the file are not text.
    pub fn bom(&self) -> usize {
        self.bom
    }

    /// The smallest number of bytes that a character has: two in UTF-16.
    pub fn unit(&self) -> usize {
        if self.encoding == UTF_16LE || self.encoding == UTF_16BE { 2 } else { 1 }
    }

    /// Where the first line of `bytes` ends: the place after its `\n`. In UTF-16 `bytes` starts at a unit.
    pub fn newline(&self, bytes: &[u8]) -> Option<usize> {
        if self.unit() == 1 {
            return memchr(b'\n', bytes).map(|at| at + 1);
        }
        let newline = if self.encoding == UTF_16LE { [b'\n', 0] } else { [0, b'\n'] };
        bytes.chunks_exact(2).position(|unit| unit == newline).map(|at| at * 2 + 2)
    }

    /// How many line ends there are in `bytes`.
    pub fn newlines(&self, bytes: &[u8]) -> usize {
        if self.unit() == 1 {
            return memchr::memchr_iter(b'\n', bytes).count();
        }
        let newline = if self.encoding == UTF_16LE { [b'\n', 0] } else { [0, b'\n'] };
        bytes.chunks_exact(2).filter(|unit| *unit == newline).count()
    }

    /// The longest beginning of `bytes` that does not end within a character. Encodings other than UTF-8 and
    /// UTF-16 cannot be told in the middle; there it is everything.
    pub fn whole_characters(&self, bytes: &[u8]) -> usize {
        if self.unit() == 2 {
            let even = bytes.len() & !1;
            let last = even
                .checked_sub(2)
                .map(|at| if self.encoding == UTF_16LE { bytes[at + 1] } else { bytes[at] });
            let high_surrogate = last.is_some_and(|byte| matches!(byte, 0xd8..=0xdb));
            return if high_surrogate { even - 2 } else { even };
        }
        if !self.is_utf8() {
            return bytes.len();
        }
        // A character has at most four bytes, so its first one is among the last three if it is cut.
        let tail = bytes.len().saturating_sub(3);
        for at in (tail..bytes.len()).rev() {
            let needed = match bytes[at] {
                0x80..=0xbf => continue,
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 1,
            };
            return if bytes.len() - at < needed { at } else { bytes.len() };
        }
        bytes.len()
    }

    /// How many bytes at the start of `bytes` belong to a character that began before.
    pub fn continued(&self, bytes: &[u8]) -> usize {
        if !self.is_utf8() {
            return 0;
        }
        bytes.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xbf)).count()
    }

    /// Decodes bytes from the middle of the file, all at once.
    pub fn decode(&self, bytes: &[u8]) -> Piece {
        let (text, replaced) = self.encoding.decode_without_bom_handling(bytes);
        Piece { text: text.into_owned(), replaced }
    }

    /// The text in this encoding; none where it has characters that the encoding lacks.
    pub fn encode(&self, text: &str) -> Option<Vec<u8>> {
        if self.unit() == 2 {
            let bytes = |unit: u16| {
                if self.encoding == UTF_16LE { unit.to_le_bytes() } else { unit.to_be_bytes() }
            };
            return Some(text.encode_utf16().flat_map(bytes).collect());
        }
        let (bytes, _, unmappable) = self.encoding.encode(text);
        (!unmappable).then(|| bytes.into_owned())
    }

    /// Decodes a file from its beginning, piece by piece.
    pub fn stream(&self) -> Stream {
        Stream { decoder: self.encoding.new_decoder_with_bom_removal(), replaced: false }
    }
}

/// Decodes consecutive pieces of one file, also where characters lie across their borders.
#[derive(Debug)]
pub struct Stream {
    decoder: Decoder,
    replaced: bool,
}

impl Stream {
    /// Appends the text of `bytes` to `text`. `whole` is [`crate::Whole::Yes`] for the last piece.
    pub fn push(&mut self, bytes: &[u8], whole: crate::Whole, text: &mut String) {
        let mut rest = bytes;
        loop {
            text.reserve(
                self.decoder.max_utf8_buffer_length(rest.len()).unwrap_or(rest.len() * 3 + 16),
            );
            let (result, read, replaced) =
                self.decoder.decode_to_string(rest, text, whole == crate::Whole::Yes);
            self.replaced |= replaced;
            rest = &rest[read..];
            if result == CoderResult::InputEmpty {
                return;
            }
        }
    }

    /// Whether some bytes so far meant nothing and became U+FFFD.
    pub fn replaced(&self) -> bool {
        self.replaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Whole;

    #[test]
    fn lines_are_found_in_raw_utf16() {
        let little = Decoding::plain(UTF_16LE);
        // U+0A00 has the byte of a newline in the wrong place.
        let bytes = little.encode("\u{a00}a\nb").expect("encodable");
        assert_eq!(little.newline(&bytes), Some(6));
        assert_eq!(little.newlines(&bytes), 1);
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let text = "aä€😀";
        let utf8 = Decoding::utf8();
        for end in 0..=text.len() {
            let kept = utf8.whole_characters(&text.as_bytes()[..end]);
            assert!(text.is_char_boundary(kept) && end - kept < 4, "{end} {kept}");
        }
        let wide = Decoding::plain(UTF_16BE);
        let bytes = wide.encode(text).expect("encodable");
        for end in 0..=bytes.len() {
            let piece = wide.decode(&bytes[..wide.whole_characters(&bytes[..end])]);
            assert!(!piece.replaced && text.starts_with(&piece.text), "{end}");
        }
    }

    #[test]
    fn a_stream_joins_characters_across_pieces() {
        let text = "aä€😀\n";
        for decoding in
            [Decoding::utf8(), Decoding::plain(UTF_16LE), Decoding::plain(encoding_rs::GB18030)]
        {
            let (mut stream, mut decoded) = (decoding.stream(), String::new());
            let bytes = decoding.encode(text).expect("encodable");
            for byte in &bytes {
                stream.push(&[*byte], Whole::No, &mut decoded);
            }
            stream.push(&[], Whole::Yes, &mut decoded);
            assert_eq!((decoded.as_str(), stream.replaced()), (text, false));
        }
    }

    #[test]
    fn wrong_bytes_are_replaced_and_said() {
        let piece = Decoding::utf8().decode(b"a\xffb");
        assert_eq!((piece.text.as_str(), piece.replaced), ("a\u{fffd}b", true));
    }

    #[test]
    fn encoding_refuses_what_it_cannot_say() {
        let latin = Decoding::named("latin1", b"").expect("known");
        assert_eq!(latin.encode("ö").as_deref(), Some(&[0xf6][..]));
        assert_eq!(latin.encode("漢"), None);
    }
}
