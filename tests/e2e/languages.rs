//! Tool components made from Python and JavaScript by the tool chains of those languages, under the default limits
//! and with the default pool.
//!
//! The tool chains come from pip and npm into the target folder and stay there. Where that cannot be done, a test
//! says so and passes.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use checkrein::sandbox::{Access, Directory, Outcome, Pool};
use checkrein::session::Session;
use checkrein_testkit::{Line, Plugin, TestHost, within};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::start::{Result, agent, host};

/// How long one command of a tool chain may take. Only a bad network takes that long.
const STEP: Duration = Duration::from_secs(300);

/// How to make a component of one language. Commands are words with spaces between them, and find everything in the
/// folder of the tool chain; so do programs with a `/` in their name.
struct Language {
    /// The folder of its tool chain below the target folder, and of its sources below `tests/guests`.
    folder: &'static str,
    /// The file that pins the versions of its tool chain.
    pins: &'static str,
    install: &'static [&'static str],
    /// The source of the component. It lies in `source` when the tool chain is called.
    source: &'static str,
    build: &'static str,
    /// What it builds.
    component: &'static str,
}

const PYTHON: Language = Language {
    folder: "python",
    pins: "requirements.txt",
    install: &[
        "python3 -m venv --clear venv",
        "venv/bin/python -m pip install --requirement=requirements.txt --only-binary=:all: \
         --no-input --disable-pip-version-check --retries=1 --timeout=30",
    ],
    source: "tools.py",
    build: "venv/bin/componentize-py --quiet --wit-path=wit --world=tool \
            componentize --python-path=source --output=python.wasm tools",
    component: "python.wasm",
};

const JAVASCRIPT: Language = Language {
    folder: "javascript",
    pins: "package.json",
    install: &[
        "npm install --ignore-scripts --engine-strict --no-package-lock --no-audit --no-fund \
         --no-update-notifier --fetch-retries=1 --fetch-retry-mintimeout=1000 \
         --fetch-timeout=30000",
    ],
    source: "tools.js",
    build: "",
    component: "",
};

const STARLINGMONKEY: Language = Language {
    build: "node_modules/.bin/componentize-js source/tools.js --wit=wit --world-name=tool \
            --out=starlingmonkey.wasm",
    component: "starlingmonkey.wasm",
    ..JAVASCRIPT
};

