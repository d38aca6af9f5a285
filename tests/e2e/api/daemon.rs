//! A daemon on a home of its own, and a client that speaks HTTP by hand.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, LazyLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use checkrein_testkit::{PATIENCE, Plugin, guest};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// `checkrein serve`, with the agent that does what its goal says in the profile `main`.
pub(crate) struct Daemon {
    home: Arc<TempDir>,
    client: Client,
    child: Child,
    out: mpsc::Receiver<String>,
    /// The lines that it has printed so far.
    pub(crate) printed: Vec<String>,
}

impl Daemon {
    /// Starts one that is ready.
    pub(crate) fn start(serve: &str) -> Result<Daemon> {
        let home = home(serve)?;
        Daemon::on(home)
    }

    /// Starts one on a home that was prepared.
    pub(crate) fn on(home: impl Into<Arc<TempDir>>) -> Result<Daemon> {
        let home = home.into();
        let command = command(home.path(), &["serve", "--config", "checkrein.toml"]);
        let mut daemon = Daemon::run(home, command)?;
        daemon.says("ready")?;
        Ok(daemon)
    }

    /// Runs a command that becomes one, and waits for nothing.
    pub(crate) fn run(home: Arc<TempDir>, mut command: Command) -> Result<Daemon> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (tell, out) = mpsc::channel();
        lines(child.stdout.take().context("a pipe")?, tell.clone());
        lines(child.stderr.take().context("a pipe")?, tell);
        let client = Client { socket: home.path().join("api.sock") };
        Ok(Daemon { home, client, child, out, printed: Vec::new() })
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// A client of it that other threads can have.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for a line of its output that contains these words.
    pub(crate) fn says(&mut self, words: &str) -> Result<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(line) = self.out.recv_timeout(left) else {
                bail!("`{words}` was not printed; this was: {:#?}", self.printed);
            };
            self.printed.push(line.clone());
            if line.contains(words) {
                return Ok(line);
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid(), signal)?)
    }

    /// Waits for its end, at most that long.
    pub(crate) fn ends(mut self, within: Duration) -> Result<(ExitStatus, Vec<String>)> {
        let until = Instant::now() + within;
        // The pipes close when the process has ended.
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.out.recv_timeout(left) {
                Ok(line) => self.printed.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    bail!("it has not ended within {within:?}: {:#?}", self.printed)
                }
            }
        }
        let status = self.child.wait()?;
        let panicked = self.printed.iter().any(|line| line.contains("panicked"));
        ensure!(!panicked, "{:#?}", self.printed);
        Ok((status, std::mem::take(&mut self.printed)))
    }

    /// Ends it, and gives the home that it leaves behind.
    pub(crate) fn leaves(self) -> Result<Arc<TempDir>> {
        self.signal(Signal::TERM)?;
        let home = Arc::clone(&self.home);
        self.ends(PATIENCE)?;
        Ok(home)
    }
}

impl Deref for Daemon {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Speaks to a daemon, with a connection for each request.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    socket: PathBuf,
}

