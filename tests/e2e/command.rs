//! The command as its users meet it: what it prints where, how it ends, and how it is stopped.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use checkrein_testkit::wire::{Reply, Wire};
use checkrein_testkit::{PATIENCE, Plugin, guest};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

type Result<T = ()> = anyhow::Result<T>;

/// A folder with the guests of the tests as plugins, in which the command runs.
struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new() -> Result<Desk> {
        let desk = Desk { folder: tempfile::tempdir()? };
        Plugin::agent("agent", guest("agent")).write(desk.path())?;
        Ok(desk)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn with(self, plugin: &Plugin) -> Result<Desk> {
        plugin.write(self.path())?;
        Ok(self)
    }

    fn file(self, name: &str, text: impl AsRef<[u8]>) -> Result<Desk> {
        fs::write(self.path().join(name), text)?;
        Ok(self)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_checkrein"));
        command
            .args(arguments)
            .current_dir(self.path())
            .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
            .env_remove("CHECKREIN_LOG")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<Ended> {
        Ended::of(self.command(arguments).output()?)
    }
}

/// How the command ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    fn of(output: Output) -> Result<Ended> {
        let Output { status, stdout, stderr } = output;
        let ended = Ended {
            code: status.code(),
            out: String::from_utf8(stdout)?,
            err: String::from_utf8(stderr)?,
        };
        ensure!(!ended.err.contains("panicked"), "{}", ended.err);
        Ok(ended)
    }

    #[track_caller]
    fn is(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in\n{}", self.err);
        }
    }
}

#[test]
fn the_result_is_on_standard_output_and_the_progress_on_standard_error() -> Result {
    let ended = Desk::new()?.run(&["run", "./agent", "progress looking\nsay found it"])?;
    ended.is(0, &["agent started\n", "looking\n", "completed in "]);
    assert_eq!(ended.out, "found it\n");
    Ok(())
}

#[test]
fn every_way_to_end_has_its_exit_code() -> Result {
    let desk = Desk::new()?;
    for (arguments, code, words) in [
        (vec!["./agent", "say done"], 0, vec!["completed"]),
        (
            vec!["./agent", "partial half\nfail denied no grant for it"],
            1,
            vec!["failed", "denied: no grant for it"],
        ),
        (vec!["./agent", "ask why"], 1, vec!["no model is configured: give one with --model"]),
        (vec!["./agent", "trap"], 1, vec!["trapped", "the guest broke off"]),
        (vec!["./agent", "--no-such"], 2, vec!["--no-such"]),
        (vec!["./agent", "spin", "--limit", "fuel=100000"], 4, vec!["`fuel`", "100,000 fuel"]),
        (vec!["./agent", "sleep 100000", "--limit", "wall-time=10ms"], 4, vec!["`wall-time`"]),
        (vec!["./agent", "fail limit enough"], 4, vec!["failed", "limit: enough"]),
        (
            vec!["./agent", "wide-calls 3", "--limit", "calls-in-flight=2"],
            0,
            vec!["completed", "limits reached: calls-in-flight"],
        ),
    ] {
        let all: Vec<&str> = std::iter::once("run").chain(arguments).collect();
        desk.run(&all)?.is(code, &words);
    }
    Ok(())
}

#[test]
fn what_a_run_had_said_is_printed_however_it_ended() -> Result {
    let desk = Desk::new()?;
    assert_eq!(desk.run(&["run", "./agent", "partial half\ntrap"])?.out, "half\n");
    assert_eq!(desk.run(&["run", "./agent", "partial half\nfail failed no"])?.out, "half\n");
    Ok(())
}

