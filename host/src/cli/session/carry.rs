//! `checkrein session export` and `import`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Cursor, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use checkrein::HomeStore;
use checkrein::store::{Archive, RunningTurn};
use serde_json::{Value, json};

use super::place::Place;
use super::target::Target;
use crate::cli::code::Code;
use crate::cli::daemon::{client, only_profile, word};
use crate::cli::problem::Problem;
use crate::cli::{setup, text};

/// The most bytes of a session that is read in.
const MOST: u64 = 4 << 30;

/// The arguments of `checkrein session export`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Export {
    #[command(flatten)]
    place: Place,
    /// The session: ID, or PROFILE/ID where a daemon has several profiles.
    #[arg(value_name = "SESSION")]
    session: String,
    /// The file, which is replaced if it is there; `-` is standard output.
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Also while a turn is going on: with what is recorded so far.
    #[arg(long)]
    running: bool,
}

/// The arguments of `checkrein session import`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Import {
    #[command(flatten)]
    place: Place,
    /// The file; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The profile, where a daemon has several.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

impl Export {
    pub(super) fn execute(&self) -> Result<Code, Problem> {
        let running = if self.running { RunningTurn::CutOff } else { RunningTurn::Refuse };
        setup::block_on(async {
            let target = Target::find(&self.place, &self.session).await?;
            match self.file.as_os_str() == "-" {
                true => self.print(&target, running).await,
                false => self.write(&target, running).await,
            }
        })?;
        Ok(Code::Completed)
    }

    async fn print(&self, target: &Target, running: RunningTurn) -> Result<(), Problem> {
        let stdout = io::stdout();
        let mut out = Printed { harmless: stdout.is_terminal(), line: Vec::new(), gone: false };
        target.export(running, &mut out).await
    }

    async fn write(&self, target: &Target, running: RunningTurn) -> Result<(), Problem> {
        let mut whole = Whole::begin(&self.file)?;
        target.export(running, &mut whole.out).await?;
        whole.put()?;
        let answer = json!({ "exported": self.session, "file": self.file.to_string_lossy() });
        self.place
            .print(&answer, |_| format!("{} is in {}\n", self.session, self.file.display()))?;
        Ok(())
    }
}

/// Standard output. A reader that has gone wanted no more of it. On a terminal lines are made harmless, and so they are
/// kept until they are whole.
struct Printed {
    harmless: bool,
    line: Vec<u8>,
    gone: bool,
}

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.gone {
            return Ok(bytes.len());
        }
        let mut out = io::stdout().lock();
        let written = match self.harmless {
            false => out.write_all(bytes),
            true => {
                self.line.extend_from_slice(bytes);
                let end = self.line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                let rest = self.line.split_off(end);
                let lines = std::mem::replace(&mut self.line, rest);
                out.write_all(text::shown(&String::from_utf8_lossy(&lines)).as_bytes())
            }
        };
        self.hear(written)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = io::stdout().lock().flush();
        self.hear(flushed)
    }
}

impl Printed {
    fn hear(&mut self, done: io::Result<()>) -> io::Result<()> {
        match done {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(())
            }
            other => other,
        }
    }
}

/// A file that is there whole or not at all: it is written beside its place, and put there at the end.
struct Whole<'a> {
    file: &'a Path,
    beside: PathBuf,
    out: BufWriter<File>,
    is_put: bool,
}

impl<'a> Whole<'a> {
    fn begin(file: &'a Path) -> Result<Whole<'a>, Problem> {
        let failed = |error: io::Error| {
            let attempt = format!("could not write {}", file.display());
            Problem::because(Code::Usage, attempt, error)
        };
        // Putting a file in the place of a device or a pipe would take that away.
        if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
            return Err(failed(io::Error::other("it is there, and is no file")));
        }
        let name = file.file_name().ok_or_else(|| failed(io::Error::other("it names no file")))?;
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}", std::process::id()));
        let beside = file.with_file_name(beside);
        // What people said is for its owner alone, until that one decides otherwise.
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
        let out = BufWriter::new(opened.map_err(failed)?);
        Ok(Whole { file, beside, out, is_put: false })
    }

    fn put(&mut self) -> Result<(), Problem> {
        let put = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        put.and_then(|()| fs::rename(&self.beside, self.file)).map_err(|error| {
            let attempt = format!("could not write {}", self.file.display());
            Problem::because(Code::Failed, attempt, error)
        })?;
        self.is_put = true;
        Ok(())
    }
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        if !self.is_put {
            // Nothing is left of what did not become whole; where that cannot be, its name says what it is.
            fs::remove_file(&self.beside).ok();
        }
    }
}

impl Import {
    pub(super) fn execute(&self) -> Result<Code, Problem> {
        let lines = self.lines()?;
        // Whatever is wrong with the lines is said before anything is asked of anybody.
        let archive = Archive::read_from(Cursor::new(&lines), MOST).map_err(|error| {
            Problem::because(Code::Usage, format!("could not import {}", self.named()), error)
        })?;
        let old = archive.session().id.to_string();
        let answer = match self.place.home() {
            Some(home) => {
                let store = HomeStore::take(home)?;
                setup::block_on(async {
                    let id = store.import(archive).await?;
                    Ok(json!({ "id": id.as_str() }))
                })?
            }
            None => {
                drop(archive);
                setup::block_on(self.send(lines))?
            }
        };
        self.place.print(&answer, |answer| {
            format!("{} is read in as {}\n", text::line(&old, 80), word(&answer["id"]))
        })
    }

    async fn send(&self, lines: Vec<u8>) -> Result<Value, Problem> {
        let client = self.place.client()?;
        let profile = match &self.profile {
            Some(profile) => profile.clone(),
            None => only_profile(&client).await?,
        };
        let path = format!("/v1/profiles/{}/sessions/import", client::step(&profile));
        client.post_lines(&path, lines).await
    }

    fn lines(&self) -> Result<Vec<u8>, Problem> {
        let failed = |error: io::Error| {
            Problem::because(Code::Usage, format!("could not read {}", self.named()), error)
        };
        let from: Box<dyn Read> = match self.file.as_os_str() == "-" {
            true => Box::new(io::stdin().lock()),
            false => Box::new(BufReader::new(File::open(&self.file).map_err(failed)?)),
        };
        let mut lines = Vec::new();
        from.take(MOST + 1).read_to_end(&mut lines).map_err(failed)?;
        Ok(lines)
    }

    fn named(&self) -> String {
        match self.file.as_os_str() == "-" {
            true => "standard input".to_owned(),
            false => self.file.display().to_string(),
        }
    }
}
