//! What delegation costs: an admission, the way from an accepted unit to its running child, the way from the end of the
//! last child to the completion, and a stop that fans out to many children.
//!
//! `cargo bench --bench delegate`, or with `-- --quick` for a look.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a benchmark prints"
)]

mod side;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use checkrein::delegation::{
    Admission, Child, Completions, DelegationLimits, Hooks, InMemory, Origin, Policy, Receives,
    Slots,
};
use checkrein::ids::SessionId;
use checkrein::plugin::Configuration;
use checkrein::sandbox::Pool;
use checkrein::session::{Delivery, EventKind, Session, WatchError};
use checkrein::work::{Kind, Stop, Tree, Work};
use checkrein::{Compilation, Host};
use checkrein_testkit::guest;
use side::{Samples, paired, quick, shown};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

fn main() {
    let control =
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let _in_control = control.enter();
    let rounds = if quick() { 3 } else { 15 };
    let sizes: &[u32] = if quick() { &[1, 100] } else { &[1, 100, 10_000] };
    println!(
        "{:<52} {:>10} {:>10} {:>9}",
        "for each unit of one child", "baseline", "checkrein", "ratio"
    );
    for units in sizes {
        let pair = paired(rounds, || tasks(&control, *units), || admissions(&control, *units));
        let what = format!("admission, {units} units (spawn and join of a task)");
        row(&what, pair.bare, pair.ours, pair.ratio);
    }
    println!("\n{:<52} {:>10} {:>10} {:>9}", "for each child", "baseline", "checkrein", "ratio");
    for children in sizes {
        let pair = paired(rounds, || notices(*children), || fan_out(*children));
        let what = format!("a stop that reaches {children} children (a notice each)");
        row(&what, pair.bare, pair.ours, pair.ratio);
    }
    println!(
        "\n{:<40} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "real guests, one unit each", "start p50", "start p99", "done p50", "done p99", "in all"
    );
    for units in sizes {
        let seen = sessions(&control, *units);
        println!(
            "{:<40} {:>10} {:>10} {:>10} {:>10} {:>10}",
            format!("{units} units of one call"),
            shown(seen.started.p50()),
            shown(seen.started.p99()),
            shown(seen.visible.p50()),
            shown(seen.visible.p99()),
            shown(seen.whole),
        );
        if seen.missed > 0 {
            println!("  ({} events passed by before they were read)", seen.missed);
        }
    }
    println!(
        "start: accepted until its child has started. done: its last child ended until its completion can be read."
    );
}

fn row(what: &str, baseline: Duration, ours: Duration, ratio: f64) {
    println!("{what:<52} {:>10} {:>10} {ratio:>7.2} ×", shown(baseline), shown(ours));
}

fn each(whole: Duration, of: u32) -> Duration {
    whole / of.max(1)
}

/// The least that a host does for a background unit: a task that is spawned and waited for.
fn tasks(control: &Runtime, units: u32) -> Duration {
    let start = Instant::now();
    control.block_on(async {
        for _ in 0..units {
            tokio::spawn(async {}).await.expect("it ends");
        }
    });
    each(start.elapsed(), units)
}

/// Nodes as a session has them.
struct Nodes {
    registry: Work,
    turn: Work,
    _session: Work,
    _root: Work,
}

fn nodes() -> Nodes {
    let (_tree, root) = Tree::new("bench");
    let session = root.open(Kind::Session, "session").expect("it is open");
    let registry = session.open(Kind::Registry, "background").expect("it is open");
    let turn = session.open(Kind::Turn, "turn").expect("it is open");
    Nodes { registry, turn, _session: session, _root: root }
}

/// Admits units of one child each, as one call does, and lets them complete without running anything. Only the
/// admissions are timed.
fn admissions(control: &Runtime, units: u32) -> Duration {
    let nodes = nodes();
    let all = u64::from(units);
    let limits = DelegationLimits { unread_completions: all, ..DelegationLimits::default() };
    let slots = Slots::new(limits, Hooks::default());
    let completions = Completions::new();
    let origin = Origin {
        session: SessionId::new("s1"),
        registry: nodes.registry.share(),
        completions: completions.clone(),
        receives: Receives::Later,
        recorder: Arc::new(InMemory),
    };
    let mut call = slots.call(origin, Policy::Inline);
    let children: Vec<Child> = (0..units)
        .map(|task| Child {
            task,
            goal: String::new(),
            work: nodes.turn.open(Kind::Child, "child").expect("it is open"),
        })
        .collect();
    let mut accepted = Vec::with_capacity(children.len());
    let start = Instant::now();
    control.block_on(async {
        for child in children {
            // One that is not is missed below.
            if let Admission::Accepted(unit) = call.submit(vec![child]).await {
                accepted.push(unit);
            }
        }
    });
    let took = start.elapsed();
    drop(accepted);
    assert_eq!(completions.list().len(), units as usize);
    each(took, units)
}

