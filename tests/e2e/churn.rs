//! Rules S12 and W4: after many runs that were stopped at random moments nothing of them is left.

use std::time::{Duration, Instant};

use anyhow::ensure;
use checkrein::model::{Reply, Scripted};
use checkrein::sandbox::Outcome;
use checkrein::session::Session;
use checkrein::work::{Grace, Stop};
use checkrein_testkit::{Footprint, Random, TestHost, alone, within};
use tokio::runtime::Handle;

use crate::start::{Result, hard};

/// How many runs, where nobody says otherwise. Set `CHECKREIN_CHURN` for a longer test.
const RUNS: u64 = 2_000;

/// How many of them go on at one time.
const AT_ONE_TIME: u64 = 8;

/// The latest moment of a stop after the start.
const LATEST: Duration = Duration::from_micros(1_500);

/// What the runs are at when they are stopped.
const ENDLESS: [&str; 12] = [
    "spin",
    "sleep 100000000",
    "checkpoint nobody opens",
    "ask anything",
    "call tool_spin",
    "calls 3 tool_sleep {\"text\":\"poll\"}",
    "call tool_loop {\"text\":\"config.keys\"}",
    "call tool_read-on {\"path\":\"/work/endless\"}",
    "loop session.emit",
    "loop run.budgets",
    "forever call tool_echo {\"text\":\"a\"}",
    "forever ask anything",
];

/// The same, for runs that may be faster than their stop.
const ENDING: [&str; 4] = [
    "hoard",
    "recurse",
    "say an end of its own",
    "call tool_open-all {\"path\":\"/work/endless\",\"count\":1000000}",
];

/// One run: started, stopped at a random moment in a random way, and waited for.
async fn one(session: &Session, random: &mut Random) -> Result {
    let number = random.below((ENDLESS.len() + ENDING.len()) as u64) as usize;
    let goal = ENDLESS.get(number).unwrap_or_else(|| &ENDING[number - ENDLESS.len()]);
    let moment = LATEST.mul_f64(random.below(1_000) as f64 / 1_000.0);
    let way = random.below(4);
    let turn = session.prompt(*goal, "")?;
    let started = Instant::now();
    // The moment is what this test is about, so it does wait for a time; nothing depends on its length.
    while started.elapsed() < moment {
        tokio::task::yield_now().await;
    }
    let stop = match way {
        // Nobody is interested any more in a run with an end of its own; the others must be stopped.
        0 => Stop::soft("user", "soon", Grace::After(Duration::from_micros(random.below(1_000)))),
        _ => hard("now"),
    };
    session.stop_turn(Some(turn.generation()), &stop).ok();
    let report = within(goal, turn.ended()).await?;
    let as_it_should = if let Outcome::Interrupted { stop, .. } = &report.outcome {
        ["now", "soon"].contains(&stop.message())
    } else {
        // It was faster than its stop.
        let ended = matches!(
            report.outcome,
            Outcome::Completed(()) | Outcome::Limit(_) | Outcome::Trapped(_)
        );
        ended && ENDING.contains(goal)
    };
    ensure!(as_it_should, "{goal}: {:?}", report.outcome);
    Ok(())
}

async fn many(host: &TestHost, runs: u64, seed: u64) -> Result {
    let lane = |lane: u64| async move {
        let mut random = Random::new(seed << 32 | lane);
        let mut session = host.session("agent").await?;
        for run in 0..runs / AT_ONE_TIME {
            // A session remembers its events; a new one now and then keeps the memory of the test level.
            if run % 50 == 0 {
                session = host.session("agent").await?;
            }
            one(&session, &mut random).await?;
        }
        anyhow::Ok(())
    };
    futures::future::try_join_all((0..AT_ONE_TIME).map(lane)).await?;
    host.settles().await?;
    // The sessions are gone, too.
    let tree = host.host().tree();
    let left = tree.snapshot(tree.root());
    ensure!(left.len() == 1, "left in the tree: {left:?}");
    Ok(())
}

/// What is counted here is counted for a whole process, so the other tests must not be in it.
#[test]
fn nothing_is_left_of_many_runs_that_were_stopped_at_random_moments() -> Result {
    alone("churn::alone_in_its_process")
}

#[ignore = "run by the test above, in a process of its own"]
#[tokio::test(flavor = "multi_thread")]
async fn alone_in_its_process() -> Result {
    #[allow(
        clippy::disallowed_methods,
        reason = "whoever starts the tests says how long they may be"
    )]
    let runs =
        std::env::var("CHECKREIN_CHURN").ok().and_then(|text| text.parse().ok()).unwrap_or(RUNS);
    let model = Scripted::new("model", [Reply::new().text("and so on").stall().repeat()]);
    let given = "[plugins.tool.grants]\ndirectories = [{ mount = \"work\", path = \"work\" }]";
    let tool = crate::start::tool().grants("directories = [{ mount = \"work\" }]");
    let host = crate::start::host()
        .plugin(crate::start::agent())
        .plugin(tool)
        .model(model)
        .configuration(given)
        .build()?;
    std::fs::create_dir(host.home().join("work"))?;
    std::fs::File::create(host.home().join("work/endless"))?.set_len(1 << 40)?;

    // What is made once, such as threads and the pages of the pool, is made here.
    many(&host, (runs / 4).max(200), 1).await?;
    let tasks = Handle::current().metrics().num_alive_tasks();
    let before = Footprint::now()?;
    many(&host, runs, 2).await?;
    let after = Footprint::now()?;
    // A task is counted until its thread has put it away, which may be a moment after its end was heard of.
    let all_gone = async {
        while Handle::current().metrics().num_alive_tasks() > tasks {
            tokio::task::yield_now().await;
        }
    };
    within("no task of the host runtime is left", all_gone).await?;
    // Threads for blocking calls come and go; there are at most as many as calls went on at one time.
    assert!(after.threads <= before.threads + 4 * AT_ONE_TIME as usize, "{before:?} {after:?}");
    assert!(after.files <= before.files + 4, "{before:?} {after:?}");
    assert!(after.mappings <= before.mappings + 200, "{before:?} {after:?}");
    assert!(after.resident <= before.resident + (48 << 20), "{before:?} {after:?}");
    println!("{runs} runs: {before:?} then {after:?}");
    Ok(())
}