#[test]
fn the_task_can_come_from_standard_input() -> Result {
    let desk = Desk::new()?;
    let mut child = desk
        .command(&["run", "./agent", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("a pipe")?.write_all(b"say one\nsay two\n")?;
    assert_eq!(child.wait_with_output()?.stdout, b"one\ntwo\n");
    Ok(())
}

#[test]
fn json_is_one_event_a_line_and_nothing_else() -> Result {
    let desk = Desk::new()?;
    let ended = desk.run(&[
        "run",
        "./agent",
        "progress a\nlogs 3 10\nemits 5 10\nsay x\nfail busy no",
        "--json",
    ])?;
    assert_eq!(ended.code, Some(1));
    let events: Vec<Value> =
        ended.out.lines().map(serde_json::from_str).collect::<std::result::Result<_, _>>()?;
    let of = |key: &str| events.iter().map(|event| event[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("seq"), (1..=events.len()).map(Value::from).collect::<Vec<_>>());
    let kinds: Vec<String> =
        of("event").iter().filter_map(|kind| kind.as_str().map(str::to_owned)).collect();
    assert_eq!(kinds.first().map(String::as_str), Some("run-started"));
    assert_eq!(kinds.last().map(String::as_str), Some("run-ended"));
    assert_eq!(kinds.iter().filter(|kind| *kind == "custom").count(), 5);
    assert_eq!(events.last().map(|event| event["status"].clone()), Some("failed".into()));
    Ok(())
}

#[test]
fn a_reader_that_goes_away_ends_the_run_quietly() -> Result {
    let desk = Desk::new()?;
    let goal = "forever progress again";
    let mut child = piped(desk.command(&["run", "./agent", goal, "--json"]))?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut line)?;
    assert!(line.contains("run-started"), "{line}");
    let mut err = String::new();
    child.stderr.take().context("a pipe")?.read_to_string(&mut err)?;
    assert_eq!(child.wait()?.code(), Some(130), "{err}");
    assert!(!err.contains("panicked") && !err.contains("error"), "{err}");
    Ok(())
}

#[test]
fn a_result_that_nobody_reads_is_no_fault() -> Result {
    let desk = Desk::new()?;
    let mut child = piped(desk.command(&["run", "./agent", "output 500000"]))?;
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().context("a pipe")?.read_to_string(&mut err)?;
    assert_eq!(child.wait()?.code(), Some(0), "{err}");
    assert!(!err.contains("panicked"), "{err}");
    Ok(())
}

#[test]
fn a_full_disk_is_told() -> Result {
    let desk = Desk::new()?;
    let full = fs::File::options().write(true).open("/dev/full")?;
    for form in [&["run", "./agent", "say x"][..], &["run", "./agent", "say x", "--json"]] {
        let ended = Ended::of(
            desk.command(form)
                .stdout(full.try_clone()?)
                .stderr(Stdio::piped())
                .spawn()?
                .wait_with_output()?,
        )?;
        ended.is(1, &["could not write to standard output\n  No space left"]);
    }
    Ok(())
}

#[test]
fn what_is_named_wrong_is_an_error_that_says_what_to_do() -> Result {
    let desk = Desk::new()?
        .file(
            "operator.toml",
            "[plugins.greeter]\npath = \"agent\"\n\n[limits]\nmemroy = \"1MiB\"\n",
        )?
        .file("named.toml", "plugin-directories = [\".\"]\n")?;
    for (arguments, words) in [
        (
            vec!["run", "agnet", "--config", "named.toml"],
            vec!["no plugin called `agnet`; did you mean `agent`?"],
        ),
        (vec!["run", "agent"], vec!["no plugin called `agent`", "write ./agent"]),
        (vec!["run", "./no-such"], vec!["could not open the plugin in ./no-such"]),
        (
            vec!["run", "./agent", "--config", "operator.toml"],
            vec!["operator.toml:5:1", "memroy", "memory"],
        ),
        (vec!["run", "./agent", "--config", "none.toml"], vec!["none.toml does not exist"]),
        (
            vec!["run", "./agent", "--dir", "no/such"],
            vec!["could not use --dir no/such\n  No such file"],
        ),
        (vec!["run", "./agent", "--dir", ".:wr"], vec!["write `:ro` or `:rw`"]),
        (
            vec!["run", "./agent", "--model", "clever"],
            vec!["there is no model `clever`", "scripted:FILE"],
        ),
        (vec!["run", "./agent", "--model", "scripted:no.toml"], vec!["no.toml cannot be read"]),
        (vec!["run", "./agent", "--limit", "feul=1"], vec!["feul"]),
        (vec!["run", "./agent", "--input", "{"], vec!["not JSON"]),
    ] {
        let ended = desk.run(&arguments)?;
        ended.is(2, &words);
        assert!(ended.out.is_empty() && !ended.err.contains("Error {"), "{ended:?}");
    }
    Ok(())
}

#[test]
fn a_manifest_that_is_wrong_is_refused_with_the_place() -> Result {
    let manifest =
        Plugin::agent("agent", Vec::new()).manifest().replace("[limits]", "[limits]\nfuel = -1");
    let desk = Desk::new()?.file("agent/plugin.toml", manifest)?;
    desk.run(&["run", "./agent"])?
        .is(2, &["agent/plugin.toml:13:8: `limits.fuel`: -1 is below zero"]);
    let checked = desk.run(&["plugin", "check", "./agent"])?;
    checked.is(3, &[]);
    assert!(
        checked.out.contains("would not load here") && checked.out.contains("agent/plugin.toml:"),
        "{checked:?}"
    );
    Ok(())
}

#[test]
fn a_directory_and_a_model_reach_the_run() -> Result {
    let desk =
        Desk::new()?.file("script.toml", "[[reply]]\ntext = \"you said: {{last-message}}\"\n")?;
    let ended = desk.run(&["run", "./agent", "ask why", "--model", "scripted:script.toml"])?;
    assert_eq!(ended.out, "you said: why\n", "{ended:?}");
    Ok(())
}

#[test]
fn what_decides_about_guests_is_not_given_to_one_for_writing() -> Result {
    let config = "plugin-directories = [\"more\"]\n[models.main]\nkind = \"openai\"\nmodel = \"m\"\n\
        key-file = \"keys/main\"\n[plugins.agent.grants.secrets]\ntoken = { file = \"tokens/token\" }\n";
    let desk = Desk::new()?.file("operator.toml", config)?;
    for folder in ["work", "more/sub", "keys", "tokens"] {
        fs::create_dir_all(desk.path().join(folder))?;
    }
    let config: &[&str] = &["--config", "operator.toml"];
    let run = |directory, more: &[&str]| {
        desk.run(&[&["run", "./agent", "say done", "--dir", directory], more].concat())
    };
    for (directory, more, holds) in [
        (".:rw", config, "operator.toml holds the configuration: give a subfolder without it"),
        (".:rw", &[], "agent holds the plugin `agent`: give a subfolder without it"),
        ("agent:rw", &[], "agent holds the plugin `agent`"),
        ("more/sub:rw", config, "more holds plugins: give a folder outside it"),
        ("keys:rw", config, "keys/main holds the key of the model `main`"),
        ("tokens:rw", config, "tokens/token holds the secret `token` of `agent`"),
    ] {
        run(directory, more)?.is(2, &["cannot be given for writing", holds, "`:ro`"]);
    }
    run("work:rw", config)?.is(0, &[]);
    run(".:ro", config)?.is(0, &[]);
    Ok(())
}

#[test]
fn the_configuration_has_its_say() -> Result {
    let config = "plugin-directories = [\".\"]\ndefault-model = \"main\"\n[models.main]\nkind = \"scripted\"\n\
        script = \"script.toml\"\n[models.other]\nkind = \"scripted\"\nscript = \"other.toml\"\n[plugins.agent.limits]\nfuel = 100\n\
        [plugins.agent.grants]\nmodels = [\"*\"]\n";
    let desk = Desk::new()?
        .file("operator.toml", config)?
        .file("script.toml", "[[reply]]\ntext = \"main\"\n")?
        .file("other.toml", "[[reply]]\ntext = \"other\"\n")?;
    let run = |more: &[&str]| {
        desk.run(&[&["run", "agent", "ask who", "--config", "operator.toml"], more].concat())
    };
    run(&[])?.is(4, &["`fuel`"]);
    assert_eq!(run(&["--limit", "fuel=none"])?.out, "main\n");
    assert_eq!(run(&["--limit", "fuel=none", "--model", "other"])?.out, "other\n");
    Ok(())
}

#[test]
fn the_first_ctrl_c_lets_the_run_finish() -> Result {
    let desk = Desk::new()?;
    let mut running = Running::start(
        &desk,
        &["run", "./agent", "progress ready\ntry sleep 100000\nstop?\nsay wrapped up"],
    )?;
    running.says("ready")?;
    running.signal(Signal::INT)?;
    running.says(
        "stopping: the run may finish what it is doing within 30.0 s; Ctrl-C again ends it now",
    )?;
    let (status, out) = running.ended()?;
    assert_eq!(status.code(), Some(130));
    assert!(
        out.contains("soft | Ctrl-C was pressed | user") && out.contains("wrapped up"),
        "{out}"
    );
    Ok(())
}

/// A folder that a survey reads in two parts.
fn two_parts(desk: &Desk, files: u64) -> Result {
    for part in 0..2 {
        let folder = desk.path().join(format!("tree/p{part}"));
        fs::create_dir_all(&folder)?;
        for file in 0..files {
            // Two of them fill a part, and nothing is in them to read.
            let size = (31 << 20) - 2 * part - file;
            fs::File::create(folder.join(format!("large{file}.rs")))?.set_len(size)?;
        }
    }
    Ok(())
}

#[test]
fn the_lines_of_a_child_begin_with_its_number() -> Result {
    let desk = Desk::new()?;
    two_parts(&desk, 2)?;
    let ended = desk.run(&["run", "surveyor", "survey it", "--dir", "tree:ro"])?;
    ended.is(
        0,
        &[
            "\nparts 1 to 2 of 2 go to 2 children\n",
            "\n[1] surveyor: read part 1 of 2: p0/ (2 files, 62.0 MiB)\n",
            "\n[2] surveyor: read part 2 of 2: p1/ (2 files, 62.0 MiB)\n",
            "\n[1] 0 of 2 files read\n",
            "\n[2] 0 of 2 files read\n",
            "\n[2]   files_search ",
            "\n[1] completed\n",
            "\n[2] completed\n",
        ],
    );
    assert!(ended.out.contains("`.rs` (4)") && !ended.out.contains("Partial"), "{}", ended.out);
    Ok(())
}

#[test]
fn ctrl_c_in_the_middle_of_children_gives_a_report_that_says_what_is_missing() -> Result {
    let desk = Desk::new()?;
    let folder = desk.path().join("tree/many");
    fs::create_dir_all(&folder)?;
    for file in 0..3_300 {
        fs::write(folder.join(format!("{file}.txt")), "words\n")?;
    }
    let mut running = Running::start(&desk, &["run", "surveyor", "survey it", "--dir", "tree:ro"])?;
    // Each may take a while: what is not yet in the cache is compiled.
    for place in ["surveyor started", "listed 3,300 files", "[3] surveyor: read part 3 of 3: "] {
        running.says(place)?;
    }
    running.signal(Signal::INT)?;
    running.says("stopping: ")?;
    let (status, out) = running.ended()?;
    assert_eq!(status.code(), Some(130), "{out}");
    let begin = "> **Partial report.** Stopped by user: Ctrl-C was pressed\n>\n> Missing:\n> - ";
    assert!(
        out.contains(begin) && out.contains(" of 3 parts were not read, or not to the end"),
        "{out}"
    );
    Ok(())
}

#[test]
fn the_second_ctrl_c_ends_a_run_that_does_not_listen() -> Result {
    let desk = Desk::new()?;
    let mut running =
        Running::start(&desk, &["run", "./agent", "partial half\nprogress ready\nspin"])?;
    running.says("ready")?;
    running.signal(Signal::INT)?;
    running.says("stopping: ")?;
    running.signal(Signal::INT)?;
    running.says("ending the run now")?;
    running.says("interrupted in ")?;
    let (status, out) = running.ended()?;
    assert_eq!((status.code(), out.as_str()), (Some(130), "half\n"));
    Ok(())
}

#[test]
fn being_asked_to_end_is_a_stop_by_the_operator() -> Result {
    let desk = Desk::new()?.file("operator.toml", "[stop]\ngrace = \"0s\"\n")?;
    let mut running = Running::start(
        &desk,
        &["run", "./agent", "progress ready\nspin", "--config", "operator.toml"],
    )?;
    running.says("ready")?;
    running.signal(Signal::TERM)?;
    running.says("stopped by operator: the command was asked to end (SIGTERM)")?;
    assert_eq!(running.ended()?.0.code(), Some(130));
    Ok(())
}

/// Whoever does not read the result can still end the command.
#[test]
fn ctrl_c_ends_the_command_while_nobody_takes_its_output() -> Result {
    let desk = Desk::new()?;
    let mut running = Running::start(&desk, &["run", "./agent", "output 900000"])?;
    running.says("completed in ")?;
    // The pipe is full now, or will be: nobody has read from it.
    running.signal(Signal::INT)?;
    assert_eq!(running.child.wait()?.code(), Some(130));
    Ok(())
}

/// A terminal that takes nothing any more can hold every thread of the host; not the one that hears signals.
#[test]
fn ctrl_c_ends_the_command_while_nobody_takes_its_log() -> Result {
    let desk = Desk::new()?;
    let (_unread, mut full) = std::io::pipe()?;
    rustix::io::ioctl_fionbio(&full, true)?;
    while full.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&full, false)?;
    let mut command = desk.command(&["run", "./agent", "forever logs 1 7", "--json", "-v"]);
    let mut child = command.stdout(Stdio::piped()).stderr(full).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut line)?;
    assert!(line.contains("run-started"), "{line}");
    // Signals that come together are one; the command hears as many as it needs.
    let began = Instant::now();
    let status = loop {
        kill_process(Pid::from_child(&child), Signal::INT)?;
        thread::sleep(Duration::from_millis(50));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        ensure!(began.elapsed() < PATIENCE, "it does not end");
    };
    assert_eq!(status.code(), Some(130));
    Ok(())
}

