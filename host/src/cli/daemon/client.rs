//! HTTP to the daemon, over its Unix socket.

use std::path::PathBuf;
use std::pin::Pin;

use http_body_util::{BodyExt, Full};
pub(in crate::cli) use hyper::Method;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::text;

/// The most bytes of an answer.
const MOST: usize = 64 << 20;

/// A daemon. Each request has a connection of its own.
#[derive(Debug)]
pub(in crate::cli) struct Client {
    socket: PathBuf,
}

/// An answer whose body is still to come.
pub(in crate::cli) struct Answer {
    connection: Connection,
    response: Response<Incoming>,
}

/// Does the work of the connection. It ends when the answer has.
type Connection = Pin<Box<dyn Future<Output = ()>>>;

impl Client {
    pub(in crate::cli) fn new(socket: PathBuf) -> Client {
        Client { socket }
    }

    /// Asks for something.
    pub(in crate::cli) async fn get(&self, path: &str) -> Result<Value, Problem> {
        self.ask(Method::GET, path, None).await
    }

    /// Has something done.
    pub(in crate::cli) async fn post(&self, path: &str, body: &Value) -> Result<Value, Problem> {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// Has JSON Lines read in.
    pub(in crate::cli) async fn post_lines(
        &self,
        path: &str,
        lines: Vec<u8>,
    ) -> Result<Value, Problem> {
        let body = Some(("application/x-ndjson", lines.into()));
        Client::whole(self.send(Method::POST, path, body).await?).await
    }

    /// Sends a request and reads the whole answer; null where it has no body.
    pub(in crate::cli) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Problem> {
        let body = body.map(|body| ("application/json", Bytes::from(body.to_string())));
        Client::whole(self.send(method, path, body).await?).await
    }

    /// The whole of an answer.
    async fn whole(mut answer: Answer) -> Result<Value, Problem> {
        let mut bytes = Vec::new();
        while let Some(part) = answer.part().await? {
            if bytes.len() + part.len() > MOST {
                let words =
                    format!("the daemon's answer is longer than {}", text::size(MOST as u64));
                return Err(Problem::new(Code::Failed, words));
            }
            bytes.extend_from_slice(&part);
        }
        let status = answer.response.status();
        let value = match bytes.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&bytes).map_err(|error| {
                Problem::because(Code::Failed, "the daemon's answer is not JSON", error)
            })?,
        };
        if status.is_success() { Ok(value) } else { Err(refused(&value, status.as_u16())) }
    }

    /// Begins to read a stream. One that is refused is a problem.
    pub(in crate::cli) async fn stream(&self, path: &str) -> Result<Answer, Problem> {
        let mut answer = self.send(Method::GET, path, None).await?;
        if answer.response.status().is_success() {
            return Ok(answer);
        }
        let status = answer.response.status().as_u16();
        let bytes = answer.part().await?.unwrap_or_default();
        Err(refused(&serde_json::from_slice(&bytes).unwrap_or_default(), status))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Bytes)>,
    ) -> Result<Answer, Problem> {
        let shown = self.socket.display();
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| {
            let attempt = format!("could not connect to the daemon at {shown}");
            Problem::because(Code::Refused, attempt, error)
                .advise("start it with `checkrein serve --config FILE`, or name its socket with --socket PATH")
        })?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| lost(&error))?;
        // How the connection ends is told by the answer.
        let mut connection: Connection = Box::pin(async move { drop(connection.await) });
        let mut request =
            Request::builder().method(method).uri(path).header(header::HOST, "checkrein");
        if let Some((media, _)) = body {
            request = request.header(header::CONTENT_TYPE, media);
        }
        let body = body.map(|(_, bytes)| bytes).unwrap_or_default();
        let request = request.body(Full::new(body)).map_err(|error| {
            Problem::because(Code::Usage, "the name cannot stand in a request", error)
        })?;
        let response = beside(&mut connection, sender.send_request(request)).await;
        Ok(Answer { connection, response: response.map_err(|error| lost(&error))? })
    }
}

impl Answer {
    /// The next part of the body; none at its end.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(in crate::cli) async fn part(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            match beside(&mut self.connection, self.response.body_mut().frame()).await {
                None => return Ok(None),
                Some(Err(error)) => return Err(lost(&error)),
                Some(Ok(frame)) => {
                    if let Ok(part) = frame.into_data() {
                        return Ok(Some(part));
                    }
                }
            }
        }
    }
}

/// Waits for something that needs the connection to do its work meanwhile.
async fn beside<T>(connection: &mut Connection, waited: impl Future<Output = T>) -> T {
    let mut waited = std::pin::pin!(waited);
    let mut is_over = false;
    loop {
        tokio::select! {
            biased;
            value = &mut waited => return value,
            () = &mut *connection, if !is_over => {
                is_over = true;
                *connection = Box::pin(std::future::pending());
            }
        }
    }
}

fn lost(error: &hyper::Error) -> Problem {
    Problem::new(Code::Failed, format!("lost the connection to the daemon: {error}"))
}

/// What a problem of the daemon means here.
fn refused(answer: &Value, status: u16) -> Problem {
    let error = &answer["error"];
    let code = match super::word(&error["kind"]) {
        "bad-request" | "not-found" | "gone" | "method-not-allowed" | "not-json" | "too-large"
        | "unusable" => Code::Usage,
        "internal" => Code::Failed,
        _ => Code::Refused,
    };
    let causes = error["causes"].as_array().map_or(&[][..], Vec::as_slice);
    let words = std::iter::once(&error["message"]).chain(causes).map(super::word);
    let words = words.filter(|words| !words.is_empty()).collect::<Vec<_>>().join("\n");
    match words.is_empty() {
        true => Problem::new(code, format!("the daemon answered with the status {status}")),
        false => Problem::new(code, words),
    }
}

/// A name as one step of a path.
pub(in crate::cli) fn step(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_cannot_leave_its_step_of_the_path() {
        assert_eq!(step("s12"), "s12");
        assert_eq!(step("a/../b?c ü\n"), "a%2F..%2Fb%3Fc%20%C3%BC%0A");
    }

    #[test]
    fn a_problem_of_the_daemon_is_told_with_its_causes() {
        let error = json!({ "error": { "kind": "busy", "message": "a turn", "causes": ["why"] } });
        assert_eq!(refused(&error, 409).lines(), ["a turn\nwhy"]);
        assert_eq!(refused(&Value::Null, 431).lines(), ["the daemon answered with the status 431"]);
    }
}
