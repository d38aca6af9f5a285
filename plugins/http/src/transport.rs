//! What carries a request to a server: the interface of WASI in the sandbox, a script in tests.

use checkrein_guest::prelude::*;
use url::Url;

/// One request, without redirects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// In capital letters.
    pub(crate) method: &'static str,
    pub(crate) url: Url,
    /// Names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// The beginning of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Names in small letters, in the order of the response.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
}

impl Head {
    /// The first header of that name, as text.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let (_, value) = self.headers.iter().find(|(header, _)| header == name)?;
        Some(text(value))
    }
}

/// The value of a header as text; bytes beyond ASCII are Latin-1, as they were when HTTP was young.
pub(crate) fn text(value: &[u8]) -> String {
    match str::from_utf8(value) {
        Ok(text) => text.to_owned(),
        Err(_) => value.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// Carries requests until a moment that is fixed when it is made.
pub(crate) trait Transport {
    /// The body of a response.
    type Body: Body;

    /// Sends a request and waits for the beginning of the response.
    fn send(&mut self, request: &Request) -> Result<(Head, Self::Body), Failure>;
}

/// The body of a response, as it comes.
pub(crate) trait Body {
    /// The next bytes, at most so many, as soon as there are any.
    fn next(&mut self, most: usize) -> Next;
}

/// What comes next of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    not(target_arch = "wasm32"),
    allow(dead_code, reason = "outside the sandbox only tests make them")
)]
pub(crate) enum Next {
    /// Some bytes.
    Bytes(Vec<u8>),
    /// The body is complete.
    End,
    /// The time is up.
    Late,
    /// The connection broke, for this reason.
    Broken(String),
}