#[test]
fn the_list_shows_what_there_is_and_what_is_wrong_with_the_rest() -> Result {
    let other = Plugin::agent("agent", guest("agent"));
    let desk = Desk::new()?
        .with(&Plugin::tool("tool", guest("tool")))?
        .file("operator.toml", "plugin-directories = [\".\", \"more\"]\n")?;
    other.write(&desk.path().join("more"))?;
    Plugin::tool("lost", Vec::new()).write(desk.path())?;
    fs::remove_file(desk.path().join("lost/lost.wasm"))?;
    let listed = desk.run(&["plugin", "list", "--config", "operator.toml"])?;
    listed.is(0, &[]);
    for words in [
        "agent ",
        "tool ",
        "cannot be run:\n  lost  ./lost\n",
        "lost.wasm does not exist",
        "hidden by another",
        "more/agent",
    ] {
        assert!(listed.out.contains(words), "`{words}` is not in\n{}", listed.out);
    }
    let listed = desk.run(&["plugin", "list", "--config", "operator.toml", "--json"])?;
    let list: Value = serde_json::from_str(&listed.out)?;
    let names = |key: &str| {
        list[key]
            .as_array()
            .map(|all| all.iter().map(|one| one["name"].clone()).collect::<Vec<_>>())
    };
    assert_eq!(names("broken"), Some(vec!["lost".into()]));
    assert_eq!(names("hidden"), Some(vec!["agent".into()]));
    assert!(names("plugins").is_some_and(|names| names.contains(&"tool".into())), "{list}");
    Ok(())
}

