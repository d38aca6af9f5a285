//! How much is kept of a session, and what is said when that is too little.

use std::sync::Arc;

use checkrein::session::{Delivery, EventKind, WatchError};
use checkrein::store::{Memory, Retention, Sqlite, Store, StoreError, Transcript};
use checkrein_testkit::within;

use super::profile;
use crate::start::{Result, with_agent};

/// Both stores, with these bounds.
fn both(folder: &std::path::Path, retention: &Retention) -> Result<[Arc<dyn Store>; 2]> {
    let disk = Sqlite::open(folder.join("sessions.db"), retention.clone())?;
    Ok([Arc::new(Memory::new(retention.clone())), Arc::new(disk)])
}

/// A conversation that has grown too large takes no new turns, says by how much and what to do, and loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_that_is_too_large_takes_no_new_turn_and_says_so() -> Result {
    let folder = tempfile::tempdir()?;
    let retention = Retention {
        transcript_bytes_per_session: 1_000,
        transcript: Transcript::Refuse,
        ..Retention::default()
    };
    for store in both(folder.path(), &retention)? {
        let host = with_agent().build()?;
        let profile = profile(&host, store).await?;
        let session = profile.open("agent", Delivery::Polled).await?;
        within("a turn", session.prompt("output 2000", "")?.ended()).await?;
        let mut turn = session.prompt("say never", "")?;
        let refused = turn.recorded().await;
        let Err(StoreError::TooLarge { most: 1_000, limit, .. }) = &refused else {
            anyhow::bail!("{refused:?}");
        };
        assert_eq!(*limit, "transcript-bytes-per-session");
        drop(turn.ended().await);
        assert_eq!(session.history(10).len(), 2, "what was said is all there");
        let other = profile.open("agent", Delivery::Polled).await?;
        let fine = within("another session", other.prompt("say fine", "")?.ended()).await?;
        assert_eq!(fine.output, "fine");
        host.is_idle()?;
    }
    Ok(())
}

/// The oldest events go first, whoever begins before them is told how many are missing, and a unit that nobody has read
/// stays.
#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_events_go_first_and_what_is_not_read_stays() -> Result {
    let folder = tempfile::tempdir()?;
    let retention =
        Retention { events_per_session: 50, read_units_per_session: 1, ..Retention::default() };
    for store in both(folder.path(), &retention)? {
        let host = with_agent().build()?;
        let profile = profile(&host, Arc::clone(&store)).await?;
        let session = profile.open("agent", Delivery::Polled).await?;
        let unit = r#"delegate {"mode":"background","tasks":[{"goal":"say found"}]}"#;
        within("a turn", session.prompt(unit, "")?.ended()).await?;
        within("its completion", session.completion()).await?;
        within("a turn", session.prompt("times 5000 emit more\nsay done", "")?.ended()).await?;
        profile.compact().await?;
        let row = profile.row(session.id()).await?;
        assert!(row.last_seq > 5_000 && row.first_seq + 60 > row.last_seq, "{row:?}");
        // One that sleeps has nothing but the store to read from.
        let id = session.id().clone();
        drop(session);
        while profile.rest() > 0 {
            tokio::task::yield_now().await;
        }
        let session = within("it wakes", profile.session(&id)).await??;
        let mut events = session.events(0);
        let Err(WatchError::Lagged(lagged)) = events.next().await else {
            anyhow::bail!("nothing is missing");
        };
        let first = events.next().await?.ok_or_else(|| anyhow::anyhow!("no event"))?;
        assert_eq!((lagged.missed + 1, first.seq), (first.seq, row.first_seq));
        let mut last = first;
        while last.seq < session.newest() {
            let next = events.next().await?.ok_or_else(|| anyhow::anyhow!("no event"))?;
            assert_eq!(next.seq, last.seq + 1);
            last = next;
        }
        assert!(matches!(last.kind, EventKind::RunEnded { .. }), "{last:?}");
        assert_eq!(session.completions().len(), 1);
    }
    Ok(())
}
