//! A look at the beginning of a file: is it text, and in which encoding?

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

use crate::Decoding;

/// What the beginning of a file says about the whole.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    /// Not text. The words say what it is, as far as its first bytes tell: `PNG image`, or `binary data`.
    Binary(&'static str),
    /// Text, and how to read it.
    Text(Decoding),
}

/// Whether a sample is everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// There are no other bytes.
    Yes,
    /// More bytes follow, so that the last character may be cut.
    No,
}

/// First bytes of formats that people meet. Those that begin with a letter need further proof that they are binary.
const MAGIC: &[(&[u8], &str)] = &[
    (b"\x89PNG\r\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"RIFF", "RIFF media (WebP, WAV, AVI)"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive, or a format built on it"),
    (b"\x1f\x8b", "gzip data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"BZh", "bzip2 data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip archive"),
    (b"\x7fELF", "ELF program or library"),
    (b"\0asm", "WebAssembly"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (b"MZ", "Windows program"),
    (b"!<arch>\n", "archive of object files"),
    (b"wOF", "font"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"fLaC", "FLAC audio"),
    (b"\xff\xfe\0\0", "UTF-32 text, which is not read here"),
    (b"\0\0\xfe\xff", "UTF-32 text, which is not read here"),
];

/// Looks at `sample`, the first bytes of a file.
pub fn look(sample: &[u8], whole: Whole) -> Content {
    let magic = MAGIC.iter().find(|(magic, _)| sample.starts_with(magic));
    let binary = Content::Binary(magic.map_or("binary data", |(_, name)| name));
    if magic.is_some_and(|(magic, _)| *magic == b"%PDF-" || !magic[0].is_ascii_graphic()) {
        return binary;
    }
    if let Some((encoding, bom)) = Encoding::for_bom(sample) {
        return Content::Text(Decoding::marked(encoding, bom));
    }
    if let Some(encoding) = utf16_without_mark(sample, whole) {
        return Content::Text(Decoding::guessed(encoding));
    }
    if sample.contains(&0) || is_full_of_controls(sample) {
        return binary;
    }
    Content::Text(eight_bits(sample, whole))
}

/// UTF-16 of mostly Latin text has a zero in every other byte, and none in the rest.
fn utf16_without_mark(sample: &[u8], whole: Whole) -> Option<&'static Encoding> {
    let pairs = sample.len() / 2;
    if pairs < 4 || whole == Whole::Yes && sample.len() % 2 == 1 {
        return None;
    }
    let zeros = |offset: usize| {
        sample[..pairs * 2].iter().skip(offset).step_by(2).filter(|byte| **byte == 0).count()
    };
    match (zeros(0), zeros(1)) {
        (0, odd) if odd * 2 > pairs => Some(UTF_16LE),
        (even, 0) if even * 2 > pairs => Some(UTF_16BE),
        _ => None,
    }
}

/// More than one byte in twenty is a control character that texts do not have.
fn is_full_of_controls(sample: &[u8]) -> bool {
    let odd = |byte: &&u8| matches!(**byte, 0..=7 | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f);
    sample.iter().filter(odd).count() * 20 > sample.len()
}

/// UTF-8 as long as that explains more bytes than it leaves unexplained; else what the letters look like.
fn eight_bits(sample: &[u8], whole: Whole) -> Decoding {
    let (mut explained, mut unexplained) = (0_usize, 0_usize);
    let mut end = 0;
    for chunk in sample.utf8_chunks() {
        explained += chunk.valid().bytes().filter(|byte| !byte.is_ascii()).count();
        end += chunk.valid().len() + chunk.invalid().len();
        let cut = end == sample.len() && whole == Whole::No;
        if !chunk.invalid().is_empty() && !cut {
            unexplained += chunk.invalid().len();
        }
    }
    if unexplained == 0 || explained > unexplained {
        return Decoding::plain(UTF_8);
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(sample, whole == Whole::Yes);
    Decoding::guessed(detector.guess(None, Utf8Detection::Deny))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(sample: &[u8]) -> String {
        match look(sample, Whole::Yes) {
            Content::Binary(kind) => format!("binary: {kind}"),
            Content::Text(decoding) => decoding.describe(),
        }
    }

    #[test]
    fn texts_are_known_by_their_encoding() {
        assert_eq!(name(b""), "utf-8");
        assert_eq!(name(b"plain\n"), "utf-8");
        assert_eq!(name("größer\n".as_bytes()), "utf-8");
        assert_eq!(name(b"\xef\xbb\xbfmarked"), "utf-8 (byte order mark)");
        assert_eq!(name(b"\xff\xfeh\0i\0"), "utf-16le (byte order mark)");
        assert_eq!(name(b"\xfe\xff\0h\0i"), "utf-16be (byte order mark)");
        assert_eq!(name(b"h\0i\0!\0\n\0"), "utf-16le (guessed)");
        assert_eq!(name(b"\0h\0i\0!\0\n"), "utf-16be (guessed)");
        assert_eq!(name(b"gr\xf6\xdfer als gew\xf6hnlich\n"), "windows-1252 (guessed)");
    }

    #[test]
    fn a_few_wrong_bytes_do_not_turn_utf8_into_latin() {
        let mut text = "Grüße aus Köln, schöne Straße, äöü\n".repeat(20).into_bytes();
        text.extend_from_slice(b"\xff\xfe broken \x80\n");
        assert_eq!(name(&text), "utf-8");
    }

    #[test]
    fn a_sample_that_ends_within_a_character_is_still_utf8() {
        let text = "abcö".as_bytes();
        let Content::Text(decoding) = look(&text[..text.len() - 1], Whole::No) else {
            panic!("text")
        };
        assert_eq!(decoding.describe(), "utf-8");
    }

    #[test]
    fn binary_data_is_named_when_known() {
        assert_eq!(name(b"\x89PNG\r\n\x1a\nrest"), "binary: PNG image");
        assert_eq!(name(b"%PDF-1.7\nlooks like text"), "binary: PDF document");
        assert_eq!(name(b"MZ\x90\0\x03"), "binary: Windows program");
        assert_eq!(name(b"abc\0def"), "binary: binary data");
        assert_eq!(name(&[1, 2, 3, 4, 5, 6, 7]), "binary: binary data");
    }

    #[test]
    fn a_text_that_starts_like_a_binary_format_is_text() {
        assert_eq!(name(b"MZ is a pair of letters\n"), "utf-8");
        assert_eq!(name(b"BZh is not a word\n"), "utf-8");
        assert_eq!(name(b"\x1b[31mred\x1b[0m\n"), "utf-8");
    }
}
