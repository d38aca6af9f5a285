//! In which encoding the body of a response is text.

use checkrein_reading::{Content, Decoding, Whole, look};

/// What a body is, from what the server says of it and from its first bytes.
pub(crate) fn of(content_type: Option<&str>, sample: &[u8], whole: Whole) -> Content {
    let (kind, charset) = content_type.map(split).unwrap_or_default();
    // A byte order mark is stronger than the words of a server.
    let found = look(sample, whole);
    if let Content::Text(decoding) = found
        && decoding.bom() > 0
    {
        return found;
    }
    if !is_text(&kind) {
        return found;
    }
    let label = charset.or_else(|| if kind.contains("html") { in_html(sample) } else { None });
    match label.and_then(|label| Decoding::named(&label, sample)) {
        Some(decoding) if !sample.contains(&0) || decoding.unit() == 2 => Content::Text(decoding),
        _ => found,
    }
}

/// The kind and the charset of a `content-type`, in small letters.
fn split(content_type: &str) -> (String, Option<String>) {
    let lower = content_type.to_ascii_lowercase();
    let mut parts = lower.split(';');
    let kind = parts.next().unwrap_or_default().trim().to_owned();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        (name.trim() == "charset").then(|| value.trim().trim_matches('"').to_owned())
    });
    (kind, charset)
}

fn is_text(kind: &str) -> bool {
    let known = [
        "application/json",
        "application/xml",
        "application/javascript",
        "application/x-javascript",
    ];
    kind.starts_with("text/")
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
        || known.contains(&kind)
}

/// The encoding that a page names in its first kibibyte.
fn in_html(sample: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&sample[..sample.len().min(1_024)]).to_ascii_lowercase();
    let (_, after) = head.split_once("charset=")?;
    let name = after.trim_start_matches(['"', '\'', ' ']);
    let end =
        name.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | ':' | '.'))?;
    // A page that names UTF-16 in ASCII letters is wrong about itself.
    Some(name[..end].to_owned()).filter(|name| !name.is_empty() && !name.starts_with("utf-16"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(content_type: Option<&str>, sample: &[u8]) -> String {
        match of(content_type, sample, Whole::Yes) {
            Content::Text(decoding) => decoding.name(),
            Content::Binary(kind) => format!("binary: {kind}"),
        }
    }

    #[test]
    fn the_server_says_which_encoding_it_is() {
        assert_eq!(name(Some("text/html; charset=\"ISO-8859-1\""), b"gr\xfcn"), "windows-1252");
        assert_eq!(name(Some("application/json; charset=utf-8"), b"{}"), "utf-8");
        assert_eq!(name(Some("text/plain;CHARSET=Shift_JIS"), b"\x83e"), "shift_jis");
        assert_eq!(name(Some("text/plain; charset=utf-16le"), b"a\0b\0"), "utf-16le");
    }

    #[test]
    fn a_mark_is_stronger_and_a_page_may_say_it_itself() {
        assert_eq!(name(Some("text/plain; charset=latin1"), b"\xef\xbb\xbfa"), "utf-8");
        assert_eq!(name(Some("text/html"), b"<meta charset='gb2312'>\xc4\xe3"), "gbk");
        assert_eq!(name(Some("text/html"), b"<meta charset=\"utf-16\"><p>a"), "utf-8");
    }

    #[test]
    fn what_the_server_does_not_say_is_found_in_the_bytes() {
        assert_eq!(name(None, "grün".as_bytes()), "utf-8");
        assert_eq!(name(Some("application/octet-stream"), b"text after all\n"), "utf-8");
        assert_eq!(name(Some("text/plain; charset=klingon"), b"text\n"), "utf-8");
    }

    #[test]
    fn binary_data_is_binary_whatever_the_server_calls_it() {
        assert_eq!(name(Some("text/plain; charset=utf-8"), b"a\0b\0\0"), "binary: binary data");
        assert_eq!(name(Some("image/png"), b"\x89PNG\r\n\x1a\n\0"), "binary: PNG image");
    }
}