impl Client {
    /// One of whoever listens there.
    pub(crate) fn of(socket: PathBuf) -> Client {
        Client { socket }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// A connection of its own.
    pub(crate) fn connect(&self) -> Result<UnixStream> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    pub(crate) fn get(&self, path: &str) -> Result<Answer> {
        self.ask("GET", path, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.ask("POST", path, Some(body))
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        let answer = self.begin(method, path, body)?.answer()?;
        is_described(method, path, answer.status)?;
        Ok(answer)
    }

    /// Asks, and does not wait for the answer.
    pub(crate) fn begin(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Asked> {
        let mut stream = self.connect()?;
        send(&mut stream, method, path, body)?;
        Ok(Asked { stream })
    }

    /// Sends JSON Lines.
    pub(super) fn send_lines(&self, path: &str, lines: &[u8]) -> Result<Answer> {
        let mut stream = self.connect()?;
        let (kind, length) = ("application/x-ndjson", lines.len());
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
        )?;
        stream.write_all(lines)?;
        Answer::read(&mut BufReader::new(stream))
    }

    /// Opens a session with the agent and gives the path of its routes.
    pub(crate) fn session(&self) -> Result<String> {
        let opened = self.post("/v1/profiles/main/sessions", &json!({ "agent": "agent" }))?;
        ensure!(opened.status == 201, "{opened:?}");
        let id = opened.body["id"].as_str().context("an id")?.to_owned();
        Ok(format!("/v1/profiles/main/sessions/{id}"))
    }

    /// Runs a turn to its end.
    pub(crate) fn turn(&self, session: &str, goal: &str) -> Result<Value> {
        let goal = json!({ "goal": goal, "wait": true });
        let answer = self.post(&format!("{session}/prompts"), &goal)?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(answer.body)
    }

    /// Starts a turn, and waits until its agent has said `ready`.
    pub(crate) fn until_ready(&self, session: &str, goal: &str) -> Result<Value> {
        let goal = json!({ "goal": format!("progress ready\n{goal}") });
        let answer = self.post(&format!("{session}/prompts"), &goal)?;
        ensure!(answer.status == 202, "{answer:?}");
        let mut events = self.events(session, 0)?;
        while events.next()?.context("more events")?.data["text"] != "ready" {}
        Ok(answer.body)
    }

    /// Follows the events of a session.
    pub(crate) fn events(&self, session: &str, after: u64) -> Result<Events> {
        let mut stream = self.connect()?;
        let path = format!("{session}/events");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nlast-event-id: {after}\r\n\r\n")?;
        Events::read(stream)
    }

    /// Reads the events up to the newest.
    pub(crate) fn events_so_far(&self, session: &str, after: u64) -> Result<Events> {
        let mut stream = self.connect()?;
        let path = format!("{session}/events?follow=false&after={after}");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
        Events::read(stream)
    }

    /// The events up to the newest.
    pub(crate) fn all_events(&self, session: &str, after: u64) -> Result<Vec<Sent>> {
        let mut events = self.events_so_far(session, after)?;
        let mut all = Vec::new();
        while let Some(event) = events.next()? {
            all.push(event);
        }
        Ok(all)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // One that a failed test leaves behind; one that has ended is no trouble.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Every answer to a request that there is has a status that the description of the API names.
fn is_described(method: &str, path: &str, status: u16) -> Result<()> {
    static DESCRIBED: LazyLock<Value> = LazyLock::new(checkrein::server::open_api);
    let steps = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
    let asked = steps(path.split('?').next().unwrap_or_default());
    let is_asked = |path: &str| {
        let steps = steps(path);
        let same = |(step, asked): (&String, &String)| step.starts_with('{') || step == asked;
        steps.len() == asked.len() && steps.iter().zip(&asked).all(same)
    };
    let paths = DESCRIBED["paths"].as_object().context("paths")?;
    let operation = paths
        .iter()
        .find(|(path, _)| is_asked(path))
        .and_then(|(_, methods)| methods.get(method.to_lowercase()));
    let Some(operation) = operation else { return Ok(()) };
    ensure!(
        operation["responses"].get(status.to_string()).is_some(),
        "the description of {method} {path} does not have {status}"
    );
    Ok(())
}

/// A home with a configuration, whose `[serve]` has these lines too, and one profile.
pub(crate) fn home(serve: &str) -> Result<TempDir> {
    let home = tempfile::Builder::new().prefix("checkrein-serve-").tempdir()?;
    fs::write(
        home.path().join("checkrein.toml"),
        format!("[serve]\nsocket = \"api.sock\"\nprofiles = \"profiles\"\n{serve}\n"),
    )?;
    profile(home.path(), "main")?;
    Ok(home)
}

/// The configuration of a profile with the agent.
pub(crate) const PROFILE: &str = r#"plugin-directories = ["plugins"]
[plugins.agent.grants]
tools = ["*"]
models = ["*"]
delegation = ["*"]
"#;

/// Adds a profile with the agent.
pub(crate) fn profile(home: &Path, name: &str) -> Result<()> {
    let folder = home.join("profiles").join(name);
    let plugins = folder.join("plugins");
    fs::create_dir_all(&plugins)?;
    Plugin::agent("agent", guest("agent")).write(&plugins)?;
    fs::write(folder.join("profile.toml"), PROFILE)?;
    Ok(())
}

/// The command, in that home.
pub(crate) fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_checkrein"));
    command
        .args(arguments)
        .current_dir(home)
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env("CHECKREIN_SOCKET", home.join("api.sock"))
        .env_remove("CHECKREIN_LOG")
        .stdin(Stdio::null());
    command
}

fn lines(pipe: impl Read + Send + 'static, tell: mpsc::Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            tell.send(line).ok();
        }
    });
}

