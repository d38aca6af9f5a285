//! Runs that begin by the clock (rule K1).

use std::fs;
use std::time::Duration;

use checkrein::schedule::Timestamp;
use checkrein::{Profile, SCHEDULES, ScheduledRun};
use checkrein_testkit::{Plugin, TestClock, guest, within};
use serde_json::Value;

use super::{Bed, profile, released};
use crate::start::{Result, hard, with_agent};

fn bed(clock: &TestClock) -> Result<Bed> {
    Bed::new(with_agent().clock(clock.clone()).build()?)
}

fn hourly(goal: &str, more: &str) -> String {
    format!(
        "[schedules.it]\ncron = \"0 * * * *\"\nagent = \"agent\"\ngoal = '''{goal}'''\n{more}\n"
    )
}

fn runs(profile: &Profile) -> Vec<ScheduledRun> {
    profile.schedules().get("it").map(|view| view.runs).unwrap_or_default()
}

fn statuses(profile: &Profile) -> Vec<String> {
    runs(profile).into_iter().map(|run| run.status).collect()
}

/// Waits until what is known of the runs is as wanted.
async fn until(profile: &Profile, wanted: &[&str]) -> Result {
    let looking = async {
        while statuses(profile) != wanted {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let seen = within(&format!("{wanted:?}"), looking).await;
    seen.map_err(|error| error.context(format!("{:?}", runs(profile))))
}

/// Rule K1: a scheduled run is a turn of a session like any other: it counts, can be stopped, and says how it ended. What was
/// decided is in the home before it starts.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_scheduled_run_is_a_turn_that_counts_and_can_be_stopped() -> Result {
    let clock = TestClock::at("2026-05-01T11:30:00Z")?;
    let bed = bed(&clock)?;
    let authority =
        bed.with("main", &hourly("input\ncheckpoint here\nsay done", "input = '{}'")).await?;
    let profile = profile(&authority)?;
    let view = profile.schedules().get("it").ok_or_else(|| anyhow::anyhow!("no schedule"))?;
    assert_eq!(view.next, Some("2026-05-01T12:00:00Z".parse()?));
    bed.host.is_idle()?;

    clock.set("2026-05-01T12:00:00Z")?;
    bed.host.reached("here").await?;
    let kept: Value = serde_json::from_slice(&fs::read(bed.home("main").join(SCHEDULES))?)?;
    let known = &kept["schedules"]["it"];
    assert_eq!(known["decided"], "2026-05-01T12:00:00Z", "{kept}");
    assert_eq!(known["runs"][0]["status"], "running", "{kept}");
    authority.count_settled().await;
    assert_eq!(bed.count("main")?.written.count, 1);
    bed.host.release("here");
    until(&profile, &["completed"]).await?;
    let run = runs(&profile).remove(0);
    let id = run.session.ok_or_else(|| anyhow::anyhow!("no session"))?;
    assert_eq!((run.generation, run.ended), (Some(1), Some("2026-05-01T12:00:00Z".parse()?)));
    let said: Vec<String> = within("it wakes", profile.session(&id))
        .await??
        .history(10)
        .into_iter()
        .map(|message| message.text)
        .collect();
    assert_eq!(said[1], "{}\ndone");
    let figures = bed.host.host().metrics();
    let sample = "checkrein_admissions_total{work=\"schedule\"} 1\n";
    assert!(figures.contains(sample), "{figures}");

    clock.set("2026-05-01T13:00:00Z")?;
    within("the second", bed.host.places().reached("here", 2)).await?;
    until(&profile, &["completed", "completed"]).await?;
    let sessions: Vec<_> = runs(&profile).into_iter().map(|run| run.session).collect();
    assert_ne!(sessions[0], sessions[1], "each has a session of its own");
    Ok(())
}

/// Rule K1: a run whose work was cut is never recorded as a success, and is not started again by the next host.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_run_that_was_cut_is_interrupted_and_comes_once() -> Result {
    let clock = TestClock::at("2026-05-01T11:30:00Z")?;
    let bed = bed(&clock)?;
    let configuration = hourly("checkpoint here", "missed = \"once\"");
    let authority = bed.with("main", &configuration).await?;
    let before = profile(&authority)?;
    clock.set("2026-05-01T12:00:00Z")?;
    bed.host.reached("here").await?;
    assert!(released(&authority.retire(Duration::from_secs(10)).await));
    assert_eq!(statuses(&before), ["interrupted"]);
    assert!(!before.schedules().is_bound());
    bed.host.is_idle()?;

    let authority = bed.serve("main").await?;
    let after = profile(&authority)?;
    let run = runs(&after).remove(0);
    assert_eq!(
        (run.status.as_str(), run.scheduled),
        ("interrupted", "2026-05-01T12:00:00Z".parse()?)
    );
    assert!(run.detail.is_some_and(|words| words.contains("profile is stopping")));
    // Three hours nobody was there: one run makes up for them.
    drop(authority.retire(Duration::from_secs(10)).await);
    clock.set("2026-05-01T15:30:00Z")?;
    let authority = bed.serve("main").await?;
    let after = profile(&authority)?;
    within("the next", bed.host.places().reached("here", 2)).await?;
    until(&after, &["interrupted", "skipped", "running"]).await?;
    let last = runs(&after).remove(2);
    assert_eq!((last.scheduled, last.makes_up), ("2026-05-01T15:00:00Z".parse()?, true));
    Ok(())
}

