//! How long a stop takes from the call until nothing of the run is left, beside bare wasmtime in the same process,
//! and what it costs the neighbours.
//!
//! `cargo bench --bench stop`, or with `-- --quick` for a look.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a benchmark prints"
)]

mod side;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use checkrein::model::{Reply, Scripted};
use checkrein::sandbox::{Isolation, Limits, Pool, Run};
use checkrein::session::{Session, Turn};
use checkrein::work::{Activity, Stop, Tree};
use checkrein::{Compilation, Host};
use checkrein_testkit::guest;
use side::bare::{self, Flags};
use side::ours::Ours;
use side::{Samples, quick, shown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use wasmtime::component::Component;

/// What the guests do, and the goal that makes them do it. The last two need sessions with a model and tools.
const KINDS: [(&str, &str); 5] = [
    ("spin", "spin"),
    ("wait in an import", "park"),
    ("loop over host calls", "loop"),
    ("wait in a model stream", "model"),
    ("wait in a spinning tool", "tool"),
];

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("a runtime")
}

fn main() {
    let control = runtime(2);
    let _in_control = control.enter();
    let bytes: Arc<[u8]> = guest("bench-agent").into();
    let sizes: &[usize] = if quick() { &[1, 100] } else { &[1, 100, 1_000] };
    println!(
        "From the stop to *gone*: the future dropped, the store freed, the owner told. {} per line.",
        samples(1)
    );
    println!(
        "{:<26} {:>6} │ {:>10} {:>10} {:>10} │ {:>10} {:>10} │ {:>10} {:>10}",
        "guests", "live", "p50", "p99", "max", "bare p50", "bare p99", "timer p99", "echo p99"
    );
    for (kind, goal) in KINDS {
        for live in sizes {
            let (stops, neighbours) = if matches!(goal, "model" | "tool") {
                measure_sessions(&control, goal, *live)
            } else {
                let ours = Ours::new(control.handle().clone(), 2_048);
                let limits = Limits::default();
                let code = control
                    .block_on(ours.sandbox.load_agent(
                        &ours.root,
                        Arc::clone(&bytes),
                        &limits,
                        Isolation::Instance,
                    ))
                    .expect("it loads");
                measure(&control, &ours.tree, *live, 1, |_| Live::Run(ours.start(&code, goal)))
            };
            // Bare wasmtime has no tools and no models of its own; the last two kinds compare with a plain wait.
            let bare_goal = if matches!(goal, "model" | "tool") { "park" } else { goal };
            let bare = measure_bare(&bytes, bare_goal, *live);
            println!(
                "{kind:<26} {live:>6} │ {:>10} {:>10} {:>10} │ {:>10} {:>10} │ {:>10} {:>10}",
                shown(stops.p50()),
                shown(stops.p99()),
                shown(stops.max()),
                shown(bare.p50()),
                shown(bare.p99()),
                shown(neighbours.timer.p99()),
                shown(neighbours.echo.p99()),
            );
        }
    }
}

/// One guest that runs until it is stopped.
enum Live {
    /// Started in the sandbox.
    Run(Run<String>),
    /// The turn of a session.
    Turn(Session, Turn),
}

impl Live {
    /// From the stop until nothing of it is left.
    async fn stopped(self, tree: Tree) -> Duration {
        let stop = Stop::hard("bench", "measured");
        let start = Instant::now();
        let status = match self {
            Live::Run(run) => {
                tree.stop(run.id(), &stop).expect("it runs");
                run.ended().await.outcome.status()
            }
            Live::Turn(session, turn) => {
                session.stop_turn(Some(turn.generation()), &stop).expect("it runs");
                turn.ended().await.outcome.status()
            }
        };
        let took = start.elapsed();
        assert_eq!(status, "interrupted");
        took
    }
}

/// Turns of sessions, each waiting for a model that has begun to answer, or for a tool that never does.
fn measure_sessions(control: &Runtime, goal: &str, live: usize) -> (Samples, Neighbours) {
    let home = tempfile::tempdir().expect("a folder");
    side::plugins(home.path());
    let stalled = Scripted::new("stalled", [Reply::new().text("a beginning").stall().repeat()]);
    // A turn in a tool call is two runs.
    let runs_each = if goal == "tool" { 2 } else { 1 };
    let host = Host::builder(Compilation::InProcess)
        .without_first_party()
        .plugin(home.path().join("bench"))
        .plugin(home.path().join("caller"))
        .model(Arc::new(stalled))
        .pool(Pool::Slots(2_400))
        .build()
        .expect("a host");
    // Opened before anything spins: each asks the tool component which tools it has, in a run that would stand in line.
    let sessions: Vec<Session> = (0..seats(live))
        .map(|_| control.block_on(host.session("caller").open()).expect("a session"))
        .collect();
    measure(control, host.tree(), live, runs_each, |seat| {
        let session = sessions.get(seat).expect("a session for each seat").clone();
        let turn = session.prompt(goal, "").expect("the session is idle");
        Live::Turn(session, turn)
    })
}

/// How many stops are measured.
fn samples(live: usize) -> usize {
    let most = if quick() { 20 } else { 300 };
    most.min(live.max(most / 3))
}

/// How many are stopped, one after the other, before others are put in their places: beside many that spin it takes
/// seconds until a new one has had its first turn.
fn in_a_row(live: usize) -> usize {
    (live / 10).max(1)
}

/// How many run at the beginning of a row, so that `live` of them run at its last stop.
fn seats(live: usize) -> usize {
    live + in_a_row(live) - 1
}

