//! What goes wrong around a daemon: each fault on a thread of its own, again and again until the end.

use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use checkrein_testkit::{PATIENCE, Plugin, Random, guest, neighbour_answer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::talk::{Talk, Told};
use crate::api::daemon::Daemon;

/// Connections of stalled clients at one time.
const STALLED: usize = 40;

/// How long one waits where it would only be in the way.
const PAUSE: Duration = Duration::from_millis(20);

/// How a full disk is had.
pub(super) enum Filled {
    /// The disk of the profile, as the daemon sees it.
    Disk(PathBuf),
    /// A bound of its store.
    Bound,
}

/// What goes wrong.
pub(super) enum Fault {
    /// Clients that connect, say half of something or nothing, and are gone.
    Stalls(Arc<Talk>, Random),
    /// Processes of guests that are killed.
    Kills(Arc<Talk>, Pid),
    /// Profiles that come, go and break.
    Changes(Arc<Talk>, PathBuf),
    /// A disk that is full.
    Fills(Arc<Talk>, Filled),
}

/// All of them.
pub(super) fn all(
    daemon: &Daemon,
    talk: &Arc<Talk>,
    filled: Filled,
    random: &mut Random,
) -> Vec<Fault> {
    let profiles = daemon.home().join("profiles");
    let all = vec![
        Fault::Stalls(Arc::clone(talk), Random::new(random.below(u64::MAX))),
        Fault::Kills(Arc::clone(talk), daemon.pid()),
        Fault::Changes(Arc::clone(talk), profiles),
        Fault::Fills(Arc::clone(talk), filled),
    ];
    for fault in &all {
        talk.awaits(fault.name());
    }
    all
}

impl Fault {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Fault::Stalls(..) => "clients that stall and vanish",
            Fault::Kills(..) => "killed workers",
            Fault::Changes(..) => "profiles that change",
            Fault::Fills(..) => "a full disk",
        }
    }

    /// Goes on until the daemon is asked to end, and says what came of it.
    pub(super) fn goes_on(mut self) -> Result<String> {
        let name = self.name();
        let (mut count, mut stalled) = (0_u32, VecDeque::new());
        while !self.talk().is_ending() {
            let gone = match &mut self {
                Fault::Stalls(talk, random) => stalls(talk, random, &mut stalled),
                Fault::Kills(talk, daemon) => kills(talk, *daemon),
                Fault::Changes(talk, profiles) => changes(talk, profiles),
                Fault::Fills(talk, filled) => fills(talk, filled),
            };
            match gone {
                Ok(()) => count += 1,
                // The daemon ends in the middle of it.
                Err(_) if self.talk().is_ending() => break,
                Err(error) => {
                    // The others need not wait for this one.
                    self.talk().has_met(name);
                    return Err(error);
                }
            }
            self.talk().has_met(name);
        }
        Ok(format!("{count} times"))
    }

    fn talk(&self) -> &Talk {
        match self {
            Fault::Stalls(talk, _)
            | Fault::Kills(talk, _)
            | Fault::Changes(talk, _)
            | Fault::Fills(talk, _) => talk,
        }
    }
}

/// One more client that is no good, and the oldest of them is gone.
fn stalls(
    talk: &Talk,
    random: &mut Random,
    stalled: &mut VecDeque<std::os::unix::net::UnixStream>,
) -> Result<()> {
    let mut stream = talk.client().connect()?;
    let sessions = "/v1/profiles/main/sessions";
    // The daemon may have had enough of it at any moment.
    match random.below(6) {
        0 => {}
        1 => write!(stream, "GET {sessions} HTTP/1.1\r\nho").unwrap_or_default(),
        2 => write!(
            stream,
            "POST {sessions} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{{"
        )
        .unwrap_or_default(),
        3 => write!(
            stream,
            "GET {sessions}/s{}/events HTTP/1.1\r\nhost: x\r\n\r\n",
            1 + random.below(1000)
        )
        .unwrap_or_default(),
        4 => {
            let body = json!({ "goal": "say never", "wait": true, "queue": true }).to_string();
            write!(
                stream,
                "POST {sessions}/none/prompts HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .unwrap_or_default();
        }
        _ => stream.write_all(b"\x16\x03\x01\0\0\r\n\r\n").unwrap_or_default(),
    }
    stalled.push_back(stream);
    if stalled.len() > STALLED {
        stalled.pop_front();
    }
    thread::sleep(PAUSE);
    Ok(())
}

/// A turn loses its process. Rule M4: it had begun, and so nobody knows how it ended.
fn kills(talk: &Talk, daemon: Pid) -> Result<()> {
    let session = talk.opens("apart")?;
    for _ in 0..4 {
        let number = talk.number();
        let turn =
            talk.prompts(&session, &format!("say p{number}\npartial here\ntry sleep 600000"))?;
        is_said(talk, &turn, "partial")?;
        let worker = children(daemon)?.into_iter().next().context("a process of a guest")?;
        kill_process(worker, Signal::KILL)?;
        let status = talk.hears_the_end(&turn)?;
        ensure!(status == "unknown", "{turn:?} lost its process, and is {status}");
    }
    Ok(())
}

/// Waits for an event of a turn.
fn is_said(talk: &Talk, turn: &Told, name: &str) -> Result<()> {
    let mut events = talk.client().events(&turn.session, 0)?;
    loop {
        let event = events.next()?.context("more events")?;
        let generation =
            event.data["run"].as_str().and_then(|run| run.rsplit('.').next()?.parse().ok());
        if event.event == name && generation == Some(turn.generation) {
            return Ok(());
        }
    }
}

/// The processes that a process has started and that are not compilers.
fn children(of: Pid) -> Result<Vec<Pid>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
        let after = stat.rsplit(") ").next().unwrap_or_default();
        let parent = after.split(' ').nth(1).and_then(|parent| parent.parse().ok());
        if parent != Some(of.as_raw_nonzero().get()) {
            continue;
        }
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let id = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        if line.split(|byte| *byte == 0).any(|word| word == b"worker") {
            children.extend(id.and_then(Pid::from_raw));
        }
    }
    Ok(children)
}

