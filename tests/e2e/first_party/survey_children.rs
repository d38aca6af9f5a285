//! Surveys of which children read the parts.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use checkrein::sandbox::{Access, Outcome};
use checkrein::session::{Checkpoints, EventKind, Session};
use checkrein_testkit::{TestHost, within};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::{events, folder, open, tree, until};
use crate::start::{Result, hard, host, soft};

/// Two files of that size fill a part, and are read in no time: nothing is in them.
const LARGE: u64 = 31 << 20;

/// A marker that a survey finds, put together here so that none takes this file for one.
const MARKER: &str = concat!("TO", "DO");

/// Makes folders `p0`, `p1` and so on, each of which is a part, with a marker in each.
fn parts(root: &Path, count: u64) -> Result {
    for part in 0..count {
        let path = root.join(format!("p{part}"));
        fs::create_dir_all(&path)?;
        for file in 0..2 {
            // No two have the same size, or they would be compared.
            let name = path.join(format!("large{file}.rs"));
            File::create(name)?.set_len(LARGE - 2 * part - file)?;
        }
        fs::write(path.join("marked.rs"), format!("// {MARKER}: of part {part}\n"))?;
    }
    Ok(())
}

/// Lets pass who is called so, and holds all others until a stop.
struct Passing {
    run: &'static str,
    held: Arc<watch::Sender<usize>>,
}

impl Checkpoints for Passing {
    fn reached(&self, run: &str, _: &str) -> BoxFuture<'static, ()> {
        if run.ends_with(self.run) {
            return std::future::ready(()).boxed();
        }
        self.held.send_modify(|held| *held += 1);
        std::future::pending().boxed()
    }
}

/// A host on which the first child goes on and the others wait, and how many wait.
fn first_goes_on(configuration: &str) -> Result<(TestHost, watch::Receiver<usize>)> {
    let (held, waiting) = watch::channel(0);
    let passing = Passing { run: ".1.1", held: Arc::new(held) };
    let host =
        host().with_first_party().checkpoints(passing).configuration(configuration).build()?;
    Ok((host, waiting))
}

/// Waits until the first child has ended and that many wait.
async fn first_has_ended(
    session: &Session,
    waiting: &mut watch::Receiver<usize>,
    held: usize,
) -> Result {
    let ended = |event: &EventKind| matches!(event, EventKind::ChildEnded { task: 0, .. });
    until(&mut session.events(0), "the end of the first child", ended).await?;
    within("the others wait", waiting.wait_for(|waiting| *waiting >= held)).await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn children_read_the_parts_and_find_what_one_run_finds() -> Result {
    let host = host().with_first_party().build()?;
    host.release("slice");
    let (work, outside) = (folder(&host, "work")?, folder(&host, "outside")?);
    parts(&work, 3)?;
    let odd = tree::odd(&work, &outside)?;
    let session = open(&host, "surveyor", &work, Access::Read).await?;
    let alone = within("alone", session.prompt("survey it", r#"{"children":0}"#)?.ended()).await?;
    let handed = within("handed out", session.prompt("survey it", "")?.ended()).await?;
    assert_eq!(handed.outcome, Outcome::Completed(()), "{}", handed.output);
    assert_eq!(handed.output, alone.output);
    let text = &handed.output;
    for words in [
        &format!("- {} files in ", 9 + odd.files),
        concat!("1 FIX", "ME, 6 TO", "DO"),
        "`p2/marked.rs:1`: of part 2",
        "**Strings that look like secrets: 2**",
        "Licences: MIT, Zlib, BSD-2-Clause",
    ] {
        assert!(text.contains(words), "`{words}` is not in\n{text}");
    }
    let all = events(&session);
    let ended: Vec<(u32, &str)> = all
        .iter()
        .filter_map(|event| {
            let EventKind::ChildEnded { task, status, .. } = event else { return None };
            Some((*task, &**status))
        })
        .collect();
    let mut sorted = ended.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [(0, "completed"), (1, "completed"), (2, "completed")]);
    let told = format!("{handed:?}{all:?}{:?}", host.logs().lines());
    for secret in &odd.secrets {
        assert!(!told.contains(secret.as_str()), "a secret is told");
    }
    host.settles().await
}

/// Rules S1, S4 and C4: a stop reaches the children, what they have found is in the report, and what is missing is named.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_between_children_gives_a_partial_report_that_names_what_is_missing() -> Result {
    let (host, mut waiting) = first_goes_on("")?;
    let work = folder(&host, "work")?;
    parts(&work, 3)?;
    let session = open(&host, "surveyor", &work, Access::Read).await?;
    let turn = session.prompt("survey it", "")?;
    first_has_ended(&session, &mut waiting, 2).await?;
    session.stop_turn(None, &soft("that is enough"))?;
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, Outcome::Interrupted { stop: soft("that is enough"), said: None });
    let text = &report.output;
    let begin = "# Survey of `/work`\n\n> **Partial report.** Stopped by user: that is enough\n>\n> Missing:\n\
        > - 2 of 3 parts were not read, or not to the end (6 files): `p1/`, `p2/`.";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("Files were not compared"), "{text}");
    assert!(text.contains("`p0/marked.rs:1`: of part 0") && !text.contains("of part 1"), "{text}");
    let interrupted = |event: &&EventKind| matches!(event, EventKind::ChildEnded { status, .. } if status == "interrupted");
    assert_eq!(events(&session).iter().filter(interrupted).count(), 2);
    host.settles().await
}

