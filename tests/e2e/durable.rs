//! What outlives the process, and what a store that fails does to whom (issue: nothing promised is lost).

mod bounds;
mod crash;
mod failing;
mod rest;

use std::sync::Arc;

use checkrein::Profile;
use checkrein::ProfileSettings;
use checkrein::plugin::Configuration;
use checkrein::session::{Event, EventKind, Session};
use checkrein::store::Store;
use checkrein_testkit::{Mortal, TestHost, within};

use crate::start::{Result, isolation};

/// Where the stores of a test are. All its files are gone with it.
#[derive(Debug)]
enum Bed {
    Memory,
    Disk(tempfile::TempDir, std::cell::Cell<u32>),
}

impl Bed {
    fn disk() -> Result<Bed> {
        Ok(Bed::Disk(tempfile::tempdir()?, std::cell::Cell::new(0)))
    }

    /// Another store with nothing in it.
    fn store(&self) -> Result<Arc<Mortal>> {
        let Bed::Disk(folder, count) = self else { return Ok(Mortal::new()) };
        count.set(count.get() + 1);
        Ok(Mortal::on_disk(folder.path().join(format!("{}.db", count.get())))?)
    }
}

/// Runs each of these tests with sessions in memory and with sessions on a disk.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() -> crate::start::Result {
                super::$test(super::Bed::Memory).await
            })*
        }

        mod on_disk {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() -> crate::start::Result {
                super::$test(super::Bed::disk()?).await
            })*
        }
    };
}

use on_both;

/// Opens a profile of the host on that store.
pub(crate) async fn profile(host: &TestHost, store: Arc<dyn Store>) -> Result<Profile> {
    let settings = ProfileSettings {
        name: "main".to_owned(),
        home: host.home().to_owned(),
        configuration: Configuration::parse(isolation(), &host.home().join("profile.toml"))?,
        store,
    };
    within("the profile", host.host().profile(settings)).await?.map_err(Into::into)
}

/// All events of a session, from the first.
pub(crate) async fn journal(session: &Session) -> Result<Vec<Event>> {
    journal_after(session, 0).await
}

/// The events after that one, as a watcher that begins there reads them.
async fn journal_after(session: &Session, after: u64) -> Result<Vec<Event>> {
    let (mut events, mut all) = (session.events(after), Vec::new());
    for _ in after..session.newest() {
        let next = within("the next event", events.next()).await??;
        all.extend(next);
    }
    Ok(all)
}

/// The ends of runs in a journal: run, status, what it had said.
pub(crate) fn ends(journal: &[Event]) -> Vec<(String, String, String)> {
    let end = |event: &Event| {
        let EventKind::RunEnded { status, output, .. } = &event.kind else { return None };
        Some((event.run.to_string(), status.clone(), output.clone()))
    };
    journal.iter().filter_map(end).collect()
}

/// Waits for the first event that has such a kind.
async fn heard(session: &Session, what: &str, wanted: impl Fn(&EventKind) -> bool) -> Result {
    let mut events = session.events(0);
    let looking = async {
        while let Some(event) = events.next().await? {
            if wanted(&event.kind) {
                return Ok(());
            }
        }
        anyhow::bail!("the session has ended")
    };
    within(what, looking).await?
}