/// Without `--sync` its components need the asynchronous component model, which this host does not switch on.
const QUICKJS: Language = Language {
    build: "node_modules/.bin/componentize-qjs --js=source/tools.js --wit=wit --world=tool --sync \
            --output=quickjs.wasm",
    component: "quickjs.wasm",
    ..JAVASCRIPT
};

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_made_from_python_works_under_the_default_limits() -> Result {
    let Some(host) = host_with("python", &PYTHON, "").await? else { return Ok(()) };
    works(&host, "python").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_made_from_javascript_works_with_starlingmonkey_under_the_default_limits() -> Result
{
    let Some(host) = host_with("monkey", &STARLINGMONKEY, "").await? else { return Ok(()) };
    works(&host, "monkey").await?;

    let listener = Listener::new()?;
    let session = host.session("agent").await?;
    let answer =
        call(&session, "monkey_fetch", &json!({ "url": format!("http://{}/", listener.address) }))
            .await?;
    assert!(answer.starts_with("denied: "), "{answer}");
    listener.heard_nothing()?;
    let told = "network: 127.0.0.1: no network is granted";
    ensure!(host.logs().lines().iter().any(|line| line.text == told), "the operator was not told");
    host.is_idle()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_made_from_javascript_works_with_quickjs_under_the_default_limits() -> Result {
    let Some(host) = host_with("quick", &QUICKJS, "").await? else { return Ok(()) };
    works(&host, "quick").await
}

#[tokio::test(flavor = "multi_thread")]
async fn python_reads_and_connects_only_where_it_was_granted() -> Result {
    let Some(host) = host_with("python", &PYTHON, "directories = [{ mount = \"*\" }]").await?
    else {
        return Ok(());
    };
    let (granted, secret) = (host.home().join("granted"), host.home().join("secret"));
    fs::create_dir(&granted)?;
    fs::write(granted.join("note"), "for the tool")?;
    fs::write(&secret, "not for the tool")?;
    let directory = Directory { mount: "/data".to_owned(), path: granted, access: Access::Read };
    let session = host.opening("agent").directory(directory).open().await?;
    let answer = call(&session, "python_read", &json!({ "path": "/data/note" })).await?;
    assert_eq!(answer, "ok: for the tool");

    for path in
        [&secret, Path::new("/data/../secret"), Path::new("secret"), Path::new("/etc/passwd")]
    {
        let answer = call(&session, "python_read", &json!({ "path": path })).await?;
        assert!(answer.starts_with("denied: "), "{}: {answer}", path.display());
    }
    let listener = Listener::new()?;
    for name in ["127.0.0.1", "localhost"] {
        let arguments = json!({ "host": name, "port": listener.address.port() });
        let answer = call(&session, "python_connect", &arguments).await?;
        assert!(answer.starts_with("denied: "), "{name}: {answer}");
    }
    listener.heard_nothing()?;
    // Nothing came of it but the answers, and a line each that tells the operator.
    let lines: Vec<String> = host.logs().lines().into_iter().map(|line| line.text).collect();
    let refused = |name| format!("network: a lookup of \"{name}\": no network is granted");
    assert_eq!(lines, [refused("127.0.0.1"), refused("localhost")]);
    let answer = call(&session, "python_read", &json!({ "path": "/data/note" })).await?;
    assert_eq!(answer, "ok: for the tool");
    host.is_idle()
}

/// What the tools of every language do alike.
async fn works(host: &TestHost, plugin: &str) -> Result {
    let session = host.session("agent").await?;
    let tool = |name| format!("{plugin}_{name}");
    let answer = call(&session, &tool("add"), &json!({ "numbers": [1, 2, 3.5] })).await?;
    let sum = answer.strip_prefix("ok: ").with_context(|| answer.clone())?;
    assert_eq!(serde_json::from_str::<Value>(sum)?, json!({ "sum": 6.5, "unit": "m" }));
    let line = Line {
        level: "info".to_owned(),
        plugin: plugin.to_owned(),
        text: "adding 3 numbers".to_owned(),
    };
    assert_eq!(host.logs().lines(), [line]);

    let answer = call(&session, &tool("fail"), &json!({ "code": "not-found" })).await?;
    assert_eq!(answer, "not-found: as it was told");
    let answer = call(&session, &tool("add"), &json!({ "numbers": "many" })).await?;
    assert!(answer.starts_with("invalid: "), "{answer}");
    // What nobody catches ends that call, and nothing else.
    let answer = call(&session, &tool("crash"), &json!({})).await?;
    assert!(answer.starts_with("trapped: "), "{answer}");
    ensure!(host.logs().lines().len() > 1, "what it said on its standard error is not in the log");
    let answer = call(&session, &tool("add"), &json!({ "numbers": [] })).await?;
    assert!(answer.starts_with("ok: "), "{answer}");
    host.is_idle()
}

/// Has the agent call a tool: gives the status and the content of the result.
async fn call(session: &Session, tool: &str, arguments: &Value) -> Result<String> {
    let turn = session.prompt(format!("call {tool} {arguments}"), "")?;
    let report = within(&format!("the answer of `{tool}`"), turn.ended()).await?;
    ensure!(report.outcome == Outcome::Completed(()), "{:?}", report.outcome);
    Ok(report.output)
}

/// A host with the component of that language as a plugin; none where the tool chain cannot be had.
async fn host_with(plugin: &str, language: &Language, grants: &str) -> Result<Option<TestHost>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("languages").join(language.folder);
    fs::create_dir_all(&folder)?;
    // One test, of one process, at a time: what they make is kept for the others, compiled code too.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    let Some(component) = language.component(&folder).await? else { return Ok(None) };
    let tool = Plugin::tool(plugin, component).grants(grants).configuration("unit = \"m\"");
    let host = host().plugin(agent()).plugin(tool).pool(Pool::default()).build()?;
    // A session leaves out tools that cannot be loaded; this says why they cannot.
    host.host().tools_of(host.host().catalogue().get(plugin)?).await?;
    Ok(Some(host))
}

impl Language {
    /// Makes the component, unless it is there already.
    async fn component(&self, folder: &Path) -> Result<Option<Vec<u8>>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let sources = root.join("tests/guests").join(self.folder);

        // Part of it is the place: what is installed does not work in another one.
        let pins = fs::read_to_string(sources.join(self.pins))?;
        let made_of = format!("{pins}\n{:?}\n{}", self.install, folder.display());
        let installed = Stamp { file: folder.join("installed"), made_of };
        if !installed.is_there() {
            fs::copy(sources.join(self.pins), folder.join(self.pins))?;
            for command in self.install {
                if let Err(error) = run(folder, command).await {
                    // Past the capture of output: who reads that the test passed must read this as well.
                    let what = self.component;
                    writeln!(io::stderr(), "skipped: no tool chain for {what}: {error:#}")?;
                    return Ok(None);
                }
            }
            installed.leave()?;
        }

        let source = fs::read_to_string(sources.join(self.source))?;
        let wit = copy_wit(&root, folder)?;
        let made_of = format!("{}\n{source}\n{wit}\n{}", installed.made_of, self.build);
        let built = Stamp { file: folder.join(self.component).with_extension("built"), made_of };
        if !built.is_there() {
            // A copy, because tool chains leave things beside what they read.
            fs::create_dir_all(folder.join("source"))?;
            fs::write(folder.join("source").join(self.source), source)?;
            run(folder, self.build).await?;
            built.leave()?;
        }
        Ok(Some(fs::read(folder.join(self.component))?))
    }
}