/// A profile comes, works, has its plugins changed, goes in the middle of something, breaks and comes again, and another one breaks and goes on.
fn changes(talk: &Talk, profiles: &Path) -> Result<()> {
    let (away, here) = (profiles.join(".coming"), profiles.join("coming"));
    let file = here.join("profile.toml");
    fs::rename(&away, &here)?;
    until(talk, "it is served", || Ok(served(talk)? == Some(true)))?;
    talk.is_kept_in("coming")?;
    let session = talk.opens("coming")?;
    let turn = talk.prompts(&session, &format!("say p{}\nsay whole", talk.number()))?;
    ensure!(talk.hears_the_end(&turn)? == "completed", "{turn:?}");
    let lasting = format!("say p{}\npartial so far\ntry sleep 600000", talk.number());
    talk.prompts(&session, &lasting)?;
    plugins_change(talk, profiles)?;
    // It goes with a turn in it.
    fs::rename(&here, &away)?;
    until(talk, "it is gone", || Ok(served(talk)?.is_none()))?;
    // It comes back broken.
    let good = fs::read_to_string(away.join("profile.toml"))?;
    fs::write(away.join("profile.toml"), "plugin-directories = 7")?;
    fs::rename(&away, &here)?;
    until(talk, "it is parked", || Ok(served(talk)? == Some(false)))?;
    let refused = talk.try_to_open("coming")?;
    ensure!((refused.status, refused.kind()) == (503, "refused"), "{refused:?}");
    fs::write(&file, good)?;
    reload(talk)?;
    until(talk, "it is served again", || Ok(served(talk)? == Some(true)))?;
    talk.is_kept_in("coming")?;
    // One whose new configuration is wrong goes on with the old one, and its turns with it.
    let main = profiles.join("main/profile.toml");
    let good = fs::read_to_string(&main)?;
    fs::write(&main, "this is no configuration")?;
    let reloaded = reload(talk)?;
    ensure!(reloaded["not-reloaded"]["main"].is_string(), "{reloaded}");
    let another = talk.opens("main")?;
    let turn = talk.prompts(&another, &format!("say p{}", talk.number()))?;
    ensure!(talk.hears_the_end(&turn)? == "completed", "{turn:?}");
    fs::write(&main, good)?;
    reload(talk)?;
    fs::rename(&here, &away)?;
    until(talk, "it is gone", || Ok(served(talk)?.is_none()))
}

/// A plugin comes, is rebuilt and goes, and one that runs all the time is put in its own place again.
fn plugins_change(talk: &Talk, profiles: &Path) -> Result<()> {
    let plugins = profiles.join("coming/plugins");
    let opens = || talk.client().post("/v1/profiles/coming/sessions", &json!({ "agent": "later" }));
    Plugin::agent("later", guest("agent")).write(&plugins)?;
    reload(talk)?;
    let opened = opens()?;
    ensure!(opened.status == 201, "{opened:?}");
    let id = opened.body["id"].as_str().context("an id")?;
    let session = format!("/v1/profiles/coming/sessions/{id}");
    ensure!(talk.client().turn(&session, "say first")?["output"] == "first");
    Plugin::agent("later", guest("neighbour")).write(&plugins)?;
    reload(talk)?;
    let output = &talk.client().turn(&session, "0")?["output"];
    ensure!(*output == neighbour_answer(0), "{output}");
    fs::remove_dir_all(plugins.join("later"))?;
    reload(talk)?;
    let refused = opens()?;
    ensure!(refused.status == 404, "{refused:?}");
    let running = profiles.join("main/plugins/agent");
    fs::copy(running.join("agent.wasm"), running.join("agent.next"))?;
    fs::rename(running.join("agent.next"), running.join("agent.wasm"))?;
    reload(talk)?;
    Ok(())
}