/// Rule K1: what a run left in the background is a part of it.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_run_whose_background_was_cut_is_no_success() -> Result {
    let clock = TestClock::at("2026-05-01T11:30:00Z")?;
    let bed = bed(&clock)?;
    let goal = r#"delegate {"mode":"background","tasks":[{"goal":"checkpoint child"}]}"#;
    let authority = bed.with("main", &hourly(goal, "")).await?;
    let profile = profile(&authority)?;
    clock.set("2026-05-01T12:00:00Z")?;
    bed.host.reached("child").await?;
    bed.host
        .until("the turn ends", |nodes| nodes.iter().all(|node| node.kind.as_str() != "turn"))
        .await?;
    assert_eq!(statuses(&profile), ["running"]);
    assert!(released(&authority.retire(Duration::from_secs(10)).await));
    assert_eq!(statuses(&profile), ["interrupted"]);
    Ok(())
}

/// Runs do not overlap unless that is asked for, and one that waits comes when the other has ended, however that was.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn runs_do_not_overlap_unless_asked_to() -> Result {
    for (overlap, expected) in [
        ("skip", &["interrupted", "skipped"][..]),
        ("queue", &["interrupted", "running"][..]),
        ("allow", &["running", "running"][..]),
    ] {
        let clock = TestClock::at("2026-05-01T11:30:00Z")?;
        let bed = bed(&clock)?;
        let configuration = hourly("checkpoint here", &format!("overlap = \"{overlap}\""));
        let authority = bed.with("main", &configuration).await?;
        let profile = profile(&authority)?;
        clock.set("2026-05-01T12:00:00Z")?;
        bed.host.reached("here").await?;
        clock.set("2026-05-01T13:00:00Z")?;
        match overlap {
            "allow" => within("the second", bed.host.places().reached("here", 2)).await?,
            _ => {
                let decided = || profile.schedules().get("it").and_then(|view| view.next);
                let next: Timestamp = "2026-05-01T14:00:00Z".parse()?;
                within("it is decided", async {
                    while decided() != Some(next) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                })
                .await?;
                assert_eq!(bed.host.places().count("here"), 1, "{overlap}");
                let turn =
                    bed.host.executions().into_iter().find(|node| node.kind.as_str() == "turn");
                let turn = turn.ok_or_else(|| anyhow::anyhow!("no turn"))?;
                bed.host.host().tree().stop(turn.id, &hard("enough"))?;
            }
        }
        until(&profile, expected).await?;
        assert!(released(&authority.retire(Duration::from_secs(10)).await), "{overlap}");
    }
    Ok(())
}

/// The runs of a standing session are turns of one conversation, also after the next host has taken over.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_standing_session_is_the_same_each_time() -> Result {
    let clock = TestClock::at("2026-05-01T11:30:00Z")?;
    let bed = bed(&clock)?;
    let configuration = hourly("say hour", "session = { standing = \"hours\" }");
    let authority = bed.with("main", &configuration).await?;
    clock.set("2026-05-01T12:00:00Z")?;
    until(&profile(&authority)?, &["completed"]).await?;
    assert!(released(&authority.retire(Duration::from_secs(10)).await));
    let authority = bed.serve("main").await?;
    clock.set("2026-05-01T13:00:00Z")?;
    let profile = profile(&authority)?;
    until(&profile, &["completed", "completed"]).await?;
    let runs = runs(&profile);
    assert_eq!(runs[0].session, runs[1].session);
    assert_eq!((runs[0].generation, runs[1].generation), (Some(1), Some(2)));
    Ok(())
}

