//! The first-party plugins as they are built into the command, on a real host.

mod assistant;
mod assistant_children;
mod files;
mod http;
mod survey_children;
mod survey_stops;
mod surveyor;
mod tree;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use checkrein::sandbox::{Access, Directory};
use checkrein::session::{EventKind, Events, Session};
use checkrein_testkit::{TestHost, within};

use crate::start::Result;

/// A folder of the home, made on the first call.
fn folder(host: &TestHost, name: &str) -> Result<PathBuf> {
    let path = host.home().join(name);
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

/// Opens a session to whose plugins a folder is given as `/work`.
async fn open(host: &TestHost, agent: &str, path: &Path, access: Access) -> Result<Session> {
    let directory = Directory { mount: "/work".to_owned(), path: path.to_owned(), access };
    Ok(host.opening(agent).directory(directory).open().await?)
}

/// Everything that has happened in a session so far, and is remembered: a survey makes more events than that.
fn events(session: &Session) -> Vec<EventKind> {
    let mut events = session.events(0);
    let next = || events.try_next().or_else(|_| events.try_next()).ok().flatten();
    std::iter::from_fn(next).map(|event| event.kind).collect()
}

/// Waits for the event that is `wanted`.
async fn until(events: &mut Events, what: &str, wanted: impl Fn(&EventKind) -> bool) -> Result {
    let looking = async {
        while let Some(event) = events.next().await? {
            if wanted(&event.kind) {
                return Ok(());
            }
        }
        anyhow::bail!("the session is gone before {what}")
    };
    within(what, looking).await?
}

/// Waits until the agent says that of its progress.
async fn progress(events: &mut Events, beginning: &str) -> Result {
    let says = |event: &EventKind| matches!(event, EventKind::Progress { text } if text.starts_with(beginning));
    until(events, &format!("the progress `{beginning}`"), says).await
}

/// Makes a FIFO.
fn fifo(path: &Path) -> Result {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let path = CString::new(path.as_os_str().as_bytes())?;
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
}