#[test]
fn inspecting_shows_what_is_asked_for_and_what_is_given() -> Result {
    let tool = Plugin::tool("tool", guest("tool"))
        .grants("directories = [{ mount = \"*\", access = \"read-write\" }]\nsecrets = [\"token\"]")
        .limits("memory = \"16MiB\"")
        .configuration("depth = 3");
    let desk = Desk::new()?.with(&tool)?;
    let seen = desk.run(&["plugin", "inspect", "./tool", "--dir", "."])?;
    seen.is(0, &[]);
    for words in [
        "tool 0.1.0 (tool)",
        "digest     sha256:",
        "made with  checkrein-guest 0.1.0",
        "  checkrein:plugin/log@0.1.0\n",
        "  describe\n",
        "  directory  * (read-write)  narrowed: given for reading only: /work\n",
        "  secret     token           denied: the operator does not give this secret\n",
        "asks for 16 MiB, the ceiling is 64 MiB",
        "configuration\n  depth\n",
    ] {
        assert!(seen.out.contains(words), "`{words}` is not in\n{}", seen.out);
    }
    let seen = desk.run(&["plugin", "inspect", "./tool", "--json"])?;
    let seen: Value = serde_json::from_str(&seen.out)?;
    assert_eq!(seen["requests"][1]["verdict"], "denied");
    assert_eq!(seen["limits"]["memory"]["effective"], "16 MiB");
    assert_eq!(seen["isolation"], "instance");
    assert!(
        seen["tools"][0]["name"].as_str().is_some_and(|name| name.starts_with("tool_")),
        "{seen}"
    );
    Ok(())
}