pub(crate) fn send(
    stream: &mut UnixStream,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<()> {
    let body = body.map(Value::to_string);
    let kind = if body.is_some() { "content-type: application/json\r\n" } else { "" };
    let body = body.unwrap_or_default();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{kind}content-length: {length}\r\n\r\n{body}"
    )?;
    Ok(())
}

/// A request that is not answered yet.
pub(crate) struct Asked {
    stream: UnixStream,
}

impl Asked {
    pub(crate) fn answer(self) -> Result<Answer> {
        Answer::read(&mut BufReader::new(self.stream))
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// JSON; null where there is none.
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn read(from: &mut impl BufRead) -> Result<Answer> {
        let (status, headers) = head(from)?;
        let mut text = String::new();
        match headers.iter().find(|(name, _)| name == "content-length") {
            Some((_, length)) => from.take(length.parse()?).read_to_string(&mut text)?,
            None => from.read_to_string(&mut text)?,
        };
        let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text)? };
        Ok(Answer { status, headers, body })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The kind of the problem that it is.
    pub(crate) fn kind(&self) -> &str {
        self.body["error"]["kind"].as_str().unwrap_or("no problem")
    }
}

fn head(from: &mut impl BufRead) -> Result<(u16, Vec<(String, String)>)> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let status = line.split(' ').nth(1).with_context(|| format!("no status in {line:?}"))?;
    let status = status.parse()?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        from.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    Ok((status, headers))
}

/// A stream of events.
pub(crate) struct Events {
    from: BufReader<UnixStream>,
    /// What has come of the body, without the frames of its parts.
    text: String,
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sent {
    pub(crate) id: Option<u64>,
    pub(crate) event: String,
    pub(crate) data: Value,
    /// The same, as it came.
    pub(crate) text: String,
}

impl Events {
    fn read(stream: UnixStream) -> Result<Events> {
        let mut from = BufReader::new(stream);
        let (status, headers) = head(&mut from)?;
        let kind = headers.iter().find(|(name, _)| name == "content-type");
        ensure!(status == 200, "status {status}");
        ensure!(kind.is_some_and(|(_, kind)| kind == "text/event-stream"), "{headers:?}");
        Ok(Events { from, text: String::new() })
    }

    /// The same, if it comes within that time. After a silence nothing more can be read.
    pub(crate) fn next_within(&mut self, time: Duration) -> Result<Option<Sent>> {
        self.from.get_ref().set_read_timeout(Some(time))?;
        self.next()
    }

    /// The next event; none at the end of the stream.
    pub(crate) fn next(&mut self) -> Result<Option<Sent>> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                if event.starts_with(':') {
                    continue;
                }
                return Ok(Some(sent(&event)?));
            }
            let mut size = String::new();
            if self.from.read_line(&mut size)? == 0 {
                bail!("the stream broke off");
            }
            let size = usize::from_str_radix(size.trim(), 16)?;
            let mut chunk = vec![0; size + 2];
            self.from.read_exact(&mut chunk)?;
            if size == 0 {
                return Ok(None);
            }
            chunk.truncate(size);
            self.text.push_str(std::str::from_utf8(&chunk)?);
        }
    }
}

/// Whether nothing came in time.
pub(crate) fn is_silence(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(kind, Some(io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
}

fn sent(text: &str) -> Result<Sent> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let data = field("data: ").context("data")?;
    Ok(Sent {
        id: field("id: ").map(str::parse).transpose()?,
        event: field("event: ").context("a name")?.to_owned(),
        data: serde_json::from_str(data)?,
        text: data.to_owned(),
    })
}