/// The least that a stop does: one notice for each that may wait for it.
fn notices(children: u32) -> Duration {
    let all: Vec<Arc<Notify>> = (0..children).map(|_| Arc::new(Notify::new())).collect();
    let start = Instant::now();
    for one in &all {
        one.notify_waiters();
    }
    each(start.elapsed(), children)
}

fn fan_out(children: u32) -> Duration {
    let nodes = nodes();
    let all: Vec<Work> =
        (0..children).map(|_| nodes.turn.open(Kind::Child, "child").expect("it is open")).collect();
    let stop = Stop::hard("bench", "measured");
    let start = Instant::now();
    let reached = nodes.turn.stop(&stop);
    let took = start.elapsed();
    assert_eq!(reached, all.len() + 1);
    each(took, children)
}

/// What real units took.
struct Seen {
    started: Samples,
    visible: Samples,
    whole: Duration,
    missed: u64,
}

/// One call of a real guest with so many units, each a child that is a guest of its own.
fn sessions(control: &Runtime, units: u32) -> Seen {
    let home = tempfile::tempdir().expect("a folder");
    let plugin = checkrein_testkit::Plugin::agent("agent", guest("agent"));
    let folder = plugin.write(home.path()).expect("it is written");
    let text = format!(
        "[delegation]\nchildren-per-call = {units}\ndescendants-per-tree = {units}\nunread-completions = {units}\n\
         [limits]\ncall-bytes = \"64MiB\"\nmemory = \"128MiB\"\n"
    );
    let file = home.path().join("checkrein.toml");
    let host = Host::builder(Compilation::InProcess)
        .without_first_party()
        .configuration(Configuration::parse(&text, &file).expect("a configuration"))
        .plugin(folder)
        .pool(Pool::Slots(1_024))
        .build()
        .expect("a host");
    control.block_on(async {
        let session =
            host.session("agent").delivery(Delivery::Polled).open().await.expect("a session");
        let (over, stop) = tokio::sync::oneshot::channel();
        let reader = tokio::spawn(read(session.clone(), stop));
        let tasks = vec!["{\"goal\":\"say x\"}"; units as usize].join(",");
        let goal = format!(
            "delegate {{\"mode\":\"background\",\"independent-completions\":true,\"tasks\":[{tasks}]}}"
        );
        let start = Instant::now();
        let report = session.prompt(goal, "").expect("it is idle").ended().await;
        assert_eq!(report.outcome.status(), "completed", "{:?}", report.outcome);
        while session.completions().len() < units as usize {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let whole = start.elapsed();
        over.send(()).expect("the reader waits");
        Seen { whole, ..reader.await.expect("it reads") }
    })
}

/// Reads the moments of all units off the events, until all are over and all events are read.
async fn read(session: Session, mut over: tokio::sync::oneshot::Receiver<()>) -> Seen {
    let mut events = session.events(0);
    let mut accepted: HashMap<String, Duration> = HashMap::new();
    let mut ended: HashMap<String, Duration> = HashMap::new();
    let (mut started, mut visible, mut missed) = (Vec::new(), Vec::new(), 0);
    let mut live = true;
    loop {
        let event = if live {
            tokio::select! {
                biased;
                event = events.next() => event,
                _ = &mut over => {
                    live = false;
                    continue;
                }
            }
        } else {
            events.try_next()
        };
        let event = match event {
            Ok(Some(event)) => event,
            Ok(None) => break,
            Err(WatchError::Lagged(lagged)) => {
                missed += lagged.missed;
                continue;
            }
            Err(_) => break,
        };
        if let EventKind::DelegationAccepted { delegation, .. } = event.kind {
            accepted.insert(delegation, event.at);
        } else if let EventKind::RunStarted { delegation: Some(unit), .. } = event.kind {
            started.extend(accepted.remove(&unit).map(|at| event.at.saturating_sub(at)));
        } else if let EventKind::ChildEnded { delegation: Some(unit), .. } = event.kind {
            ended.insert(unit, event.at);
        } else if let EventKind::DelegationEnded { delegation, .. } = event.kind {
            visible.extend(ended.remove(&delegation).map(|at| event.at.saturating_sub(at)));
        }
    }
    let (started, visible) = (Samples::new(started), Samples::new(visible));
    Seen { started, visible, whole: Duration::ZERO, missed }
}