/// Keeps at least `live` guests running and stops them one after the other.
fn measure(
    control: &Runtime,
    tree: &Tree,
    live: usize,
    runs_each: usize,
    start: impl Fn(usize) -> Live,
) -> (Samples, Neighbours) {
    let mut all: Vec<(usize, Live)> = (0..seats(live)).map(|seat| (seat, start(seat))).collect();
    started(tree, all.len() * runs_each);
    // They feel the guests that run and the stops that follow on each other meanwhile.
    let neighbours = control.spawn(neighbours());
    let mut stops = Vec::new();
    while stops.len() < samples(live) {
        let mut free = Vec::new();
        for _ in 0..in_a_row(live) {
            let (seat, one) = all.swap_remove(stops.len() * 7 % all.len());
            let stopped = control.spawn(one.stopped(tree.clone()));
            stops.push(control.block_on(stopped).expect("it is measured"));
            free.push(seat);
            std::thread::sleep(Duration::from_millis(1));
        }
        all.extend(free.into_iter().map(|seat| (seat, start(seat))));
        started(tree, all.len() * runs_each);
    }
    let neighbours = control.block_on(neighbours).expect("they are measured");
    for (_, one) in all {
        control.block_on(one.stopped(tree.clone()));
    }
    (Samples::new(stops), neighbours)
}

/// Waits until the code of that many guests has been entered.
fn started(tree: &Tree, live: usize) {
    let until = Instant::now() + Duration::from_secs(60);
    let begun = |tree: &Tree| {
        let nodes = tree.executions(tree.root());
        let is_begun = |activity: &Activity| activity.what != "starting";
        nodes.iter().filter(|node| node.activity.as_ref().is_some_and(is_begun)).count()
    };
    while begun(tree) < live {
        assert!(Instant::now() < until, "{} of {live} guests have begun", begun(tree));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The usual way with bare wasmtime: a flag, a bump of the epoch, and waiting for the task to notice; or, for a
/// guest that waits in the host, aborting its task.
fn measure_bare(bytes: &[u8], goal: &str, live: usize) -> Samples {
    let guests = runtime(2);
    let engines = checkrein::sandbox::Engines::new(&checkrein::sandbox::EngineSettings {
        pool: Pool::Slots(2_048),
    })
    .expect("an engine");
    let engine = engines.plain().clone();
    let pre = bare::agent(&engine, &Component::new(&engine, bytes).expect("it compiles"));
    let ticks = Flags::default().ticks;
    let ticker = {
        let (ticks, engine) = (Arc::clone(&ticks), engine.weak());
        std::thread::spawn(move || {
            while let Some(engine) = engine.upgrade() {
                ticks.fetch_add(1, Ordering::Relaxed);
                engine.increment_epoch();
                drop(engine);
                std::thread::sleep(Duration::from_millis(5));
            }
        })
    };
    let start = || {
        let flags = Flags { ticks: Arc::clone(&ticks), ..Flags::default() };
        let (engine, pre, own, goal) =
            (engine.clone(), pre.clone(), flags.clone(), goal.to_owned());
        (guests.spawn(async move { bare::run(&engine, &pre, &goal, None, &own).await }), flags)
    };
    let mut runs: Vec<_> = (0..live).map(|_| start()).collect();
    std::thread::sleep(Duration::from_millis(50 + live as u64));
    let mut stops = Vec::new();
    // Waiting for a queue of spinning guests takes seconds each time; a few samples say enough.
    let count = if live > 100 { samples(live).min(10) } else { samples(live).min(100) };
    for n in 0..count {
        let (task, flags) = runs.swap_remove(n * 7 % runs.len());
        let begin = Instant::now();
        flags.stop.store(true, Ordering::SeqCst);
        if goal == "park" {
            task.abort();
        }
        engine.increment_epoch();
        // The flag may have been missed between the look and the new deadline, so the tick must bump again.
        guests.block_on(async { task.await.ok() });
        stops.push(begin.elapsed());
        runs.push(start());
    }
    for (task, flags) in &runs {
        flags.stop.store(true, Ordering::SeqCst);
        task.abort();
    }
    engine.increment_epoch();
    guests.shutdown_timeout(Duration::from_secs(30));
    drop((pre, engine, engines, runs));
    ticker.join().expect("the ticker ends with its engine");
    Samples::new(stops)
}

/// What others on the control runtime feel meanwhile.
struct Neighbours {
    /// How much later than asked a timer of 1 ms comes.
    timer: Samples,
    /// How long a byte takes to a local server and back.
    echo: Samples,
}

async fn neighbours() -> Neighbours {
    let rounds = if quick() { 50 } else { 500 };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut byte = [0];
        while stream.read_exact(&mut byte).await.is_ok() {
            stream.write_all(&byte).await.expect("it is written");
        }
    });
    let client = tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.expect("it connects");
        stream.set_nodelay(true).expect("an option");
        let (mut timer, mut echo) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let start = Instant::now();
            tokio::time::sleep(Duration::from_millis(1)).await;
            timer.push(start.elapsed().saturating_sub(Duration::from_millis(1)));
            let start = Instant::now();
            stream.write_all(&[1]).await.expect("it is written");
            stream.read_exact(&mut [0]).await.expect("it comes back");
            echo.push(start.elapsed());
        }
        Neighbours { timer: Samples::new(timer), echo: Samples::new(echo) }
    });
    let neighbours = client.await.expect("it is measured");
    server.abort();
    neighbours
}