#[test]
fn checking_says_which_import_or_export_is_the_reason() -> Result {
    let component = |text: &str| wat::parse_str(format!("(component {text})"));
    let newer = component("(import \"checkrein:plugin/run@0.2.0\" (instance))")?;
    let alien = component("(import \"acme:vault/keys@1.0.0\" (instance))")?;
    let desk = Desk::new()?
        .with(&Plugin::agent("newer", newer))?
        .with(&Plugin::agent("alien", alien))?
        .with(&Plugin::agent("swapped", guest("tool")))?
        .with(&Plugin::agent("module", &b"\0asm\x01\0\0\0"[..]))?
        .with(&Plugin::agent("prose", &b"not a component at all"[..]))?
        .with(&Plugin::agent("torn", &guest("agent")[..50_000]))?
        .with(&Plugin::agent("noise", &guest("agent")[50_000..60_000]))?
        .with(&Plugin::agent("empty", component("")?))?
        .with(&Plugin::agent("huge", vec![0; 100_000_000]))?
        .with(&Plugin::tool("tool", guest("tool")))?;
    for (plugin, code, words) in [
        ("./agent", 0, vec!["would load here", "made with checkrein-guest"]),
        ("./tool", 0, vec!["would load here", "tool_"]),
        (
            "./newer",
            3,
            vec![
                "would not load here",
                "checkrein:plugin/run@0.2.0, which was made for a newer host",
            ],
        ),
        ("./alien", 3, vec!["acme:vault/keys@1.0.0, which this host does not serve"]),
        (
            "./swapped",
            3,
            vec!["does not export the function `run`", "looks like a component of a tool"],
        ),
        ("./module", 3, vec!["core WebAssembly module", "wasm32-wasip2"]),
        ("./prose", 3, vec!["not a component", "it is text"]),
        ("./torn", 3, vec!["the component is not valid", "out of bounds"]),
        ("./noise", 3, vec!["not a component", "no WebAssembly at all"]),
        ("./empty", 3, vec!["does not export the function `run`"]),
        ("./huge", 3, vec!["is larger than 64 MiB"]),
    ] {
        let checked = desk.run(&["plugin", "check", plugin])?;
        checked.is(code, &[]);
        for word in words {
            assert!(checked.out.contains(word), "{plugin}: `{word}` is not in\n{}", checked.out);
        }
        let json: Value =
            serde_json::from_str(&desk.run(&["plugin", "check", plugin, "--json"])?.out)?;
        assert_eq!(json["loads"], code == 0, "{plugin}");
    }
    desk.run(&["run", "./newer"])?
        .is(3, &["could not load the agent `newer`", "checkrein plugin check"]);
    Ok(())
}