/// Rules S12 and H3: after a hard stop nothing of the children is left, and the report before them is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_hard_stop_between_children_leaves_the_last_report() -> Result {
    let one_by_one = "[plugins.surveyor.configuration]\nchildren = 1\n";
    let (host, mut waiting) = first_goes_on(one_by_one)?;
    let work = folder(&host, "work")?;
    parts(&work, 2)?;
    let session = open(&host, "surveyor", &work, Access::Read).await?;
    let turn = session.prompt("survey it", "")?;
    first_has_ended(&session, &mut waiting, 1).await?;
    assert!(session.stop_turn(None, &hard("now"))? > 0);
    let report = within("the end", turn.ended()).await?;
    assert_eq!(report.outcome, Outcome::Interrupted { stop: hard("now"), said: None });
    let text = &report.output;
    assert!(text.contains("**Partial report.** The survey is still going on."), "{text}");
    assert!(
        text.contains("1 of 2 parts were not read, or not to the end (3 files): `p1/`."),
        "{text}"
    );
    assert!(text.contains("of part 0"), "{text}");
    host.settles().await
}

/// Rule C5: a child that runs into a limit costs its part only, and is named with the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_too_much_for_its_child_is_named_and_the_rest_is_there() -> Result {
    let limit = "[plugins.surveyor.limits]\ndoor-bytes = \"800KiB\"\n";
    let host = host().with_first_party().configuration(limit).build()?;
    host.release("slice");
    let work = folder(&host, "work")?;
    parts(&work, 2)?;
    // What is found there does not pass the door of one run.
    let line = format!("// {MARKER}: {}\n", "much ".repeat(60));
    for file in 0..8 {
        fs::write(work.join(format!("p1/crowded{file}.rs")), line.repeat(490))?;
    }
    let session = open(&host, "surveyor", &work, Access::Read).await?;
    let report = within("the end", session.prompt("survey it", "")?.ended()).await?;
    assert_eq!(report.outcome, Outcome::Completed(()), "{}", report.output);
    let text = &report.output;
    let begin = "# Survey of `/work`\n\n> **Partial report.** Not everything could be read.\n>\n> Missing:\n\
        > - 1 of 2 parts were not read, or not to the end (11 files): `p1/`.";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("> - Of `p1/`, 0 of 11 files were read to the end: the limit \\`door-bytes\\` is used up.\n"), "{text}");
    assert!(text.contains("`p0/marked.rs:1`: of part 0"), "{text}");
    assert!(text.contains("Duplicate files: 1 group"), "{text}");
    host.settles().await
}

/// Rule A9: where the host does not let it hand out, the survey reads by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_survey_that_may_not_hand_out_reads_by_itself() -> Result {
    for (lines, why) in [
        (
            "[plugins.surveyor.grants]\ndelegation = []\n",
            "no children, because handing tasks to other runs is not granted to this agent",
        ),
        (
            "[delegation]\ndepth = 0\n",
            "no children, because nothing was started: the children would be 1 delegations deep",
        ),
        (
            "[delegation]\nchildren-per-call = 0\n",
            "no children, because the host lets this run start no more of them",
        ),
    ] {
        let host = host().with_first_party().configuration(lines).build()?;
        let work = folder(&host, "work")?;
        parts(&work, 2)?;
        let session = open(&host, "surveyor", &work, Access::Read).await?;
        let report = within(why, session.prompt("survey it", "")?.ended()).await?;
        assert_eq!(report.outcome, Outcome::Completed(()), "{}", report.output);
        assert!(
            !report.output.contains("Partial report") && report.output.contains("of part 1"),
            "{}",
            report.output
        );
        let told = |event: &EventKind| matches!(event, EventKind::Progress { text } if text.starts_with(why));
        assert!(events(&session).iter().any(told), "{:?}", events(&session));
        host.settles().await?;
    }
    Ok(())
}

/// Rule A9: no more parts go out than the host lets this run start, and the rest is read by the run itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_survey_hands_out_as_much_as_the_host_lets_it() -> Result {
    let limits = "[delegation]\nchildren-per-call = 2\ndescendants-per-tree = 3\n";
    let host = host().with_first_party().configuration(limits).build()?;
    host.release("slice");
    let work = folder(&host, "work")?;
    parts(&work, 4)?;
    let session = open(&host, "surveyor", &work, Access::Read).await?;
    let report = within("the end", session.prompt("survey it", "")?.ended()).await?;
    assert_eq!(report.outcome, Outcome::Completed(()), "{}", report.output);
    for part in 0..4 {
        assert!(report.output.contains(&format!("of part {part}")), "{}", report.output);
    }
    assert!(!report.output.contains("Partial report"), "{}", report.output);
    let told = events(&session).into_iter().filter_map(|event| {
        let EventKind::Progress { text } = event else { return None };
        text.contains("child").then_some(text)
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            "parts 1 to 2 of 4 go to 2 children",
            "part 3 of 4 goes to a child",
            "no children, because the host lets this run start no more of them",
        ]
    );
    host.settles().await
}
