//! The tool `fetch`: its arguments, and what they must be.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use checkrein_guest::prelude::*;
use url::Url;

use crate::answer::{Answer, Form};
use crate::exchange::{check, exchange};
use crate::transport::{Request, Transport};

/// So many bytes of a body are in one answer at most.
const MAX_BYTES: u32 = 400 << 10;
/// And so many by default: they pass an agent that shortens long results.
const DEFAULT_BYTES: u32 = 36 << 10;
/// Headers that make the connection, and are therefore not the caller's.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What to fetch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The whole URL, with `http://` or `https://`.
    url: String,
    /// The method; `GET` when left out.
    #[serde(default)]
    method: Method,
    /// Headers to send, such as `{"accept": "application/json"}`.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The body to send, as text. Without a header `content-type` it is sent as JSON if it is JSON, else as text.
    #[serde(default)]
    body: Option<String>,
    /// In place of `body`: bytes as base64.
    #[serde(default)]
    body_base64: Option<String>,
    /// How long all of it may take, redirects and body included, in seconds, up to 300.
    #[serde(default = "half_a_minute")]
    timeout_seconds: u32,
    /// How many bytes of the body to give at most, up to 409600. The rest is not fetched.
    #[serde(default = "default_bytes")]
    max_bytes: u32,
    /// How many redirects to follow, up to 20. With 0, a redirect is the answer.
    #[serde(default = "five")]
    max_redirects: u32,
    /// Give the body as base64 in place of text: the way to fetch images and other binary data.
    #[serde(default)]
    base64: bool,
}

fn half_a_minute() -> u32 {
    30
}

fn default_bytes() -> u32 {
    DEFAULT_BYTES
}

fn five() -> u32 {
    5
}

/// A method of HTTP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
enum Method {
    /// Read.
    #[default]
    Get,
    /// Read only the headers.
    Head,
    /// Send.
    Post,
    /// Replace.
    Put,
    /// Change.
    Patch,
    /// Remove.
    Delete,
    /// Ask what can be done.
    Options,
}

impl Method {
    fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
        }
    }
}

/// Fetches from a web server.
#[derive(Debug)]
pub struct Fetch;

impl Tool for Fetch {
    const NAME: &str = "fetch";
    const DESCRIPTION: &str = "Sends a request to a web server and gives the response as JSON: status, headers, and \
        the body as text. Follows redirects and tells each of them; credentials in headers are not sent on to another \
        server. A status such as 404 is a response, not a failure. Only servers that were granted can be reached. \
        Binary bodies are named as such and given only as base64 when `base64` is true.";
    const HINTS: &[Hint] = &[Hint::OpenWorld];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _cx: &ToolContext) -> Result<Output, Failure> {
        let timeout = arguments.timeout()?;
        #[cfg(target_arch = "wasm32")]
        let transport = crate::wasi::Wasi::new(timeout);
        #[cfg(not(target_arch = "wasm32"))]
        let transport = outside::NoNetwork::new(timeout);
        Output::json(&fetch(&arguments, transport)?)
    }
}

pub(crate) fn fetch(
    arguments: &Arguments,
    mut transport: impl Transport,
) -> Result<Answer, Failure> {
    let started = Instant::now();
    let request = arguments.request()?;
    let within = |name: &str, value: u32, least: u32, most: u32| {
        if (least..=most).contains(&value) {
            return Ok(value as usize);
        }
        Err(Failure::invalid(format!("`{name}` is {value}; it must be from {least} to {most}")))
    };
    let redirects = within("max_redirects", arguments.max_redirects, 0, 20)?;
    let most = within("max_bytes", arguments.max_bytes, 1, MAX_BYTES)?;
    let form = if arguments.base64 { Form::Base64 } else { Form::Text };
    let mut answer = Answer::read(exchange(&mut transport, request, redirects)?, most, form);
    answer.milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(answer)
}

impl Arguments {
    fn timeout(&self) -> Result<Duration, Failure> {
        match self.timeout_seconds {
            seconds @ 1..=300 => Ok(Duration::from_secs(u64::from(seconds))),
            other => Err(Failure::invalid(format!(
                "`timeout_seconds` is {other}; it must be from 1 to 300"
            ))),
        }
    }

    fn request(&self) -> Result<Request, Failure> {
        let url = Url::parse(self.url.trim()).map_err(|error| {
            Failure::invalid(format!("`url` is `{}`, which is no whole URL: {error}", self.url))
        })?;
        check(&url)?;
        let body = match (&self.body, &self.body_base64) {
            (None, None) => None,
            (Some(text), None) => Some(text.clone().into_bytes()),
            (None, Some(text)) => Some(BASE64_STANDARD.decode(text.trim()).map_err(|error| {
                Failure::invalid(format!("`body_base64` is not base64: {error}"))
            })?),
            (Some(_), Some(_)) => {
                return Err(Failure::invalid("`body` and `body_base64` exclude each other"));
            }
        };
        if body.is_some() && matches!(self.method, Method::Get | Method::Head) {
            let method = self.method.as_str();
            return Err(Failure::invalid(format!(
                "a {method} request has no body; use another method"
            )));
        }
        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            headers.push(header(name, value)?);
        }
        let mut default = |name: &str, value: &str| {
            if !headers.iter().any(|(given, _)| given == name) {
                headers.push((name.to_owned(), value.to_owned()));
            }
        };
        default("user-agent", concat!("checkrein-http/", env!("CARGO_PKG_VERSION")));
        default("accept", "*/*");
        default("accept-encoding", "gzip");
        if let Some(body) = &body {
            let json = serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
            let kind = match (&self.body, json) {
                (Some(_), true) => "application/json",
                (Some(_), false) => "text/plain; charset=utf-8",
                (None, _) => "application/octet-stream",
            };
            default("content-type", kind);
        }
        Ok(Request { method: self.method.as_str(), url, headers, body: body.unwrap_or_default() })
    }
}

