//! What a run costs, beside bare wasmtime with the same engine settings in the same process: the start of a run, a
//! host call through the door, a tool call end to end, compiling and loading, memory per live run. A run in a process of
//! its own stands beside one in this process.
//!
//! `cargo bench --bench run`, or with `-- --quick` for a look, and with the names of parts for those alone: `start`,
//! `call`, `tool`, `load`, `memory`, `process`.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a benchmark prints"
)]

mod side;

use std::sync::Arc;
use std::time::{Duration, Instant};

use checkrein::Compilation;
use checkrein::sandbox::{Isolation, Limits, SandboxSettings, WorkerSettings};
use checkrein_testkit::guest;
use side::bare::{self, Flags};
use side::ours::Ours;
use side::{asked_for, paired, quick, time};
use tokio::runtime::{Builder, Runtime};
use wasmtime::component::Component;

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("a runtime")
}

fn main() {
    let control = runtime(2);
    let _in_control = control.enter();
    // Bare runs share two threads with their timers, as an embedder without two runtimes would have it.
    let guests = runtime(2);
    let ours = Ours::new(control.handle().clone(), 2_048);
    let engine = ours.engines.plain().clone();
    let bytes: Arc<[u8]> = guest("bench-agent").into();
    let code = control
        .block_on(ours.sandbox.load_agent(
            &ours.root,
            Arc::clone(&bytes),
            &Limits::default(),
            Isolation::Instance,
        ))
        .expect("it loads");
    let component = Component::new(&engine, &bytes).expect("it compiles");
    let pre = bare::agent(&engine, &component);
    let rounds = if quick() { 3 } else { 15 };
    let apart = Builder::new_multi_thread()
        .worker_threads(2)
        // As low as the executor threads are, which matters to whoever is woken by them.
        .on_thread_start(|| {
            let _ = rustix::process::nice(5);
        })
        .build()
        .expect("a runtime");
    let bench = Bench { control, guests, apart, ours, engine, pre, code };
    if let Some(side) = MEMORY_OF.iter().find(|side| std::env::args().any(|arg| arg == **side)) {
        return hold(side, &bench);
    }

    println!("{:<44} {:>10} {:>10} {:>9}", "", "bare", "checkrein", "ratio");
    let parts: [(&str, &dyn Fn()); 6] = [
        ("start", &|| bench.starts(rounds)),
        ("call", &|| bench.calls(rounds)),
        ("tool", &|| tools(&bench.control, &bench.guests, rounds)),
        ("load", &|| loading(&bench.control, &bytes)),
        ("memory", &memory),
        ("process", &|| processes(&bench.control, &bytes, rounds)),
    ];
    for (name, part) in parts {
        if asked_for(name) {
            part();
        }
    }
}

/// One agent, ready to run on both sides.
struct Bench {
    control: Runtime,
    /// The threads of the bare runs.
    guests: Runtime,
    /// Threads for bare runs that somebody else waits for. Like ours they have no timers and no sockets to look after.
    apart: Runtime,
    ours: Ours,
    engine: wasmtime::Engine,
    pre: bare::AgentPre<bare::Bare>,
    code: checkrein::sandbox::AgentCode,
}

