//! Stops in the middle of a survey that one run does.

use checkrein::sandbox::{Access, Outcome};
use checkrein::session::EventKind;
use checkrein_testkit::within;

use super::{events, folder, open, progress, tree};
use crate::start::{Result, hard, host, soft};

/// So many folders make four thousand files: more than two parts.
const FOLDERS: usize = 40;

/// All is read in one run.
const ALONE: &str = r#"{"children":0}"#;

/// Rules S1 and C4: the surveyor passes the words of the stop on, and says what it did not do.
#[tokio::test(flavor = "multi_thread")]
async fn a_soft_stop_in_the_middle_gives_a_partial_report_that_says_what_is_missing() -> Result {
    let host = host().with_first_party().build()?;
    let work = folder(&host, "work")?;
    tree::many(&work, FOLDERS)?;
    let session = open(&host, "surveyor", &work, Access::Read).await?;
    for (place, known) in [
        ("listed 4,000 files", "Files were not compared"),
        ("part 2 of 3", " of 3 parts were not read, or not to the end"),
    ] {
        let mut watch = session.events(0);
        while !matches!(watch.try_next(), Ok(None)) {}
        let turn = session.prompt("survey it", ALONE)?;
        progress(&mut watch, place).await?;
        session.stop_turn(None, &soft("that is enough"))?;
        let report = within("the end", turn.ended()).await?;
        assert_eq!(
            report.outcome,
            Outcome::Interrupted { stop: soft("that is enough"), said: None }
        );
        let text = &report.output;
        let begin = "# Survey of `/work`\n\n> **Partial report.** Stopped by user: that is enough\n>\n> Missing:\n> - ";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains(known) && text.contains("- 4,000 files in "), "{place}: {text}");
        let Some(EventKind::RunEnded { status, output, .. }) = events(&session).pop() else {
            panic!("no end")
        };
        assert_eq!((&*status, &output), ("interrupted", text));
        host.settles().await?;
    }
    Ok(())
}

/// Rules S11 and S12: a hard stop ends it and its tools, and the last report that it left is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_hard_stop_in_the_middle_leaves_the_last_report_and_nothing_in_the_tree() -> Result {
    let host = host().with_first_party().build()?;
    let work = folder(&host, "work")?;
    tree::many(&work, FOLDERS)?;
    let session = open(&host, "surveyor", &work, Access::Read).await?;
    let mut watch = session.events(0);
    let turn = session.prompt("survey it", ALONE)?;
    progress(&mut watch, "part 3 of 3").await?;
    assert!(session.stop_turn(None, &hard("now"))? > 0);
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, Outcome::Interrupted { stop: hard("now"), said: None });
    assert!(report.output.contains("The survey is still going on."), "{}", report.output);
    assert_eq!(report.output.matches("# Survey of `/work`").count(), 1, "{}", report.output);
    assert!(report.output.contains("1 of 3 parts were not read"), "{}", report.output);
    host.settles().await?;
    // The session can go on.
    let report = session.prompt("survey it", r#"{"folders":["/work/crates/c001"]}"#)?.ended().await;
    assert_eq!(report.outcome, Outcome::Completed(()), "{}", report.output);
    assert!(report.output.contains("- 100 files in "), "{}", report.output);
    host.settles().await
}
