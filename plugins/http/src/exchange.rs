//! A request and all the redirects that it leads to.

use checkrein_guest::prelude::*;
use url::Url;

use crate::transport::{Head, Request, Transport};

/// One redirect that was followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Hop {
    /// The status that said so.
    pub(crate) status: u16,
    /// Where it came from.
    pub(crate) from: String,
    /// Where it led.
    pub(crate) to: String,
    /// Headers that were not sent on, because it led to another server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) dropped: Vec<String>,
}

/// The last response, and the way to it.
#[derive(Debug)]
pub(crate) struct Exchange<B> {
    /// The request that it answers.
    pub(crate) request: Request,
    pub(crate) head: Head,
    pub(crate) body: B,
    pub(crate) hops: Vec<Hop>,
}

/// Sends the request and follows at most `redirects` redirects; with 0, a redirect is the response.
pub(crate) fn exchange<T: Transport>(
    transport: &mut T,
    request: Request,
    redirects: usize,
) -> Result<Exchange<T::Body>, Failure> {
    let mut request = request;
    let mut hops: Vec<Hop> = Vec::new();
    loop {
        let sent =
            transport.send(&request).context(format!("{} {}", request.method, shown(&request.url)));
        let (head, body) = sent.context_of(&hops)?;
        let target = match (head.status, head.header("location")) {
            (301 | 302 | 303 | 307 | 308, Some(target)) if redirects > 0 => target,
            _ => return Ok(Exchange { request, head, body, hops }),
        };
        // The connection of the response that nobody reads is let go before the next one is made.
        drop(body);
        if hops.len() == redirects {
            let message =
                format!("{redirects} redirects were followed, and another one leads to {target}");
            return Err(Failure::failed(message)).context_of(&hops);
        }
        let (next, hop) = follow(request, head.status, &target).context_of(&hops)?;
        request = next;
        hops.push(hop);
    }
}

/// The request that a redirect asks for.
fn follow(request: Request, status: u16, target: &str) -> Result<(Request, Hop), Failure> {
    let from = request.url.clone();
    let url = from.join(target).map_err(|error| {
        Failure::failed(format!(
            "{} redirects to `{target}`, which is no URL: {error}",
            shown(&from)
        ))
    })?;
    check(&url).context(format!("{} redirects to {target}", shown(&from)))?;
    let Request { mut method, mut headers, mut body, .. } = request;
    // What browsers do, and 303 was made to mean.
    if status == 303 && method != "HEAD" || (status == 301 || status == 302) && method == "POST" {
        method = "GET";
        body = Vec::new();
        headers.retain(|(name, _)| !name.starts_with("content-"));
    }
    let mut dropped = Vec::new();
    if url.origin() != from.origin() {
        headers.retain(|(name, _)| {
            let secret = is_secret(name);
            if secret {
                dropped.push(name.clone());
            }
            !secret
        });
    }
    let hop = Hop { status, from: shown(&from), to: shown(&url), dropped };
    Ok((Request { method, url, headers, body }, hop))
}

/// Whether a header is likely to hold what only the first server may see.
fn is_secret(name: &str) -> bool {
    let parts = [
        "auth",
        "cookie",
        "token",
        "secret",
        "api-key",
        "apikey",
        "password",
        "session",
        "signature",
    ];
    parts.iter().any(|part| name.contains(part))
}

/// Checks that the URL is one that can be fetched.
pub(crate) fn check(url: &Url) -> Result<(), Failure> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Failure::invalid(format!(
            "the scheme `{}` is not fetched, only `http` and `https`",
            url.scheme()
        )));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(Failure::invalid("the URL names no host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Failure::invalid(
            "a name or password in the URL is not sent; use the header `authorization`",
        ));
    }
    Ok(())
}

/// The URL as it is shown: without what might be a password.
pub(crate) fn shown(url: &Url) -> String {
    if url.password().is_none() && url.username().is_empty() {
        return url.to_string();
    }
    format!("{}://{}…", url.scheme(), url.host_str().unwrap_or_default())
}

/// Tells of the redirects that led to a failure.
trait ContextOf<T> {
    fn context_of(self, hops: &[Hop]) -> Result<T, Failure>;
}