impl Bench {
    /// One whole bare run, for whatever task or thread it is to be on.
    fn bare(&self, goal: &str) -> impl Future<Output = ()> + Send + 'static {
        let (engine, pre, goal) = (self.engine.clone(), self.pre.clone(), goal.to_owned());
        async move { bare::run(&engine, &pre, &goal, None, &Flags::default()).await }
    }

    /// The start of a run: the whole way from opening work to the owner being told.
    ///
    /// Each is measured beside two bare equivalents. In the first, guests run on the very thread that waits for them.
    /// In the second they run on threads of their own, as they must where no guest is to delay a stop or a timer, and
    /// whoever waits is told over there. Nothing else differs.
    fn starts(&self, rounds: usize) {
        let many = if quick() { 500 } else { 5_000 };
        let at_once = 64;
        let flags = Flags::default();
        let here = |loops: u32| {
            let each = many / loops;
            let tasks = (0..loops).map(|_| {
                let (engine, pre, flags) = (self.engine.clone(), self.pre.clone(), flags.clone());
                self.guests.spawn(async move {
                    for _ in 0..each {
                        bare::run(&engine, &pre, "start", None, &flags).await;
                    }
                })
            });
            let all = || self.guests.block_on(futures::future::join_all(tasks));
            time(|| all().into_iter().for_each(|ended| ended.expect("it runs"))) / (each * loops)
        };
        let apart = |loops: u32| {
            let each = many / loops;
            let loops_of = (0..loops).map(|_| async {
                for _ in 0..each {
                    self.apart.spawn(self.bare("start")).await.expect("it runs");
                }
            });
            time(|| drop(self.control.block_on(futures::future::join_all(loops_of))))
                / (each * loops)
        };
        let ours = |loops: u32| {
            let each = many / loops;
            let loops_of = (0..loops).map(|_| async {
                for _ in 0..each {
                    self.ours.start(&self.code, "start").ended().await;
                }
            });
            time(|| drop(self.control.block_on(futures::future::join_all(loops_of))))
                / (each * loops)
        };
        for (what, loops) in [("one at a time", 1), ("64 at once", at_once)] {
            let measured = paired(rounds, || here(loops), || ours(loops));
            measured.print(&format!("start of a run, {what}"), &measured.rates());
            let measured = paired(rounds, || apart(loops), || ours(loops));
            measured.print("  beside bare on threads apart", &measured.rates());
        }
    }

    /// Calls of the host, answered at once and answered by a future.
    fn calls(&self, rounds: usize) {
        let calls: u32 = if quick() { 100_000 } else { 1_000_000 };
        for (what, goal) in
            [("host call that answers at once", "calls"), ("host call that may wait", "waits")]
        {
            let goal = format!("{goal} {calls}");
            let call = paired(
                rounds,
                || time(|| self.guests.block_on(self.bare(&goal))) / calls,
                || {
                    time(|| {
                        let run = self.ours.start(&self.code, &goal);
                        let report = self.control.block_on(run.ended());
                        assert_eq!(report.outcome.status(), "completed");
                    }) / calls
                },
            );
            call.print(what, "");
        }
    }
}

/// A run in a process of its own, and a host call from there, beside the same in this process.
fn processes(control: &Runtime, bytes: &Arc<[u8]>, rounds: usize) {
    let workers = WorkerSettings::new(env!("CARGO_BIN_EXE_checkrein"), vec!["worker".into()]);
    let settings = SandboxSettings { workers: Some(workers), ..SandboxSettings::default() };
    let ours = Ours::with(control.handle().clone(), 64, &settings);
    let load = |isolation| {
        let limits = Limits::default();
        let code = ours.sandbox.load_agent(&ours.root, Arc::clone(bytes), &limits, isolation);
        control.block_on(code).expect("it loads")
    };
    let (here, apart) = (load(Isolation::Instance), load(Isolation::Process));
    let run = |code, goal: &str| {
        let report = control.block_on(ours.start(code, goal).ended());
        assert_eq!(report.outcome.status(), "completed");
    };
    let (runs, calls) = if quick() { (5, 500) } else { (20, 5_000) };
    println!("\n{:<44} {:>10} {:>10} {:>9}", "", "instance", "process", "ratio");
    let start = paired(
        rounds,
        || time(|| (0..runs).for_each(|_| run(&here, "start"))) / runs,
        || time(|| (0..runs).for_each(|_| run(&apart, "start"))) / runs,
    );
    start.print("run, one at a time", "");
    let goal = format!("waits {calls}");
    let call = paired(
        rounds,
        || time(|| run(&here, &goal)) / calls,
        || time(|| run(&apart, &goal)) / calls,
    );
    call.print("host call that may wait", "");
}

/// One tool call end to end: from the agent's call through schema, store and instance to the result.
fn tools(control: &Runtime, guests: &Runtime, rounds: usize) {
    let calls: u32 = if quick() { 200 } else { 2_000 };
    let home = tempfile::tempdir().expect("a folder");
    side::plugins(home.path());
    let host = checkrein::Host::builder(Compilation::InProcess)
        .without_first_party()
        .plugin(home.path().join("bench"))
        .plugin(home.path().join("caller"))
        .build()
        .expect("a host");
    let session = control.block_on(host.session("caller").open()).expect("a session");
    let engine = host.sandbox().engines().plain().clone();
    let tool = bare::tool_component(
        &engine,
        &Component::new(&engine, guest("bench-tool")).expect("it compiles"),
    );
    let pre =
        bare::agent(&engine, &Component::new(&engine, guest("bench-agent")).expect("it compiles"));
    let goal = format!("tools {calls}");
    let call = paired(
        rounds,
        || {
            let (engine, pre, goal, tool) =
                (engine.clone(), pre.clone(), goal.clone(), Arc::clone(&tool));
            let run =
                async move { bare::run(&engine, &pre, &goal, Some(tool), &Flags::default()).await };
            time(|| guests.block_on(guests.spawn(run)).expect("it runs")) / calls
        },
        || {
            time(|| {
                let turn = session.prompt(goal.as_str(), "").expect("the session is idle");
                let report = control.block_on(turn.ended());
                assert_eq!(report.outcome.status(), "completed", "{:?}", report.outcome);
            }) / calls
        },
    );
    call.print("tool call end to end", "ours: own node, schema check, events");
}

