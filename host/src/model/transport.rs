//! The HTTP client of remote models, and what its errors and refusals say in words.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::header::CONTENT_TYPE;
use reqwest::{Client, Proxy, Response, redirect};
use serde_json::Value;

use super::dialect::complaint;
use super::fault::{Account, Fault};
use super::{openai, retry};

/// Bytes that are read of an answer that is an error.
const ERROR_BYTES: usize = 16 << 10;

/// Characters of it that are shown.
const SHOWN: usize = 500;

/// A client with nothing that the configuration did not ask for: no proxy of the system, no redirect (it would carry
/// the key to another host), no compression (it would undo the bounds), no retries below ours.
///
/// HTTP/1.1 only: there a dropped answer closes the connection, which no endpoint can overlook.
pub(super) fn client(connect: Duration, proxy: Option<Proxy>) -> Result<Client, String> {
    let roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .map_err(|error| error.to_string())?
    .with_root_certificates(roots)
    .with_no_client_auth();
    let builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .http1_only()
        .no_proxy()
        .no_gzip()
        .no_brotli()
        .no_deflate()
        .no_zstd()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(connect)
        .user_agent(concat!("checkrein/", env!("CARGO_PKG_VERSION")));
    let builder = match proxy {
        Some(proxy) => builder.proxy(proxy),
        None => builder,
    };
    builder.build().map_err(explain)
}

/// An error of the client with its causes, without the address: the caller names the model, and an address may hold
/// what should not be shown.
pub(super) fn explain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// Whether an answer is an event stream that can be read.
pub(super) fn is_stream(response: &Response) -> bool {
    // An endpoint that forgets to say what it sends gets the benefit of the doubt.
    response.status().is_success()
        && content_type(response).is_none_or(|kind| kind.starts_with("text/event-stream"))
}

/// Turns an answer that is no event stream into what it says. Waits for its body, at most a bounded part of it.
pub(super) async fn refusal(response: Response) -> Fault {
    let status = response.status();
    let kind = content_type(&response);
    let retry_after = retry::retry_after(response.headers());
    let body = beginning(response).await;
    let json: Option<Value> = serde_json::from_slice(&body).ok();
    let said = match json.as_ref().and_then(complaint) {
        Some(said) => said.to_owned(),
        None => String::from_utf8_lossy(&body).into_owned(),
    };
    if status.is_success() {
        let kind = kind.unwrap_or_default();
        return Fault::Malformed(format!("`{kind}` instead of an event stream: {said}"));
    }
    let reason = if status.is_redirection() {
        "it redirects, which is not followed; put the final address into `base-url`".to_owned()
    } else if said.trim().is_empty() {
        status.canonical_reason().unwrap_or("without words").to_owned()
    } else {
        said
    };
    let code = json.as_ref().and_then(|json| json.pointer("/error/code")).and_then(Value::as_str);
    let account = code.map_or(Account::Fine, openai::account);
    Fault::Status { status: status.as_u16(), reason, retry_after, account }
}

/// Text of an endpoint, fit to be shown: one line, of bounded length.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (count, word) in text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .enumerate()
    {
        if count > 0 {
            shown.push(' ');
        }
        shown.push_str(word);
        if let Some((end, _)) = shown.char_indices().nth(SHOWN) {
            shown.truncate(end);
            shown.push('…');
            break;
        }
    }
    shown
}

fn content_type(response: &Response) -> Option<String> {
    let kind = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    Some(kind.trim().to_ascii_lowercase())
}

/// What can be had of a body. It only explains an error that is already known, so that its own errors do not matter.
async fn beginning(response: Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut body = response.bytes_stream();
    while let Some(Ok(piece)) = body.next().await {
        let room = ERROR_BYTES - bytes.len();
        bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        if bytes.len() == ERROR_BYTES {
            break;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_be_built() {
        assert!(client(Duration::from_secs(1), None).is_ok());
    }

    #[test]
    fn text_of_an_endpoint_is_one_line_of_bounded_length() {
        assert_eq!(shown(" a\r\n b\u{1b}[31m\tc "), "a b [31m c");
        assert_eq!(shown(&"x".repeat(2000)).chars().count(), SHOWN + 1);
        assert_eq!(shown(&"x ".repeat(2000)).chars().count(), SHOWN + 1);
    }
}
