//! A profile that is retired while guests of it are in processes of their own (rules P with M).

use std::path::Path;
use std::time::Duration;

use checkrein::profile::{HomeLock, NotReleased, Retired, STOPPING, Why};
use checkrein::sandbox::Outcome;
use checkrein::work::{Kind, Stop};
use checkrein_testkit::{TestHostBuilder, within};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::{Bed, released, session};
use crate::start::{Result, interrupted, with_agent};
use crate::workers::{deaf, folder, numbered, numbers, stops_told};

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(30);

/// What a profile says whose agent has processes of its own.
const APART: &str = "[plugins.agent]\nisolation = \"process\"\n";

fn stopping() -> Stop {
    Stop::hard("host", STOPPING)
}

/// That process.
pub(super) fn process(number: i32) -> Result<Pid> {
    Pid::from_raw(number).ok_or_else(|| anyhow::anyhow!("{number} is no process"))
}

/// A worker that leaves its number in that folder, keeps what it is told in the file `told` there, and obeys nothing.
pub(super) fn wedged(host: TestHostBuilder, folder: &Path) -> TestHostBuilder {
    let script = format!(": > {0}/$$; {1}", folder.display(), deaf(&folder.join("told")));
    host.workers("/bin/sh", &["-c", &script])
}

/// Rules P3 and W3: a turn, a child in the background and a side run that have processes are stopped hard, once each, with the
/// fixed reason; when the profile is released their processes have been reaped.
#[tokio::test(flavor = "multi_thread")]
async fn retiring_ends_what_has_processes_of_its_own() -> Result {
    let folder = folder()?;
    let bed = Bed::new(numbered(with_agent(), folder.path()).build()?)?;
    let authority = bed.with("main", APART).await?;
    let session = session(&authority).await?;
    let turn = session.prompt(
        "delegate {\"mode\":\"background\",\"tasks\":[{\"goal\":\"checkpoint child\"}]}\n\
         partial half\ncheckpoint turn",
        "",
    )?;
    let side = session.side_run("partial half\ncheckpoint side", "")?;
    for place in ["child", "turn", "side"] {
        bed.host.reached(place).await?;
    }
    let processes = numbers(folder.path(), 3).await?;
    let workers = bed.host.executions().iter().filter(|node| node.kind == Kind::Worker).count();
    assert_eq!((processes.len(), workers), (3, 3));

    assert!(released(&within("released", authority.retire(LONG)).await?));
    for number in processes {
        assert_eq!(test_kill_process(process(number)?), Err(Errno::SRCH), "it has been reaped");
    }
    let turn = within("the turn", turn.ended()).await?;
    assert_eq!((turn.outcome, turn.output.as_str()), (interrupted(stopping()), "half"));
    let side = within("the side run", side.ended()).await?;
    assert_eq!((side.outcome, side.output.as_str()), (interrupted(stopping()), "half"));
    let unit = within("the unit", session.completion()).await?;
    assert_eq!(unit.status.as_str(), "interrupted");
    assert!(HomeLock::take(&bed.home("main")).is_ok());
    bed.host.is_idle()
}

/// Rules P3, P4, P5 and M2: a worker that does not obey is told of the stop once, however often the profile is retired; until its
/// process has been reaped the profile is not released, and its home stays locked.
#[tokio::test(flavor = "multi_thread")]
async fn a_profile_is_not_released_before_its_last_process() -> Result {
    let folder = folder()?;
    let host = with_agent().configuration("[workers]\nstop-bound = \"10m\"");
    let bed = Bed::new(wedged(host, folder.path()).build()?)?;
    let authority = bed.with("main", APART).await?;
    let turn = session(&authority).await?.prompt("say never", "")?;
    bed.host.doing("computing").await?;
    let number = numbers(folder.path(), 1).await?[0];
    for bound in [Duration::ZERO, Duration::from_millis(50)] {
        match within("the bound", authority.retire(bound)).await? {
            Retired::NotReleased(NotReleased { why: Why::Alive(nodes), .. }) => {
                assert!(nodes.iter().any(|node| node.kind == Kind::Worker), "{nodes:?}");
                assert!(nodes.iter().all(|node| node.stop == Some(stopping())), "{nodes:?}");
            }
            other @ (Retired::Released | Retired::NotReleased(_)) => anyhow::bail!("{other:?}"),
        }
        assert!(!authority.is_published() && HomeLock::take(&bed.home("main")).is_err());
    }
    let told = folder.path().join("told");
    crate::workers::until("the stop", || stops_told(&told).is_ok_and(|stops| !stops.is_empty()))
        .await?;
    kill_process(process(number)?, Signal::KILL)?;
    assert!(released(&within("released", authority.retire(LONG)).await?));
    assert_eq!(stops_told(&told)?, ["hard"]);
    let report = within("the turn", turn.ended()).await?;
    assert!(matches!(report.outcome, Outcome::Unknown(_)), "{report:?}");
    assert!(HomeLock::take(&bed.home("main")).is_ok());
    bed.host.is_idle()
}