/// Compiling in the child process and in this one; loading from the cache and from a plain file.
fn loading(control: &Runtime, bytes: &Arc<[u8]>) {
    use checkrein::sandbox::{
        Cache, CompileLimits, Compiler, EngineSettings, Engines, Loader, Metering, Pool,
    };
    let rounds = if quick() { 3 } else { 10 };
    let engines = Engines::new(&EngineSettings { pool: Pool::OnDemand }).expect("an engine");
    let home = tempfile::tempdir().expect("a folder");
    let program = std::path::PathBuf::from(env!("CARGO_BIN_EXE_checkrein"));
    let (_tree, root) = checkrein::work::Tree::new("bench");
    let load = |cache: Option<Cache>| {
        let compiler =
            Compiler::child(&program, vec!["compile-child".into()], CompileLimits::default());
        let loader = Loader::new(engines.clone(), compiler, cache);
        time(|| {
            control
                .block_on(loader.load(Arc::clone(bytes), Metering::None, &root))
                .expect("it loads");
        })
    };
    let compile = paired(
        rounds,
        || time(|| drop(Component::new(engines.plain(), bytes).expect("it compiles"))),
        || load(None),
    );
    compile.print("compile a component", "ours in a child process with limits");

    let serialised = Component::new(engines.plain(), bytes)
        .and_then(|component| component.serialize())
        .expect("it compiles");
    let file = home.path().join("plain.cwasm");
    std::fs::write(&file, serialised).expect("it is written");
    let cache = home.path().join("cache");
    load(Some(Cache::open(&cache, 1 << 30).expect("a cache")));
    let from_cache = paired(
        rounds * 10,
        || time(|| drop(bare::deserialize(engines.plain(), &file))),
        || {
            let cache = Cache::open(&cache, 1 << 30).expect("a cache");
            load(Some(cache))
        },
    );
    from_cache.print(
        "load from the cache on disk",
        "ours verifies a keyed checksum; bare trusts the file",
    );
}

/// What a live run holds, at 1,000 of them that wait in a host call. Each side in a process of its own: what one has
/// used, pages of the pool above all, would come cheap to the other.
fn memory() {
    let here = std::env::current_exe().expect("a path");
    let held = |side: &str| {
        let quick = quick().then_some("--quick");
        let output = std::process::Command::new(&here).arg(side).args(quick).output();
        let text = String::from_utf8(output.expect("it runs").stdout).expect("it is text");
        text.trim().parse::<usize>().expect("it says how many bytes")
    };
    let (bare, ours) = (held(MEMORY_OF[0]), held(MEMORY_OF[1]));
    println!(
        "{:<44} {:>6} KiB {:>6} KiB {:>7.2} ×  each in a process of its own",
        format!("memory of a live run, {} at once", live()),
        bare / 1024,
        ours / 1024,
        ours as f64 / bare.max(1) as f64
    );
}

/// The arguments with which this benchmark starts itself, to hold bare runs and to hold ours.
const MEMORY_OF: [&str; 2] = ["--memory-of-bare", "--memory-of-ours"];

fn live() -> usize {
    if quick() { 100 } else { 1_000 }
}

/// Holds that many runs and prints what each takes.
fn hold(side: &str, bench: &Bench) {
    let before = resident();
    let (mut tasks, mut runs) = (Vec::new(), Vec::new());
    if side == MEMORY_OF[0] {
        tasks.extend((0..live()).map(|_| bench.guests.spawn(bench.bare("park"))));
    } else {
        runs.extend((0..live()).map(|_| bench.ours.start(&bench.code, "park")));
    }
    settle(&bench.engine, live() as u64);
    println!("{}", resident().saturating_sub(before) / live());
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    drop(runs);
    settle(&bench.engine, 0);
}

/// Waits until the pool has that many instances.
fn settle(engine: &wasmtime::Engine, instances: u64) {
    let until = Instant::now() + Duration::from_secs(30);
    let live = || engine.pooling_allocator_metrics().map_or(0, |pool| pool.component_instances());
    while live() != instances {
        assert!(Instant::now() < until, "the pool has {} instances, not {instances}", live());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages =
        statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0);
    pages * rustix::param::page_size()
}