#[test]
fn the_log_goes_to_standard_error_as_far_as_it_is_asked_for() -> Result {
    let desk = Desk::new()?;
    let goal = ["run", "./agent", "logs 1 7\nsay x"];
    assert!(!desk.run(&goal)?.err.contains("lllllll"));
    let ended = desk.run(&[&goal[..], &["-v"]].concat())?;
    assert!(ended.err.contains("lllllll") && ended.out == "x\n", "{ended:?}");
    let filtered = desk.command(&goal).env("CHECKREIN_LOG", "checkrein=info").output()?;
    assert!(String::from_utf8_lossy(&filtered.stderr).contains("lllllll"));
    let wrong = Ended::of(desk.command(&goal).env("CHECKREIN_LOG", "checkrein=loud").output()?)?;
    wrong.is(2, &["CHECKREIN_LOG", "checkrein=loud"]);
    Ok(())
}

/// A line of the log is one JSON object, and says in which run it was written.
#[test]
fn the_log_can_be_json() -> Result {
    let desk = Desk::new()?;
    let goal = ["run", "./agent", "logs 1 7\nsay x"];
    let flagged = desk.command(&goal).args(["-v", "--log-format", "json"]).output()?;
    let named = desk
        .command(&goal)
        .env("CHECKREIN_LOG", "checkrein=info")
        .env("CHECKREIN_LOG_FORMAT", "json")
        .output()?;
    for output in [flagged, named] {
        let err = String::from_utf8(output.stderr)?;
        let line = err.lines().find(|line| line.contains("lllllll"));
        let line: serde_json::Value = serde_json::from_str(line.unwrap_or_default())?;
        assert_eq!(line["level"], "INFO", "{line}");
        assert_eq!(line["fields"]["plugin"], "agent", "{line}");
        let span = &line["span"];
        assert_eq!((&span["name"], &span["kind"]), (&"turn".into(), &"turn".into()), "{line}");
        assert_eq!(span["agent"], "agent", "{line}");
        let (session, run) = (span["session"].as_str(), span["run"].as_str());
        assert_eq!(run, session.map(|session| format!("{session}.1")).as_deref(), "{line}");
    }
    // A child is inside the turn that asked for it.
    let tasks = r#"delegate {"mode":"inline","tasks":[{"goal":"logs 1 9"}]}"#;
    let output = desk.command(&["run", "./agent", tasks, "-v", "--log-format=json"]).output()?;
    let err = String::from_utf8(output.stderr)?;
    let line = err.lines().find(|line| line.contains("lllllllll"));
    let line: serde_json::Value = serde_json::from_str(line.unwrap_or_default())?;
    let spans = line["spans"].as_array().map_or(&[][..], Vec::as_slice);
    let spans: Vec<&str> = spans.iter().filter_map(|span| span["name"].as_str()).collect();
    assert_eq!(spans, ["turn", "child"], "{line}");
    let wrong = desk.command(&goal).env("CHECKREIN_LOG_FORMAT", "yaml").output()?;
    Ended::of(wrong)?.is(2, &["CHECKREIN_LOG_FORMAT", "yaml", "`text` or `json`"]);
    Ok(())
}

