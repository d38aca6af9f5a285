//! From a response to what the tool answers: reading the body within limits, and making text of it.

use std::collections::BTreeMap;
use std::io::Read as _;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use checkrein_guest::prelude::*;
use checkrein_reading::{Content, SAMPLE, Whole};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use crate::charset;
use crate::exchange::{Exchange, Hop, shown};
use crate::transport::{Body, Head, Next, text};

/// Headers are cut behind this many bytes, each and all together.
const MAX_HEADER: usize = 2 << 10;
const MAX_HEADERS: usize = 32 << 10;
/// So much is read of a body at one time.
const PIECE: usize = 64 << 10;

/// The response.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answer {
    /// The URL that answered, after all redirects.
    url: String,
    /// The status of HTTP: 200 is success, 404 not found, and so on.
    status: u16,
    /// The redirects that were followed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    redirects: Vec<Hop>,
    /// The headers, names in small letters.
    headers: BTreeMap<String, String>,
    /// The encoding of the text, where it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    /// What sort of binary data it is, when it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    binary: Option<&'static str>,
    /// The body as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The body as base64, when that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// How many bytes of the body are here, after decompression.
    bytes: usize,
    /// Why there is not all of the body: `max_bytes`, `time`, or what broke the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<String>,
    /// How long it took.
    pub(crate) milliseconds: u64,
    /// What is odd about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// How the body is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As text; binary data is only named.
    Text,
    /// As base64, whatever it is.
    Base64,
}

impl Answer {
    /// Reads the body of the response, up to so many bytes.
    pub(crate) fn read<B: Body>(exchange: Exchange<B>, most: usize, form: Form) -> Answer {
        let Exchange { request, head, mut body, hops } = exchange;
        let mut answer = Answer {
            url: shown(&request.url),
            status: head.status,
            redirects: hops,
            headers: headers(&head),
            ..Answer::default()
        };
        if request.method == "HEAD" || matches!(head.status, 204 | 304) {
            return answer;
        }
        let coding =
            head.header("content-encoding").map(|coding| coding.trim().to_ascii_lowercase());
        let coding = Coding::parse(coding.as_deref().unwrap_or_default());
        let content_type = head.header("content-type");
        // Packed, even a short text has a beginning that says little.
        let limit = if coding == Coding::None { most } else { most.max(PIECE) };
        let mut raw = Vec::new();
        answer.cut = loop {
            // One byte more than wanted tells whether there is more.
            let room = (limit + 1 - raw.len()).min(PIECE);
            match body.next(room) {
                Next::Bytes(bytes) => raw.extend_from_slice(&bytes),
                Next::End => break None,
                Next::Late => break Some("time".to_owned()),
                Next::Broken(why) => break Some(why),
            }
            if raw.len() > limit {
                raw.truncate(limit);
                break Some("max_bytes".to_owned());
            }
            // What will not be given need not be fetched.
            if form == Form::Text && coding == Coding::None && raw.len() >= SAMPLE {
                let content = charset::of(content_type.as_deref(), &raw[..SAMPLE], Whole::No);
                if let Content::Binary(_) = content {
                    break None;
                }
            }
        };
        drop(body);
        let body = answer.unpack(raw, coding, most);
        answer.give(&body, content_type.as_deref(), form);
        answer
    }

    /// Undoes the compression of the body, up to so many bytes.
    fn unpack(&mut self, raw: Vec<u8>, coding: Coding, most: usize) -> Vec<u8> {
        let mut body = Vec::new();
        // One byte more than wanted tells whether there is more, however small a bomb was sent.
        let limit = most as u64 + 1;
        let unpacked = match coding {
            Coding::None => return raw,
            Coding::Unknown => {
                self.notes.push("the body is compressed in a way that is not read here".to_owned());
                return raw;
            }
            Coding::Gzip => MultiGzDecoder::new(raw.as_slice()).take(limit).read_to_end(&mut body),
            // Servers disagree about what `deflate` means.
            Coding::Deflate if raw.first().is_some_and(|byte| byte & 0x0f == 8) => {
                ZlibDecoder::new(raw.as_slice()).take(limit).read_to_end(&mut body)
            }
            Coding::Deflate => {
                DeflateDecoder::new(raw.as_slice()).take(limit).read_to_end(&mut body)
            }
        };
        if body.len() > most {
            body.truncate(most);
            self.cut = Some("max_bytes".to_owned());
        } else if unpacked.is_err() && self.cut.is_none() {
            self.notes
                .push("the compressed body is damaged; this is what could be read".to_owned());
        }
        body
    }