/// Copies the interfaces to where the tool chains expect them, and gives their text.
fn copy_wit(root: &Path, folder: &Path) -> Result<String> {
    let mut files = fs::read_dir(root.join("wit"))?.collect::<io::Result<Vec<_>>>()?;
    files.retain(|file| file.path().extension().is_some_and(|extension| extension == "wit"));
    files.sort_by_key(fs::DirEntry::file_name);
    let to = folder.join("wit");
    fs::create_dir_all(&to)?;
    let mut all = String::new();
    for file in files {
        let text = fs::read_to_string(file.path())?;
        fs::write(to.join(file.file_name()), &text)?;
        all.push_str(&text);
    }
    Ok(all)
}

/// A file that says of what something was made: it need not be made again of the same.
struct Stamp {
    file: PathBuf,
    made_of: String,
}

impl Stamp {
    fn is_there(&self) -> bool {
        fs::read_to_string(&self.file).is_ok_and(|text| text == self.made_of)
    }

    fn leave(&self) -> Result {
        Ok(fs::write(&self.file, &self.made_of)?)
    }
}

/// Runs one command of a tool chain in its folder.
async fn run(folder: &Path, command: &str) -> Result {
    let mut words = command.split_whitespace();
    let program = words.next().context("no command")?;
    let path = if program.contains('/') { folder.join(program) } else { PathBuf::from(program) };
    let output = Command::new(path)
        .args(words)
        .current_dir(folder)
        // Another one around the tests would be looked into for packages.
        .env("VIRTUAL_ENV", folder.join("venv"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(STEP, output)
        .await
        .with_context(|| format!("`{program}` took longer than {STEP:?}"))?
        .with_context(|| format!("`{program}` cannot be started"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(output.status.success(), "`{command}`: {}\n{}", output.status, said.trim());
    Ok(())
}

/// A place of this machine to which nobody may connect.
struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    fn new() -> Result<Listener> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        Ok(Listener { address: listener.local_addr()?, listener })
    }

    fn heard_nothing(&self) -> Result {
        let nobody =
            self.listener.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        ensure!(nobody, "somebody connected");
        Ok(())
    }
}