impl<T> ContextOf<T> for Result<T, Failure> {
    fn context_of(self, hops: &[Hop]) -> Result<T, Failure> {
        self.map_err(|failure| match hops {
            [] => failure,
            [first, ..] => {
                let way: Vec<&str> = hops.iter().map(|hop| hop.to.as_str()).collect();
                let message = format!(
                    "{} (after redirects: {} → {})",
                    failure.message,
                    first.from,
                    way.join(" → ")
                );
                Failure { message, ..failure }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Body, Next};

    #[derive(Debug)]
    struct Nothing;

    impl Body for Nothing {
        fn next(&mut self, _most: usize) -> Next {
            Next::End
        }
    }

    /// Answers in turn with these statuses and targets, and keeps what was asked.
    struct Script {
        answers: Vec<(u16, &'static str)>,
        asked: Vec<Request>,
    }

    impl Script {
        fn new(answers: &[(u16, &'static str)]) -> Script {
            Script { answers: answers.iter().rev().copied().collect(), asked: Vec::new() }
        }
    }

    impl Transport for Script {
        type Body = Nothing;

        fn send(&mut self, request: &Request) -> Result<(Head, Nothing), Failure> {
            self.asked.push(request.clone());
            let (status, target) = self.answers.pop().unwrap_or((200, ""));
            if status == 0 {
                return Err(Failure::denied("not granted"));
            }
            let headers = if target.is_empty() {
                vec![]
            } else {
                vec![("location".to_owned(), target.into())]
            };
            Ok((Head { status, headers }, Nothing))
        }
    }

    fn request(method: &'static str) -> Request {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Request {
            method,
            url: Url::parse("https://a.example/x/y?q=1").expect("a url"),
            headers: vec![
                header("authorization", "Bearer 1"),
                header("cookie", "c=1"),
                header("x-api-key", "k"),
                header("content-type", "text/plain"),
                header("accept", "*/*"),
            ],
            body: if method == "GET" { vec![] } else { b"body".to_vec() },
        }
    }

    fn names(request: &Request) -> Vec<&str> {
        request.headers.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn redirects_within_a_server_keep_everything() {
        let mut script = Script::new(&[(302, "/z"), (307, "w?r=2")]);
        let exchange = exchange(&mut script, request("GET"), 5).expect("exchanged");
        assert_eq!(exchange.request.url.as_str(), "https://a.example/w?r=2");
        assert_eq!(names(&exchange.request), names(&request("GET")));
        let way: Vec<_> = exchange.hops.iter().map(|hop| (hop.status, hop.to.as_str())).collect();
        assert_eq!(way, [(302, "https://a.example/z"), (307, "https://a.example/w?r=2")]);
    }

    #[test]
    fn secrets_do_not_go_to_another_server_scheme_or_port() {
        for target in
            ["https://b.example/", "http://a.example/", "https://a.example:444/", "//b.example/x"]
        {
            let mut script = Script::new(&[(307, target)]);
            let exchange = exchange(&mut script, request("POST"), 5).expect("exchanged");
            assert_eq!(names(&exchange.request), ["content-type", "accept"], "{target}");
            assert_eq!(exchange.hops[0].dropped, ["authorization", "cookie", "x-api-key"]);
        }
        // Nor do they come back when the way leads home.
        let mut script = Script::new(&[(302, "https://b.example/"), (302, "https://a.example/")]);
        let exchange = exchange(&mut script, request("GET"), 5).expect("exchanged");
        assert!(!names(&exchange.request).contains(&"authorization"));
    }

    #[test]
    fn the_method_changes_as_it_does_in_browsers() {
        let after = |status, method| {
            let mut script = Script::new(&[(status, "/z")]);
            let exchange = exchange(&mut script, request(method), 5).expect("exchanged");
            (
                exchange.request.method,
                exchange.request.body.len(),
                names(&exchange.request).contains(&"content-type"),
            )
        };
        assert_eq!(after(301, "POST"), ("GET", 0, false));
        assert_eq!(after(302, "POST"), ("GET", 0, false));
        assert_eq!(after(303, "PUT"), ("GET", 0, false));
        assert_eq!(after(303, "HEAD").0, "HEAD");
        assert_eq!(after(301, "PUT"), ("PUT", 4, true));
        assert_eq!(after(307, "POST"), ("POST", 4, true));
        assert_eq!(after(308, "POST"), ("POST", 4, true));
    }

    #[test]
    fn a_circle_of_redirects_ends_and_tells_the_way() {
        let mut script = Script::new(&[(302, "/b"), (302, "/c"), (302, "/d")]);
        let failure = exchange(&mut script, request("GET"), 2).expect_err("too many");
        assert!(
            failure.message.starts_with("2 redirects were followed, and another one leads to /d"),
            "{failure}"
        );
        assert!(failure.message.contains("https://a.example/b → https://a.example/c"), "{failure}");
        assert_eq!(script.asked.len(), 3);
    }

    #[test]
    fn without_redirects_the_redirect_is_the_response() {
        let exchange =
            exchange(&mut Script::new(&[(302, "/b")]), request("GET"), 0).expect("exchanged");
        assert_eq!((exchange.head.status, exchange.hops.len()), (302, 0));
        let unchanged = super::exchange(&mut Script::new(&[(304, "/b")]), request("GET"), 5)
            .expect("exchanged");
        assert_eq!(unchanged.head.status, 304);
        let nowhere =
            super::exchange(&mut Script::new(&[(302, "")]), request("GET"), 5).expect("exchanged");
        assert_eq!(nowhere.head.status, 302);
    }

    #[test]
    fn a_redirect_out_of_the_web_or_to_a_denied_host_is_a_failure_that_says_so() {
        let failed = |answers: &[(u16, &'static str)]| {
            exchange(&mut Script::new(answers), request("GET"), 5).expect_err("failed")
        };
        assert!(failed(&[(302, "file:///etc/passwd")]).message.contains("`file` is not fetched"));
        assert!(failed(&[(302, "https://u:p@b.example/")]).message.contains("password"));
        assert!(failed(&[(302, "http://[::1")]).message.contains("no URL"));
        let denied = failed(&[(302, "http://10.0.0.1/"), (0, "")]);
        assert_eq!(denied.code, Failure::DENIED);
        assert!(
            denied
                .message
                .contains("after redirects: https://a.example/x/y?q=1 → http://10.0.0.1/"),
            "{denied}"
        );
    }
}