    fn give(&mut self, body: &[u8], content_type: Option<&str>, form: Form) {
        self.bytes = body.len();
        if form == Form::Base64 {
            self.base64 = Some(BASE64_STANDARD.encode(body));
            return;
        }
        let sample = &body[..body.len().min(SAMPLE)];
        let whole =
            if sample.len() == body.len() && self.cut.is_none() { Whole::Yes } else { Whole::No };
        match charset::of(content_type, sample, whole) {
            Content::Binary(kind) => {
                self.bytes = 0;
                self.cut = None;
                self.binary = Some(kind);
                self.notes
                    .push("not text: ask again with `base64` if you need the bytes".to_owned());
            }
            Content::Text(decoding) => {
                let body = &body[decoding.bom()..];
                let end =
                    if self.cut.is_some() { decoding.whole_characters(body) } else { body.len() };
                let piece = decoding.decode(&body[..end]);
                if !decoding.is_utf8() {
                    self.encoding = Some(decoding.describe());
                }
                if piece.replaced {
                    self.notes.push(
                        "bytes that are no text in this encoding were replaced by U+FFFD"
                            .to_owned(),
                    );
                }
                self.text = Some(piece.text);
            }
        }
    }
}

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    None,
    Gzip,
    Deflate,
    Unknown,
}

impl Coding {
    fn parse(name: &str) -> Coding {
        match name {
            "" | "identity" => Coding::None,
            "gzip" | "x-gzip" => Coding::Gzip,
            "deflate" => Coding::Deflate,
            _ => Coding::Unknown,
        }
    }
}

