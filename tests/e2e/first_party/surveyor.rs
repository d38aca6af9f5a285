//! The surveyor over a large tree with everything that it may stumble over.

use checkrein::sandbox::{Access, Outcome};
use checkrein::session::EventKind;

use super::tree::{self, IN_A_FOLDER};
use super::{events, folder, open};
use crate::start::{Result, host};

/// So many folders make ten thousand files.
const FOLDERS: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_files_and_all_that_is_odd_are_surveyed_within_the_default_limits() -> Result {
    let host = host().with_first_party().build()?;
    host.release("slice");
    let (work, outside) = (folder(&host, "work")?, folder(&host, "outside")?);
    std::fs::write(outside.join("never.rs"), "// outside\n")?;
    tree::many(&work, FOLDERS)?;
    let odd = tree::odd(&work, &outside)?;
    let session = open(&host, "surveyor", &work, Access::Read).await?;
    // The limit on wall time is what bounds this wait.
    let report = session.prompt("survey it", "")?.ended().await;
    let text = &report.output;
    assert_eq!(report.outcome, Outcome::Completed(()), "{text}");

    let files = FOLDERS * IN_A_FOLDER + odd.files;
    let has = |words: &str| assert!(text.contains(words), "`{words}` is not in\n{text}");
    let lacks = |words: &str| assert!(!text.contains(words), "`{words}` is in\n{text}");
    assert!(text.starts_with("# Survey of `/work`\n\n- "), "{text}");
    has(&format!("- {},{:03} files in ", files / 1000, files % 1000));
    has("Code: Rust");
    lacks("Partial report");
    // Secrets: where and what, and never the secret.
    has("**Strings that look like secrets: 2**");
    has("`deploy/settings.env:2`");
    has("AKIA… (20 characters)");
    has("`deploy/key.pem:1`");
    has("the beginning of a key");
    // Markers, in comments only, whatever the encoding.
    has(concat!("Markers for later: 1 FIX", "ME, 3 TO", "DO"));
    has("`marks/a.rs:2`: write more");
    has("`marks/b.py:2`: later");
    has("`utf16.rs:1`: in another encoding");
    lacks("`marks/b.py:1`");
    has("Duplicate files: 1 group");
    has("`same/one.txt`, `same/two.txt`");
    lacks("`same/not.txt`,");
    has("Licences: MIT, Zlib, BSD-2-Clause");
    has("text of `LICENSE`");
    // What is not looked into is counted.
    has("4 symbolic links, not followed");
    has("1 device, pipe or socket");
    has("1 entry that git ignores");
    has("`web/node_modules` (1)");
    lacks("never.rs");
    lacks("ignored/a.rs");
    // A name that is no text costs only itself, and is told.
    has("## Could not be looked at\n\n- `no-text-\u{fffd}-name.txt`: its name is not UTF-8");
    // A name cannot break the report.
    assert!(!text.lines().any(|line| line.starts_with("lines.txt")), "{text}");

    let all = format!("{report:?}{:?}{:?}", events(&session), host.logs().lines());
    for secret in &odd.secrets {
        assert!(!all.contains(secret.as_str()), "a secret is told");
    }
    let failed: Vec<EventKind> = events(&session)
        .into_iter()
        .filter(|event| matches!(event, EventKind::ToolEnded { status, .. } if status != "ok"))
        .collect();
    assert_eq!(failed, []);
    host.settles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_to_survey_must_be_there_and_given() -> Result {
    let host = host().with_first_party().build()?;
    let work = folder(&host, "work")?;
    // Nothing in it.
    let session = open(&host, "surveyor", &work, Access::Read).await?;
    let report = session.prompt("survey it", "")?.ended().await;
    assert!(report.output.contains("There is nothing to survey"), "{}", report.output);
    // A folder that is not there, and one that was not given.
    for (input, words) in [
        (r#"{"folders":["/work/none"]}"#, "/work/none cannot be surveyed"),
        (r#"{"folders":["/etc"]}"#, "this run was granted /work"),
        (r#"{"folder":"/work"}"#, "an option of the survey does not fit"),
        ("survey", "the input of a survey is a JSON object"),
    ] {
        let report = session.prompt("survey it", input)?.ended().await;
        let Outcome::Failed(failure) = report.outcome else {
            panic!("{input}: {:?}", report.outcome)
        };
        assert!(failure.message.contains(words), "{input}: {failure}");
    }
    // No folder at all.
    let report = host.run("surveyor", "survey it").await?;
    let Outcome::Failed(failure) = report.outcome else { panic!("{:?}", report.outcome) };
    assert!(
        failure.message.contains("folder") || failure.message.contains("director"),
        "{failure}"
    );
    host.settles().await
}

/// Without the tools that read, a survey says what it lacks.
#[tokio::test(flavor = "multi_thread")]
async fn without_some_tools_the_report_says_what_is_missing() -> Result {
    let grants = "[plugins.surveyor.grants]\ntools = [\"files_list\"]";
    let host = host().with_first_party().configuration(grants).build()?;
    let work = folder(&host, "work")?;
    tree::many(&work, 1)?;
    let session = open(&host, "surveyor", &work, Access::Read).await?;
    let report = session.prompt("survey it", "")?.ended().await;
    assert_eq!(report.outcome, Outcome::Completed(()));
    for words in [
        "100 files in ",
        "For want of a tool, lines were not counted",
        "duplicates were not looked for",
    ] {
        assert!(report.output.contains(words), "{}", report.output);
    }
    host.settles().await
}