/// What a child, its tools and its models are about can be followed by their ids.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_the_log_names_the_work_that_it_was_written_in() -> Result {
    let wire = Wire::start().await?;
    wire.reply(Reply::new().text("an answer"));
    let models = format!(
        "default-model = \"main\"\n[models.main]\nkind = \"openai\"\nmodel = \"m\"\nbase-url = \"{}\"\n",
        wire.openai()
    );
    let desk = Desk::new()?.with(&Plugin::tool("tool", guest("tool")))?.file("c.toml", models)?;
    let goal = r#"delegate {"mode":"inline","tasks":[{"goal":"ask something\ncall tool_logs {\"text\":\"lllllll\",\"count\":1}"}]}"#;
    let mut command = desk.command(&["run", "--config", "c.toml", "--plugin", "./tool"]);
    command.args(["./agent", goal, "--log-format=json"]).env("CHECKREIN_LOG", "checkrein=debug");
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let err = String::from_utf8(output.stderr)?;
    assert!(output.status.success(), "{err}");
    // Of the tool's own line, and of what was said of the answer of the model.
    for (words, name, key, value) in [
        ("\"lllllll\"", "tool call", "tool", "tool_logs"),
        ("a model answers", "model request", "model", "main"),
    ] {
        let line = err.lines().find(|line| line.starts_with('{') && line.contains(words));
        let line: serde_json::Value = serde_json::from_str(line.unwrap_or_default())?;
        let spans = line["spans"].as_array().map_or(&[][..], Vec::as_slice);
        let all: Vec<[&str; 3]> = spans
            .iter()
            .map(|span| ["name", "kind", "run"].map(|key| span[key].as_str().unwrap_or_default()))
            .collect();
        let session = spans[0]["session"].as_str().unwrap_or_default();
        let (turn, child) = (format!("{session}.1"), format!("{session}.1.1"));
        let expected = [["turn", "turn", &turn], ["child", "child", &child], [name, name, &child]];
        assert_eq!(all, expected, "{line}");
        assert!(spans.iter().all(|span| span["session"] == session), "{line}");
        assert_eq!(spans[2][key], value, "{line}");
    }
    Ok(())
}