/// The headers as they are shown.
fn headers(head: &Head) -> BTreeMap<String, String> {
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    let mut size = 0;
    for (name, value) in &head.headers {
        let mut value = text(value);
        if value.len() > MAX_HEADER {
            value.truncate(value.floor_char_boundary(MAX_HEADER));
            value.push('…');
        }
        size += name.len() + value.len();
        if size > MAX_HEADERS {
            shown.insert("…".to_owned(), "further headers were left out".to_owned());
            break;
        }
        match shown.get_mut(name) {
            // Cookies have commas of their own.
            Some(values) => {
                values.push_str(if name == "set-cookie" { "\n" } else { ", " });
                values.push_str(&value);
            }
            None => {
                shown.insert(name.clone(), value);
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Request;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    /// A body in pieces, of which the last says how it ends.
    struct Pieces(Vec<Next>);

    impl Body for Pieces {
        fn next(&mut self, most: usize) -> Next {
            match self.0.first_mut() {
                None => Next::End,
                Some(Next::Bytes(bytes)) if bytes.len() > most => {
                    Next::Bytes(bytes.drain(..most).collect())
                }
                Some(_) => self.0.remove(0),
            }
        }
    }

    fn answer(headers: &[(&str, &str)], pieces: Vec<Next>, most: usize, form: Form) -> Answer {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
            .collect();
        let url = url::Url::parse("http://a.example/").expect("a url");
        let request = Request { method: "GET", url, headers: vec![], body: vec![] };
        let exchange = Exchange {
            request,
            head: Head { status: 200, headers },
            body: Pieces(pieces),
            hops: vec![],
        };
        Answer::read(exchange, most, form)
    }

    fn bytes(bytes: impl AsRef<[u8]>) -> Next {
        Next::Bytes(bytes.as_ref().to_vec())
    }

    #[test]
    fn a_body_is_joined_and_decoded() {
        let answer = answer(
            &[("content-type", "text/plain; charset=latin1")],
            vec![bytes(b"gr\xfc"), bytes("n")],
            100,
            Form::Text,
        );
        assert_eq!((answer.text.as_deref(), answer.bytes, answer.cut), (Some("grün"), 4, None));
        assert_eq!(answer.encoding.as_deref(), Some("windows-1252"));
    }

    #[test]
    fn a_body_is_cut_at_the_limit_between_characters() {
        let cut = |text: &str, most| {
            let answer = answer(&[], vec![bytes(text)], most, Form::Text);
            (answer.text.expect("text"), answer.cut)
        };
        assert_eq!(cut("aäb", 2), ("a".to_owned(), Some("max_bytes".to_owned())));
        assert_eq!(cut("aäb", 3), ("aä".to_owned(), Some("max_bytes".to_owned())));
        assert_eq!(cut("aäb", 4), ("aäb".to_owned(), None));
    }

    #[test]
    fn what_came_before_the_end_of_time_or_of_the_connection_is_given() {
        let late = answer(&[], vec![bytes("some"), Next::Late], 100, Form::Text);
        assert_eq!((late.text.as_deref(), late.cut.as_deref()), (Some("some"), Some("time")));
        let broken =
            answer(&[], vec![bytes("some"), Next::Broken("reset".to_owned())], 100, Form::Text);
        assert_eq!((broken.text.as_deref(), broken.cut.as_deref()), (Some("some"), Some("reset")));
    }

    #[test]
    fn binary_data_is_named_and_given_only_as_base64() {
        let png = b"\x89PNG\r\n\x1a\n\0";
        let named = answer(&[("content-type", "image/png")], vec![bytes(png)], 100, Form::Text);
        assert_eq!((named.text, named.binary, named.bytes), (None, Some("PNG image"), 0));
        let given = answer(&[("content-type", "image/png")], vec![bytes(png)], 100, Form::Base64);
        assert_eq!((given.base64.as_deref(), given.bytes), (Some("iVBORw0KGgoA"), 9));
    }

    #[test]
    fn a_large_binary_body_is_not_read_to_its_end() {
        let mut pieces = vec![bytes(vec![0; SAMPLE])];
        pieces.push(Next::Broken("was read".to_owned()));
        let answer = answer(&[], pieces, 500_000, Form::Text);
        assert_eq!((answer.binary, answer.cut), (Some("binary data"), None));
    }

    #[test]
    fn compressed_bodies_are_unpacked_within_the_limit() {
        let pack = |text: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(text).expect("packed");
            encoder.finish().expect("packed")
        };
        let gzip = [("content-encoding", "gzip")];
        let plain = answer(&gzip, vec![bytes(pack(b"hello"))], 100, Form::Text);
        assert_eq!((plain.text.as_deref(), plain.bytes), (Some("hello"), 5));
        let bomb = answer(&gzip, vec![bytes(pack(&vec![b'x'; 50_000_000]))], 100_000, Form::Text);
        assert_eq!((bomb.bytes, bomb.cut.as_deref()), (100_000, Some("max_bytes")));
        let short = answer(&gzip, vec![bytes(pack(&b"hello ".repeat(100)))], 8, Form::Text);
        assert_eq!(
            (short.text.as_deref(), short.cut.as_deref()),
            (Some("hello he"), Some("max_bytes"))
        );
        let damaged = answer(&gzip, vec![bytes(&pack(b"hello")[..12])], 100, Form::Text);
        assert!(damaged.notes[0].contains("damaged"));
        let unknown =
            answer(&[("content-encoding", "br")], vec![bytes(b"\x0b\x02\x80\0")], 100, Form::Text);
        assert!(unknown.notes[0].contains("compressed in a way"));
    }

    #[test]
    fn headers_are_shown_once_and_bounded() {
        let long = "x".repeat(5_000);
        let mut headers = vec![
            ("set-cookie", "a=1, b"),
            ("set-cookie", "c=2"),
            ("vary", "a"),
            ("vary", "b"),
            ("long", &long),
        ];
        headers.extend(std::iter::repeat_n(("many", "y"), 20_000));
        let answer = answer(&headers, vec![], 100, Form::Text);
        assert_eq!(answer.headers["set-cookie"], "a=1, b\nc=2");
        assert_eq!(answer.headers["vary"], "a, b");
        assert!(answer.headers["long"].len() < 2_100);
        assert!(answer.headers.contains_key("…"));
        assert!(serde_json::to_string(&answer).expect("json").len() < 64 << 10);
    }
}