/// A new configuration is taken over without a run too many, and runs that go on keep going.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_reload_starts_nothing_twice() -> Result {
    let clock = TestClock::at("2026-05-01T11:30:00Z")?;
    let bed = bed(&clock)?;
    let authority = bed.with("main", &hourly("checkpoint old", "missed = \"once\"")).await?;
    let profile = profile(&authority)?;
    clock.set("2026-05-01T12:00:00Z")?;
    bed.host.reached("old").await?;
    let other = "[schedules.other]\ncron = \"*/5 * * * *\"\nmissed = \"once\"\nagent = \"agent\"\ngoal = \"say other\"\n";
    bed.write("main", &format!("{}{other}", hourly("checkpoint new", "missed = \"once\"")))?;
    let done = bed.reconcile().await?;
    assert_eq!(done.reloaded, ["main"]);
    clock.set("2026-05-01T12:02:00Z")?;
    let names: Vec<String> = profile.schedules().list().into_iter().map(|view| view.name).collect();
    assert_eq!(names, ["it", "other"]);
    bed.host.release("old");
    until(&profile, &["completed"]).await?;
    clock.set("2026-05-01T13:00:00Z")?;
    bed.host.reached("new").await?;
    assert_eq!((bed.host.places().count("old"), bed.host.places().count("new")), (1, 1));
    // One that is taken out is decided about no more; what runs goes on.
    bed.write("main", "")?;
    assert_eq!(bed.reconcile().await?.reloaded, ["main"]);
    clock.set("2026-05-01T15:00:00Z")?;
    assert!(profile.schedules().list().is_empty());
    bed.host.release("new");
    bed.host.until("it ends", |nodes| nodes.is_empty()).await?;
    assert_eq!(bed.host.places().count("new"), 1);
    Ok(())
}

/// A run that cannot be started says why, and the schedule goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_start_is_refused_with_the_reason() -> Result {
    let clock = TestClock::at("2026-05-01T11:30:00Z")?;
    let host = with_agent().plugin(Plugin::agent("broken", guest("tool")));
    let bed = Bed::new(host.clock(clock.clone()).build()?)?;
    let schedule = |name: &str, agent: &str| {
        format!("[schedules.{name}]\ncron = \"0 * * * *\"\nagent = \"{agent}\"\ngoal = \"x\"\n")
    };
    let configuration = schedule("it", "nobody") + &schedule("second", "broken");
    let authority = bed.with("main", &configuration).await?;
    let profile = profile(&authority)?;
    clock.set("2026-05-01T12:00:00Z")?;
    until(&profile, &["refused"]).await?;
    let words = runs(&profile).remove(0).detail.unwrap_or_default();
    assert!(words.contains("nobody"), "{words}");
    // The home does not take what is decided: nothing is started then.
    let file = bed.home("main").join("schedules.json.next");
    within("the second ends", async {
        let second = || profile.schedules().get("second").map(|view| view.runs);
        while second().is_none_or(|runs| runs.iter().any(|run| run.ended.is_none())) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await?;
    // The last word of the second may still be on its way there.
    within("the place of the next file", async {
        while fs::create_dir(&file).is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await?;
    clock.set("2026-05-01T13:00:00Z")?;
    until(&profile, &["refused", "refused"]).await?;
    let words = runs(&profile).remove(1).detail.unwrap_or_default();
    assert!(words.contains("could not be kept"), "{words}");
    // The second is refused apart from the first.
    for (reason, count) in [("agent", 2), ("store", 2)] {
        let sample =
            format!("checkrein_refusals_total{{work=\"schedule\",reason=\"{reason}\"}} {count}\n");
        within(&sample, async {
            while !bed.host.host().metrics().contains(&sample) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await?;
    }
    bed.host.is_idle()
}

/// Wrong schedules are refused with their place, and where they make no sense.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_schedule_is_refused_with_its_place() -> Result {
    let clock = TestClock::at("2026-05-01T11:30:00Z")?;
    let bed = bed(&clock)?;
    for (name, text, line, words) in [
        ("a", "\n[schedules.it]\ncron = \"x\"\nagent = \"agent\"\ngoal = \"x\"", 3, "five fields"),
        ("b", "[schedules.it]\ncron = \"@daily\"\nagent = \"agent\"", 1, "goal"),
        (
            "c",
            "[schedules.it]\ncron = \"@daily\"\nagent = \"agent\"\ngoal = \"x\"\ninput = \"{\"",
            5,
            "not JSON",
        ),
        (
            "d",
            "[schedules.it]\ncron = \"@daily\"\nagent = \"agent\"\ngoal = \"x\"\nfoo = 1",
            5,
            "foo",
        ),
        (
            "e",
            "[schedules.it]\ncron = \"@daily\"\ntime-zone = \"Nowhere\"\nagent = \"agent\"\ngoal = \"x\"",
            3,
            "Nowhere",
        ),
    ] {
        bed.write(name, text)?;
        let parked = bed.reconcile().await?.parked;
        let said = parked.get(name).map(ToString::to_string).unwrap_or_default();
        assert!(said.contains(&format!("line {line}")) && said.contains(words), "{name}: {said}");
    }
    let refused = with_agent().configuration(&hourly("x", "")).build();
    let words = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    assert!(words.contains("belong to a profile"), "{words}");
    Ok(())
}
