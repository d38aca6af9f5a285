//! One authority for a home, and how it ends (rules P, N, G).

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use checkrein::model::{Reply, Scripted};
use checkrein::profile::{
    HomeLock, Life, NotReleased, Parked, Retired, STOPPING, TICKET_LIFE, Why,
};
use checkrein::sandbox::Outcome;
use checkrein::session::{Delivery, PromptError, SideError};
use checkrein::work::{Kind, NodeView, Refused, Stop};
use checkrein_testkit::{TestClock, within};

use super::{Bed, profile, released, session};
use crate::start::{Result, interrupted, with_agent};

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(30);

fn stopping() -> Stop {
    Stop::hard("host", STOPPING)
}

fn alive(retired: Retired) -> Result<Vec<NodeView>> {
    match retired {
        Retired::NotReleased(NotReleased { why: Why::Alive(nodes), .. }) => Ok(nodes),
        other @ (Retired::Released | Retired::NotReleased(_)) => anyhow::bail!("{other:?}"),
    }
}

/// Waits until the home can be locked: somebody's lock went with its process.
fn locked_by_nobody(home: &std::path::Path) -> bool {
    HomeLock::take(home).is_ok()
}

/// Rule P1: a second process on the same home is refused with a clear message, also by this one; the lock goes with its process.
#[tokio::test(flavor = "multi_thread")]
async fn a_home_is_served_by_one_process() -> Result {
    const HOME: &str = "CHECKREIN_TEST_HOME";
    if let Some(home) = std::env::var_os(HOME) {
        // The other process: it holds the home until it is killed.
        let lock = HomeLock::take(home.as_ref())?;
        println!("locked");
        std::thread::park();
        drop(lock);
        return Ok(());
    }
    let bed = Bed::new(with_agent().build()?)?;
    bed.write("main", "")?;
    let mut other = Command::new(std::env::current_exe()?)
        .args(["--exact", "profiles::retiring::a_home_is_served_by_one_process", "--nocapture"])
        .env(HOME, bed.home("main"))
        .stdout(Stdio::piped())
        .spawn()?;
    let out = other.stdout.take().ok_or_else(|| anyhow::anyhow!("no output"))?;
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(out));
    let said = lines.find(|line| line.as_ref().is_ok_and(|line| line.ends_with("locked")));
    anyhow::ensure!(said.is_some(), "the other process has not locked the home");
    let done = bed.reconcile().await?;
    let Some(Parked::LockHeld { pid, words }) = done.parked.get("main") else {
        anyhow::bail!("{done:?}");
    };
    assert_eq!(*pid, Some(other.id()));
    assert!(words.contains(&other.id().to_string()), "{words}");
    other.kill()?;
    other.wait()?;
    assert_eq!(bed.reconcile().await?.added, ["main"], "the lock went with its process");
    let second = Bed::new(with_agent().build()?)?;
    let refused = second.host.host().profiles();
    let wanted = bed.wanted()?;
    let done = within("the second host", refused.reconcile(&wanted, Duration::ZERO)).await?;
    assert!(matches!(done.parked.get("main"), Some(Parked::LockHeld { .. })), "{done:?}");
    Ok(())
}