/// A header that can be sent, its name in small letters.
fn header(name: &str, value: &str) -> Result<(String, String), Failure> {
    let lower = name.to_ascii_lowercase();
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(Failure::invalid(format!("`{name}` is not the name of a header")));
    }
    if RESERVED.contains(&lower.as_str()) {
        return Err(Failure::invalid(format!(
            "the header `{name}` is set by the connection; leave it out"
        )));
    }
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err(Failure::invalid(format!(
            "the header `{name}` has a line end or a control character in its value"
        )));
    }
    Ok((lower, value.trim().to_owned()))
}

#[cfg(not(target_arch = "wasm32"))]
mod outside {
    //! Outside the sandbox there is no network: whoever tests the tool brings a transport along.

    use std::time::Duration;

    use checkrein_guest::prelude::*;

    use crate::transport::{Body, Head, Next, Request, Transport};

    pub(super) struct NoNetwork;

    impl NoNetwork {
        pub(super) fn new(_timeout: Duration) -> NoNetwork {
            NoNetwork
        }
    }

    impl Transport for NoNetwork {
        type Body = NoNetwork;

        fn send(&mut self, _request: &Request) -> Result<(Head, NoNetwork), Failure> {
            Err(Failure::new(Failure::UNAVAILABLE, "there is no network outside the sandbox"))
        }
    }

    impl Body for NoNetwork {
        fn next(&mut self, _most: usize) -> Next {
            Next::End
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkrein_guest::testing::ToolTest;

    fn request(arguments: Value) -> Result<Request, Failure> {
        serde_json::from_value::<Arguments>(arguments).expect("arguments").request()
    }

    fn value<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
        request.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn a_request_has_what_servers_expect() {
        let request =
            request(json!({"url": "https://a.example/x", "headers": {"Accept": "text/html"}}))
                .expect("a request");
        assert_eq!((request.method, request.url.as_str()), ("GET", "https://a.example/x"));
        assert_eq!(value(&request, "accept"), Some("text/html"));
        assert!(value(&request, "user-agent").expect("an agent").starts_with("checkrein-http/"));
        assert_eq!(value(&request, "content-type"), None);
    }

    #[test]
    fn a_body_is_sent_as_what_it_is() {
        let kind = |body: Value| {
            let mut arguments = json!({"url": "http://a.example/", "method": "POST"});
            arguments
                .as_object_mut()
                .expect("an object")
                .extend(body.as_object().expect("an object").clone());
            let request = request(arguments).expect("a request");
            (value(&request, "content-type").expect("a type").to_owned(), request.body)
        };
        assert_eq!(
            kind(json!({"body": "{\"a\": 1}"})),
            ("application/json".to_owned(), b"{\"a\": 1}".to_vec())
        );
        assert_eq!(kind(json!({"body": "hi"})).0, "text/plain; charset=utf-8");
        assert_eq!(
            kind(json!({"body_base64": "AP8="})),
            ("application/octet-stream".to_owned(), vec![0, 255])
        );
        assert_eq!(kind(json!({"body": "a=1", "headers": {"Content-Type": "x/y"}})).0, "x/y");
    }

    #[test]
    fn what_cannot_be_sent_is_refused_with_the_reason() {
        let refused = |arguments: Value| request(arguments).expect_err("refused").message;
        let with =
            |name: &str, value: &str| json!({"url": "http://a.example/", "headers": {name: value}});
        assert!(refused(json!({"url": "a.example"})).contains("no whole URL"));
        assert!(refused(json!({"url": "ftp://a.example/"})).contains("`ftp` is not fetched"));
        assert!(refused(json!({"url": "http://u:p@a.example/"})).contains("authorization"));
        assert!(refused(with("Host", "b.example")).contains("set by the connection"));
        assert!(refused(with("x", "a\r\nb: c")).contains("line end"));
        assert!(refused(with("a b", "c")).contains("not the name of a header"));
        assert!(
            refused(json!({"url": "http://a.example/", "body": "x"}))
                .contains("GET request has no body")
        );
        assert!(
            refused(
                json!({"url": "http://a.example/", "method": "PUT", "body": "x", "body_base64": ""})
            )
            .contains("exclude")
        );
    }

    #[test]
    fn limits_are_checked_before_anything_is_sent() {
        let call = |arguments: Value| {
            ToolTest::new().call::<Fetch>(arguments).expect_err("refused").message
        };
        assert!(
            call(json!({"url": "http://a.example/", "timeout_seconds": 0}))
                .contains("from 1 to 300")
        );
        assert!(
            call(json!({"url": "http://a.example/", "max_bytes": 9_999_999}))
                .contains("from 1 to 409600")
        );
        assert!(
            call(json!({"url": "http://a.example/", "max_redirects": 21})).contains("from 0 to 20")
        );
        assert!(
            call(json!({"url": "http://a.example/", "timeout": 1}))
                .contains("unknown field `timeout`")
        );
        assert!(
            call(json!({"url": "http://a.example/", "method": "get"}))
                .contains("expected one of `GET`")
        );
        assert!(
            call(json!({"url": "http://a.example/"})).contains("no network outside the sandbox")
        );
    }
}