fn reload(talk: &Talk) -> Result<Value> {
    let answer = talk.client().post("/v1/reload", &json!({}))?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(answer.body)
}

/// Whether the profile that comes and goes is served; none when it is not there.
fn served(talk: &Talk) -> Result<Option<bool>> {
    let profiles = talk.get("/v1/profiles")?;
    let profiles = profiles["profiles"].as_array().context("profiles")?;
    let coming = profiles.iter().find(|profile| profile["name"] == "coming");
    Ok(coming.and_then(|profile| profile["served"].as_bool()))
}

/// A disk is filled to its last byte. Work of its profile is refused, the other profiles do not notice, and when there is room
/// again all that was promised is there.
fn fills(talk: &Talk, filled: &Filled) -> Result<()> {
    let session = talk.opens("full")?;
    has_room(talk, &session)?;
    let filler = match filled {
        Filled::Disk(disk) => Some(disk.join("filler")),
        Filled::Bound => None,
    };
    let mut room = 0;
    if let Some(filler) = &filler {
        let mut file = fs::File::create(filler)?;
        // Until there is not room for one byte more.
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
        room = file.metadata()?.len();
    }
    // Turns that take room, until one is refused. The log of the database still has some.
    let mut begun = Vec::new();
    let refused = loop {
        let goal = format!("say p{}\ntry emits 40 4000", talk.number());
        let answer = talk.try_to_prompt(&session, &goal)?;
        match (answer.status, answer.kind()) {
            (202, _) => begun.push(talk.recorded(&session, &goal, &answer)?),
            (409, "busy") => thread::sleep(PAUSE),
            _ => break answer,
        }
        ensure!(begun.len() < 1_000, "the disk is never full");
    };
    ensure!(
        refused.status == 503 && refused.kind() == "store" || refused.kind() == "limit",
        "{refused:?}"
    );
    let another = talk.opens("main")?;
    let turn = talk.prompts(&another, &format!("say p{}", talk.number()))?;
    ensure!(talk.hears_the_end(&turn)? == "completed", "{turn:?}");
    let Some(filler) = filler else {
        // What is full stays full. It is seen once.
        talk.has_met("a full disk");
        while !talk.is_ending() {
            thread::sleep(PAUSE);
        }
        return Ok(());
    };
    fs::remove_file(filler)?;
    for turn in &begun {
        talk.hears_the_end(turn)?;
    }
    has_room(talk, &session)?;
    talk.is_kept_in("full")?;
    // Whoever followed it may not be gone yet.
    until(talk, "it is deleted", || {
        let deleted = talk.client().ask("DELETE", &session, None)?;
        ensure!([204, 409].contains(&deleted.status), "{deleted:?}");
        Ok(deleted.status == 204)
    })?;
    talk.forgets(&session);
    // The database keeps the pages of what was deleted. Once it has all of the disk, no room can be made for it.
    if room < super::DISK / 4 * 3 {
        let compacted = talk.client().ask("POST", "/v1/profiles/full/compact", None)?;
        ensure!(compacted.status == 200, "{compacted:?}");
    }
    Ok(())
}

/// Waits until work is taken, and done.
fn has_room(talk: &Talk, session: &str) -> Result<()> {
    until(talk, "it takes work", || {
        let goal = format!("say p{}", talk.number());
        let answer = talk.try_to_prompt(session, &goal)?;
        match answer.status {
            202 => {
                let turn = talk.recorded(session, &goal, &answer)?;
                ensure!(talk.hears_the_end(&turn)? == "completed", "{turn:?}");
                Ok(true)
            }
            409 | 503 => Ok(false),
            _ => bail!("{answer:?}"),
        }
    })
}

/// Waits for something that the daemon does by itself.
fn until(talk: &Talk, what: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !holds()? {
        ensure!(!talk.is_ending(), "the daemon ends");
        let waits = began.elapsed() < PATIENCE;
        ensure!(waits, "waited in vain: {what}; {}", talk.get("/v1/profiles")?);
        thread::sleep(PAUSE);
    }
    Ok(())
}