/// Rules P2 to P5, N1 and N2, with every kind of work that a guest can be: unpublished and stopped at once; with no time, not
/// released, and the schedule owner still bound; then released, and everything given back.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_profile_is_released_when_its_work_has_physically_ended_and_not_before()
-> Result {
    let clock = TestClock::at("2026-05-01T11:30:00Z")?;
    let model = Scripted::new("model", [Reply::new().stall().repeat()]);
    let bed = Bed::new(with_agent().clock(clock.clone()).model(model).build()?)?;
    let schedule = "[schedules.it]\ncron = \"0 * * * *\"\nagent = \"agent\"\ngoal = \"checkpoint by the clock\"\n";
    let authority = bed.with("main", schedule).await?;
    let (profile, session) = (profile(&authority)?, session(&authority).await?);
    let ticket = authority.tickets().issue("attach", "giver", TICKET_LIFE)?;
    let idle = super::session(&authority).await?;
    let held = Arc::new(bed.host.places().clone());
    let turn = session.prompt(
        "delegate {\"mode\":\"background\",\"tasks\":[{\"goal\":\"checkpoint child\"}]}\n\
         delegate {\"tasks\":[{\"goal\":\"partial half\\ncheckpoint inside\"}]}",
        "",
    )?;
    let side = session.side_run("partial half\ncheckpoint side", "")?;
    let aside = session.aside("checkpoint aside")?;
    let asked = session.ask("why?", None)?;
    clock.set("2026-05-01T12:00:00Z")?;
    for place in ["child", "inside", "side", "aside", "by the clock"] {
        bed.host.reached(place).await?;
    }
    authority.count_settled().await;
    let count = bed.count("main")?;
    assert_eq!((count.written.count, count.writer), (6, Life::Alive), "{count:?}");

    // What the side run leaves behind is not gone before the test says so: the stopper waits for it, on a thread of its own.
    held.linger("side");
    let stopper = {
        let (authority, runtime) = (authority.clone(), tokio::runtime::Handle::current());
        std::thread::spawn(move || runtime.block_on(authority.retire(Duration::ZERO)))
    };
    within("the side run is taken away", held.abandoned("side", 1)).await?;
    assert!(!authority.is_published());
    assert!(bed.profiles.get("main").is_none() && bed.profiles.served().is_empty());
    assert!(authority.tickets().redeem(ticket.reveal(), "attach").is_err());
    assert!(authority.tickets().issue("attach", "giver", TICKET_LIFE).is_err());
    let refused = idle.prompt("say x", "");
    assert!(matches!(refused, Err(PromptError::Refused(Refused::Closed { .. }))), "{refused:?}");
    assert!(matches!(session.side_run("say x", ""), Err(SideError::Refused(_))), "G6");
    assert!(profile.open("agent", Delivery::Turns).await.is_err());
    assert!(!locked_by_nobody(&bed.home("main")), "the lock is kept");
    assert!(profile.schedules().is_bound(), "the owner is kept");
    let left = alive(within("no time at all", authority.retire(Duration::ZERO)).await?)?;
    assert!(left.iter().any(|node| node.kind == Kind::SideRun), "{left:?}");
    assert!(bed.host.executions().iter().all(|node| node.stop == Some(stopping())), "P3");
    held.release("side");
    drop(stopper.join());

    assert!(released(&within("released", authority.retire(LONG)).await?));
    assert!(!profile.schedules().is_bound(), "unbound");
    assert!(released(&authority.retire(Duration::ZERO).await), "and nothing of it twice");
    assert_eq!(bed.count("main")?.written.count, 0, "N2");
    assert!(locked_by_nobody(&bed.home("main")));
    assert_eq!(within("the turn", turn.ended()).await?.outcome, interrupted(stopping()));
    let report = within("the side run", side.ended()).await?;
    assert_eq!((report.outcome, report.output.as_str()), (interrupted(stopping()), "half"), "G2");
    for aside in [aside, asked] {
        let answer = within("a question", aside.ended()).await?;
        assert_eq!((answer.outcome, answer.text.as_str()), (interrupted(stopping()), ""), "G5");
    }
    assert_eq!(profile.schedules().list()[0].runs[0].status, "interrupted", "K1");
    bed.host.is_idle()
}

/// Rules P6 and P7: a profile that cannot be released holds up none of the others; it is reported and tried again, keeps its
/// lock, and its home is not served twice.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_stuck_profile_holds_up_none_of_the_others() -> Result {
    let bed = Bed::new(with_agent().build()?)?;
    for name in ["gone", "stays", "stuck"] {
        bed.write(name, "")?;
    }
    assert_eq!(bed.reconcile().await?.added.len(), 3);
    let get = |name: &str| bed.profiles.get(name).ok_or_else(|| anyhow::anyhow!("no `{name}`"));
    let turn = session(&get("stuck")?).await?.prompt("checkpoint stuck", "")?;
    let other = session(&get("gone")?).await?.prompt("checkpoint gone", "")?;
    let staying = session(&get("stays")?).await?.prompt("checkpoint stays\nsay done", "")?;
    for place in ["stuck", "gone", "stays"] {
        bed.host.reached(place).await?;
    }
    let authority = get("stuck")?;
    bed.host.places().linger("stuck");
    let stopper = {
        let authority = authority.clone();
        std::thread::spawn(move || authority.unpublish())
    };
    within("it is taken away", bed.host.places().abandoned("stuck", 1)).await?;
    for name in ["gone", "stuck"] {
        std::fs::rename(bed.home(name).join("profile.toml"), bed.home(name).join("off"))?;
    }
    let bound = Duration::from_millis(200);
    let wanted = bed.wanted()?;
    let done = within("reconciling", bed.profiles.reconcile(&wanted, bound)).await?;
    assert_eq!((done.kept, done.released), (vec!["stays".to_owned()], vec!["gone".to_owned()]));
    assert!(done.removed.contains(&"gone".to_owned()));
    assert!(done.not_released.contains_key("stuck"), "{:?}", done.not_released);
    assert!(bed.profiles.get("stuck").is_none());
    assert!(!locked_by_nobody(&bed.home("stuck")) && locked_by_nobody(&bed.home("gone")));
    // Wanted again while the old one has not ended: parked, and not served twice.
    std::fs::rename(bed.home("stuck").join("off"), bed.home("stuck").join("profile.toml"))?;
    let done = bed.reconcile().await?;
    assert!(matches!(done.parked.get("stuck"), Some(Parked::Retiring { .. })), "{done:?}");
    bed.host.release("stuck");
    drop(stopper.join());
    within("its end", bed.profiles.releasable()).await?;
    let wanted = bed.wanted()?;
    let done = within("reconciling", bed.profiles.reconcile(&wanted, LONG)).await?;
    assert_eq!((done.released, done.added), (vec!["stuck".to_owned()], vec!["stuck".to_owned()]));
    assert_eq!(within("it", turn.ended()).await?.outcome, interrupted(stopping()));
    assert_eq!(within("the other", other.ended()).await?.outcome, interrupted(stopping()));
    bed.host.release("stays");
    assert_eq!(within("one that stays", staying.ended()).await?.output, "done");
    Ok(())
}