/// Where nothing can be sent, being asked to send is an error, and so is an address that is none.
#[test]
fn an_endpoint_for_spans_is_not_taken_in_vain() -> Result {
    let said = |text: &str| {
        Desk::new()?.file("telemetry.toml", text)?.run(&[
            "run",
            "--config",
            "telemetry.toml",
            "./agent",
            "say x",
        ])
    };
    let wrong = said("[telemetry]\notlp-endpoint = \"collector\"\n")?;
    wrong.is(2, &["telemetry.toml:2:17", "`collector` is no address"]);
    if !cfg!(feature = "otel") {
        let named = said("[telemetry]\notlp-endpoint = \"http://127.0.0.1:4318/v1/traces\"\n")?;
        named.is(2, &["otlp-endpoint", "feature `otel`"]);
    }
    Ok(())
}

#[test]
fn help_and_version_are_results() -> Result {
    let desk = Desk::new()?;
    let help = desk.run(&["run", "--help"])?;
    help.is(0, &[]);
    assert!(help.out.contains("130  interrupted"), "{}", help.out);
    assert!(!desk.run(&["--help"])?.out.contains("compile-child"));
    assert!(desk.run(&["--version"])?.out.starts_with("checkrein "));
    desk.run(&[])?.is(2, &["Usage: checkrein"]);
    Ok(())
}

fn piped(mut command: Command) -> Result<Child> {
    Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

/// The command while it runs. Its standard output is read at the end, its standard error line by line.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Running {
    fn start(desk: &Desk, arguments: &[&str]) -> Result<Running> {
        let mut child = piped(desk.command(arguments))?;
        let err = child.stderr.take().context("a pipe")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(err)
                .lines()
                .map_while(std::io::Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Ok(Running { child, lines })
    }

    /// Waits for a line with these words.
    fn says(&mut self, words: &str) -> Result {
        loop {
            let line = self
                .lines
                .recv_timeout(PATIENCE)
                .with_context(|| format!("it did not say `{words}`"))?;
            if line.contains(words) {
                return Ok(());
            }
        }
    }

    fn signal(&self, signal: Signal) -> Result {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    fn ended(mut self) -> Result<(ExitStatus, String)> {
        let mut out = String::new();
        self.child.stdout.take().context("a pipe")?.read_to_string(&mut out)?;
        Ok((self.child.wait()?, out))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing is left behind by a test that fails; one that has ended cannot be killed.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