/// Rule P8: a ticket is good once, for its purpose and its profile, and for none that is not served.
#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_good_once_and_for_a_profile_that_is_served() -> Result {
    let bed = Bed::new(with_agent().build()?)?;
    let (one, two) = (bed.with("one", "").await?, bed.with("two", "").await?);
    let ticket = one.tickets().issue("attach", "giver", TICKET_LIFE)?.reveal().to_owned();
    assert!(two.tickets().redeem(&ticket, "attach").is_err(), "another profile's");
    assert!(one.tickets().redeem(&ticket, "attach").is_ok());
    assert!(one.tickets().redeem(&ticket, "attach").is_err(), "it was used");
    let late = one.tickets().issue("attach", "giver", TICKET_LIFE)?.reveal().to_owned();
    one.unpublish();
    assert!(one.tickets().redeem(&late, "attach").is_err());
    assert!(one.tickets().issue("attach", "giver", TICKET_LIFE).is_err());
    Ok(())
}

/// Rules N1 to N3 and G1: each claim and each end is followed by a count of all there is, with real turns and side runs, and the
/// last one is 0, written by a process that lives.
#[tokio::test(flavor = "multi_thread")]
async fn the_count_in_the_home_follows_the_work() -> Result {
    let bed = Bed::new(with_agent().build()?)?;
    let authority = bed.with("main", "").await?;
    let session = session(&authority).await?;
    let counted = async |count: usize, kinds: &[(&str, usize)]| -> Result {
        authority.count_settled().await;
        let reading = bed.count("main")?;
        let expected = kinds.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
        assert_eq!((reading.written.count, reading.written.kinds), (count, expected));
        assert_eq!(reading.writer, Life::Alive);
        Ok(())
    };
    counted(0, &[]).await?;
    let turn = session.prompt("checkpoint turn", "")?;
    counted(1, &[("turn", 1)]).await?;
    let side = session.side_run("checkpoint side", "")?;
    counted(2, &[("side run", 1), ("turn", 1)]).await?;
    let aside = session.aside("checkpoint aside")?;
    counted(3, &[("side run", 2), ("turn", 1)]).await?;
    bed.host.reached("turn").await?;
    bed.host.release("turn");
    within("the turn", turn.ended()).await?;
    counted(2, &[("side run", 2)]).await?;
    drop(aside);
    bed.host.until("the aside is gone", |nodes| nodes.len() == 1).await?;
    counted(1, &[("side run", 1)]).await?;
    bed.host.reached("side").await?;
    bed.host.release("side");
    let report = within("the side run", side.ended()).await?;
    assert_eq!(report.outcome, Outcome::Completed(()));
    counted(0, &[]).await
}

/// Rule G3: side runs that died in unusual ways are nothing that a retirement waits for.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_profile_whose_side_runs_have_died_is_released_at_once() -> Result {
    for death in ["trap", "exit 3", "recurse"] {
        let bed = Bed::new(with_agent().build()?)?;
        let authority = bed.with("main", "").await?;
        let session = session(&authority).await?;
        let side = session.side_run(death, "")?;
        let aside = session.aside(death)?;
        assert!(matches!(within(death, side.ended()).await?.outcome, Outcome::Trapped(_)));
        assert!(matches!(within(death, aside.ended()).await?.outcome, Outcome::Trapped(_)));
        authority.count_settled().await;
        assert_eq!(bed.count("main")?.written.count, 0);
        assert!(released(&within(death, authority.retire(Duration::ZERO)).await?), "{death}");
    }
    Ok(())
}
