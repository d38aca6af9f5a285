//! The steps of a shutdown, on a real tree. The clock is a paused one, except where the rule gives a time.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Notify, Semaphore, oneshot};

use super::super::shutdown::{
    Bounds, Ended, Piece, Report, Request, Requested, Settled, Shutdown, Step, StepError, Steps,
};
use super::super::{
    Activity, Body, BudgetUse, Cutting, Kind, Refused, StopKind, Tree, Work, blocking, spawn,
    spawn_charged,
};
use super::{Kit, poll};

/// What the caller's steps did, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// What one step of the caller does in place of what it should.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Fails,
    Panics,
    PanicsAtOnce,
    Hangs,
}

const OUTSIDE: [Step; 6] = [
    Step::TellClients,
    Step::RevokeTickets,
    Step::StopListeners,
    Step::Flush,
    Step::Report,
    Step::Exit,
];

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Runs to the end on a paused clock; what hangs there is at its end at once.
fn within<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    let day = Duration::from_secs(24 * 3600);
    runtime.block_on(async { tokio::time::timeout(day, future).await }).expect("this hangs")
}

/// Notes that the step was taken, and then does what the fault says.
fn note(
    log: &Log,
    step: Step,
    fault: Option<Fault>,
    words: &str,
) -> impl Future<Output = Result<(), StepError>> + Send + use<> {
    log.lock().unwrap().push(format!("{step}{words}"));
    assert!(fault != Some(Fault::PanicsAtOnce), "broke before it began");
    async move {
        match fault {
            Some(Fault::Fails) => Err("it did not work".into()),
            Some(Fault::Panics) => panic!("broke in the middle"),
            Some(Fault::Hangs) => pending().await,
            Some(Fault::PanicsAtOnce) | None => Ok(()),
        }
    }
}

/// All steps of a caller, one of them with a fault.
fn steps(log: &Log, fault: Option<(Step, Fault)>) -> Steps {
    let with = |step: Step| {
        let (log, fault) = (Arc::clone(log), fault.filter(|(at, _)| *at == step).map(|at| at.1));
        move |words: &str| note(&log, step, fault, words)
    };
    let (tell, revoke, listeners) =
        (with(Step::TellClients), with(Step::RevokeTickets), with(Step::StopListeners));
    let (flush, report, exit) = (with(Step::Flush), with(Step::Report), with(Step::Exit));
    Steps::new()
        .tell_clients(move || tell(""))
        .revoke_tickets(move || revoke(""))
        .stop_listeners(move || listeners(""))
        .flush(move |settled| match settled {
            Settled::Drained(_) => flush(" and close"),
            Settled::Left(_) => flush(""),
        })
        .report(move |_| report(""))
        .exit(move |told| exit(if told.is_clean() { " clean" } else { " not clean" }))
}

fn taken(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

/// Counts how often it is cut, and never leaves by itself.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Body for Counts {
    fn cut(&self) -> Cutting {
        self.0.fetch_add(1, Ordering::SeqCst);
        Cutting::Done
    }
}

fn all_done(report: &Report) -> bool {
    report.steps.iter().all(|step| step.ended.is_fine())
        && report.steps.iter().map(|step| step.step).eq(Step::ALL)
}

/// Rules D2, D5: every step once and in order; the drain ends with the last piece of work.
#[test]
fn a_shutdown_takes_every_step_in_order_and_is_clean_when_work_ends_by_itself() {
    let runtime = paused();
    within(&runtime, async {
        let (tree, root) = Tree::new("host");
        let log = Log::default();
        let turn = root.open(Kind::Turn, "turn").unwrap();
        let shutdown =
            Shutdown::new(Handle::current(), root.share(), Bounds::default(), steps(&log, None));
        assert!(!shutdown.has_begun() && poll(pin!(shutdown.ended())).is_pending());

        let asked = shutdown.request(&Request::drain("operator", "SIGTERM"));
        assert_eq!(asked, Requested::Began);
        let late = root.open(Kind::Turn, "late").unwrap_err();
        assert!(matches!(late, Refused::Closed { reason, .. } if &*reason == "SIGTERM"));

        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(taken(&log), ["tell-clients"], "the turn has time");
        assert!(!turn.signal().is_raised());
        drop(turn);
        let report = shutdown.ended().await.unwrap();
        assert!(report.is_clean() && all_done(&report), "{report}");
        assert_eq!(report.took, Duration::from_secs(7));
        let all = [
            "tell-clients",
            "revoke-tickets",
            "stop-listeners",
            "flush and close",
            "report",
            "exit clean",
        ];
        assert_eq!(taken(&log), all);
        assert_eq!(report.step(Step::HardStop), Some(&Ended::NotNeeded));
        assert_eq!(tree.count(tree.root()), 0);
    });
}

/// Rule D5: no step may prevent a later one, whatever becomes of it.
#[test]
fn a_step_that_fails_panics_or_hangs_keeps_no_other_from_being_taken() {
    for step in OUTSIDE {
        for fault in [Fault::Fails, Fault::Panics, Fault::PanicsAtOnce, Fault::Hangs] {
            let runtime = paused();
            let log = Log::default();
            let steps = steps(&log, Some((step, fault)));
            let (_tree, root) = Tree::new("host");
            let report = within(&runtime, async {
                let shutdown =
                    Shutdown::new(Handle::current(), root.share(), Bounds::default(), steps);
                shutdown.request(&Request::drain("operator", "SIGTERM"));
                shutdown.ended().await.unwrap()
            });
            let named: Vec<String> = taken(&log)
                .iter()
                .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
                .collect();
            assert_eq!(named, OUTSIDE.map(|step| step.to_string()), "{step} {fault:?}");
            assert!(report.steps.iter().map(|step| step.step).eq(Step::ALL));
            let expected = match fault {
                Fault::Fails => Ended::Failed("it did not work".to_owned()),
                Fault::Panics => Ended::Panicked("broke in the middle".to_owned()),
                Fault::PanicsAtOnce => Ended::Panicked("broke before it began".to_owned()),
                Fault::Hangs => Ended::TimedOut,
            };
            assert_eq!(report.step(step), Some(&expected));
            assert!(!report.is_clean());
            let others = report.steps.iter().filter(|taken| taken.step != step);
            assert!(others.clone().all(|taken| taken.ended.is_fine()), "{report}");
            let tells = taken(&log).last().unwrap() == "exit not clean";
            assert_eq!(
                tells,
                step != Step::Exit,
                "the exit state is true to what had been by then"
            );
        }
    }
}

/// Rule D5: a step that holds its thread for ever is not waited for.
#[test]
fn a_step_that_blocks_its_thread_keeps_no_other_from_being_taken() {
    let kit = Kit::new();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (gate, blocked) = mpsc::channel::<()>();
    let log = Log::default();
    let bounds = Bounds { tell_clients: Duration::from_millis(20), ..Bounds::default() };
    let steps = steps(&log, None).tell_clients(move || {
        blocked.recv().ok();
        async { Ok(()) }
    });
    let shutdown = Shutdown::new(runtime.handle().clone(), kit.root.share(), bounds, steps);
    shutdown.request(&Request::drain("operator", "SIGTERM"));
    let report = kit.soon(shutdown.ended()).unwrap();
    assert_eq!(report.step(Step::TellClients), Some(&Ended::TimedOut));
    assert_eq!(taken(&log).last().unwrap(), "exit not clean");
    gate.send(()).unwrap();
}

/// Tells when it is finished, and when it is dropped without that.
struct Fate {
    finished: Arc<AtomicBool>,
    cancelled: Arc<AtomicBool>,
}

impl Drop for Fate {
    fn drop(&mut self) {
        if !self.finished.load(Ordering::SeqCst) {
            self.cancelled.store(true, Ordering::SeqCst);
        }
    }
}

/// Rule D4: what outlives the bound is named and left alone, neither finished nor cancelled, and every later step is taken.
#[test]
fn work_that_outlives_the_bound_is_left_alone_and_every_later_step_is_taken() {
    let kit = Kit::new();
    let control = kit.control.handle();
    // A call that holds a thread, and a task that nothing can stop.
    let session = kit.root.open(Kind::Session, "s1").unwrap();
    let wedged = session.open(Kind::Turn, "wedged").unwrap();
    let (open, gate) = mpsc::channel::<()>();
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let _answer = blocking(control, &wedged, "read of /mnt/slow", permit, move || {
        gate.recv().ok();
    })
    .unwrap();
    let endless = session.open(Kind::SideRun, "endless").unwrap();
    endless.set_activity(Some(Activity { what: "waiting", detail: None, since: None }));
    let (go, gone) = oneshot::channel::<()>();
    let (finished, cancelled) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let fate = Fate { finished: Arc::clone(&finished), cancelled: Arc::clone(&cancelled) };
    let task = spawn_charged(control, endless, async move {
        gone.await.ok();
        fate.finished.store(true, Ordering::SeqCst);
        drop(fate);
    });

    let log = Log::default();
    let bound = Duration::from_millis(50);
    let bounds = Bounds { drain: bound, settle: bound, ..Bounds::default() };
    let shutdown = Shutdown::new(control.clone(), kit.root.share(), bounds, steps(&log, None));
    let began = std::time::Instant::now();
    shutdown.request(&Request::drain("operator", "SIGTERM"));
    let report = kit.soon(shutdown.ended()).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());

    let all =
        ["tell-clients", "revoke-tickets", "stop-listeners", "flush", "report", "exit not clean"];
    assert_eq!(taken(&log), all, "each once, and the store is not to be closed");
    assert!(!report.is_clean() && report.cut.is_empty(), "{report}");
    assert_eq!(report.step(Step::Settle), Some(&Ended::TimedOut));
    let left: Vec<(&str, &str)> =
        report.left.iter().map(|left| (&*left.kind, &*left.label)).collect();
    let expected =
        [("turn", "wedged"), ("blocking call", "read of /mnt/slow"), ("side run", "endless")];
    assert_eq!(left.len(), 3, "{report}");
    assert!(expected.iter().all(|piece| left.contains(piece)), "{report}");
    assert!(!finished.load(Ordering::SeqCst) && !cancelled.load(Ordering::SeqCst));
    assert_eq!(kit.root.count(), 3, "and it is still counted");

    drop(wedged);
    go.send(()).unwrap();
    open.send(()).unwrap();
    kit.soon(task).unwrap();
    assert!(finished.load(Ordering::SeqCst) && !cancelled.load(Ordering::SeqCst));
    kit.soon(async { kit.root.drain("the test is over", Duration::from_secs(30)).await }).unwrap();
}

/// Rule D3: built, not yet built, nothing stoppable: each carries the caller's reason once, and none is an error.
#[test]
fn a_drain_that_times_out_stops_everything_that_is_counted_once_each() {
    let runtime = paused();
    within(&runtime, async {
        let (_tree, root) = Tree::new("host");
        let built = root.open(Kind::Turn, "built").unwrap();
        let body = Arc::new(Counts::default());
        built.set_body(Arc::clone(&body) as Arc<dyn Body>);
        let unbuilt = root.open(Kind::Turn, "not yet built").unwrap();
        let bare = root.open(Kind::Worker, "nothing stoppable").unwrap();
        let log = Log::default();
        let shutdown =
            Shutdown::new(Handle::current(), root.share(), Bounds::default(), steps(&log, None));
        shutdown.request(&Request::drain("operator", "the host goes"));

        for work in [&built, &unbuilt, &bare] {
            let stop = work.signal().raised(StopKind::Hard).await;
            assert_eq!((stop.message(), stop.issuer()), ("the host goes", "operator"));
        }
        let late = Arc::new(Counts::default());
        unbuilt.set_body(Arc::clone(&late) as Arc<dyn Body>);
        assert_eq!([&body, &late].map(|body| body.0.load(Ordering::SeqCst)), [1, 1]);
        drop((built, unbuilt, bare));
        let report = shutdown.ended().await.unwrap();
        assert_eq!([&body, &late].map(|body| body.0.load(Ordering::SeqCst)), [1, 1]);
        let mut cut: Vec<&str> = report.cut.iter().map(|piece| &*piece.label).collect();
        cut.sort_unstable();
        assert_eq!(cut, ["built", "not yet built", "nothing stoppable"]);
        assert!(report.left.is_empty() && !report.is_clean());
        assert_eq!(report.step(Step::Drain), Some(&Ended::TimedOut));
        assert_eq!(report.step(Step::HardStop), Some(&Ended::Done));
        assert_eq!(report.step(Step::Settle), Some(&Ended::Done));
        assert!(taken(&log).contains(&"flush and close".to_owned()));
    });
}

/// Rules D5, D8: a second request joins the first, and can send it straight to the hard stop.
#[test]
fn a_second_request_joins_and_can_go_straight_to_the_hard_stop() {
    let runtime = paused();
    within(&runtime, async {
        let (_tree, root) = Tree::new("host");
        let turn = root.open(Kind::Turn, "turn").unwrap();
        let signal = turn.signal();
        let _task = spawn(&Handle::current(), turn, pending::<()>());
        let log = Log::default();
        let shutdown =
            Shutdown::new(Handle::current(), root.share(), Bounds::default(), steps(&log, None));
        assert_eq!(shutdown.request(&Request::drain("operator", "SIGTERM")), Requested::Began);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let again = Request::drain("client", "through the API");
        assert_eq!(shutdown.request(&again), Requested::Joined);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!signal.is_raised(), "joining changes nothing");

        let (one, other) = (shutdown.clone(), shutdown.clone());
        assert_eq!(shutdown.request(&Request::at_once("user", "Ctrl-C")), Requested::Joined);
        let (one, other) = tokio::join!(one.ended(), other.ended());
        let report = one.unwrap();
        assert!(Arc::ptr_eq(&report, &other.unwrap()), "one shutdown, one report");
        assert_eq!(report.took, Duration::from_secs(6));
        assert_eq!(report.step(Step::Drain), Some(&Ended::CutShort));
        let stop = signal.stop().unwrap();
        assert_eq!(
            (stop.issuer(), stop.message()),
            ("operator", "SIGTERM"),
            "the first one's words"
        );
        assert_eq!(taken(&log).iter().filter(|step| *step == "revoke-tickets").count(), 1);
        assert_eq!(shutdown.request(&again), Requested::Joined, "also when it is over");
    });
}

/// Rule D8: the hard stop does not wait for clients who do not take the news, who are told all the same.
#[test]
fn a_first_request_can_go_straight_to_the_hard_stop() {
    let runtime = paused();
    within(&runtime, async {
        let (_tree, root) = Tree::new("host");
        let turn = root.open(Kind::Turn, "turn").unwrap();
        let _task = spawn(&Handle::current(), turn, pending::<()>());
        let (told, log) = (Arc::new(Notify::new()), Log::default());
        let tells = Arc::clone(&told);
        let steps = steps(&log, None).tell_clients(move || async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            tells.notify_one();
            Ok(())
        });
        let shutdown = Shutdown::new(Handle::current(), root.share(), Bounds::default(), steps);
        shutdown.request(&Request::at_once("user", "Ctrl-C"));
        let report = shutdown.ended().await.unwrap();
        assert_eq!(report.took, Duration::ZERO);
        assert_eq!(report.step(Step::TellClients), Some(&Ended::CutShort));
        assert_eq!(report.cut.len(), 1);
        told.notified().await;
    });
}

/// Panics at whatever it is asked.
struct Broken;

impl Body for Broken {
    fn cut(&self) -> Cutting {
        panic!("cut")
    }

    fn budgets(&self) -> Vec<BudgetUse> {
        panic!("budgets")
    }
}

/// Rules D5, D7: a body that breaks hides neither itself nor the others, and they are stopped.
#[test]
fn a_body_that_panics_keeps_nobody_from_being_stopped_or_named() {
    let runtime = paused();
    within(&runtime, async {
        let (_tree, root) = Tree::new("host");
        let broken = root.open(Kind::Turn, "broken").unwrap();
        broken.set_body(Arc::new(Broken));
        let sound = root.open(Kind::Turn, "sound").unwrap();
        let signal = sound.signal();
        let _task = spawn(&Handle::current(), sound, pending::<()>());
        let shutdown =
            Shutdown::new(Handle::current(), root.share(), Bounds::default(), Steps::new());
        shutdown.request(&Request::at_once("user", "Ctrl-C"));
        let report = shutdown.ended().await.unwrap();
        assert!(signal.is_hard());
        let names = |pieces: &[Piece]| -> Vec<String> {
            pieces.iter().map(|piece| piece.label.clone()).collect()
        };
        assert_eq!(
            (names(&report.cut), names(&report.left)),
            (vec!["sound".into()], vec!["broken".into()])
        );
    });
}

/// Rule D7: each piece with kind, owner, age and what it was doing; and the report can be kept and read again.
#[test]
fn the_report_names_what_was_cut_with_all_that_is_known_of_it() {
    let runtime = paused();
    within(&runtime, async {
        let (_tree, root) = Tree::new("host");
        let session = root.open(Kind::Session, "s1").unwrap();
        let turn = session.open(Kind::Turn, "turn 4").unwrap();
        let (what, detail) = ("model.complete", Some("gpt-x".into()));
        turn.set_activity(Some(Activity { what, detail, since: None }));
        let (id, owner) = (turn.id().to_string(), format!("session s1 ({})", session.id()));
        let _task = spawn(&Handle::current(), turn, pending::<()>());
        let shutdown =
            Shutdown::new(Handle::current(), root.share(), Bounds::default(), Steps::new());
        shutdown.request(&Request::at_once("user", "Ctrl-C"));
        let report = shutdown.ended().await.unwrap();
        let [piece] = &report.cut[..] else { panic!("{report}") };
        assert_eq!((&*piece.id, &*piece.kind, &*piece.label), (&*id, "turn", "turn 4"));
        assert_eq!(piece.owner.as_deref(), Some(&*owner));
        assert_eq!(piece.doing.as_deref(), Some("model.complete gpt-x"));
        let line = format!(
            "cut: turn turn 4 ({id}), {:.1} s old, of {owner}: model.complete gpt-x",
            piece.age.as_secs_f64()
        );
        assert!(report.to_string().contains(&line), "{report}");

        let text = serde_json::to_string(&*report).unwrap();
        let mut read: Report = serde_json::from_str(&text).unwrap();
        assert!(text.contains(r#""step":"drain","took-ms":0,"ended":"cut-short""#), "{text}");
        // Below a millisecond the age is not kept.
        read.cut[0].age = piece.age;
        assert_eq!(read, *report);
    });
}

/// Rule D5: whoever asked may go; the shutdown goes on.
#[test]
fn a_shutdown_needs_nobody_who_waits_for_it() {
    let runtime = paused();
    let (_tree, root) = Tree::new("host");
    let (log, done) = (Log::default(), Arc::new(Notify::new()));
    let over = Arc::clone(&done);
    within(&runtime, async {
        let steps = steps(&log, None).exit(move |_| async move {
            over.notify_one();
            Ok(())
        });
        let shutdown = Shutdown::new(Handle::current(), root.share(), Bounds::default(), steps);
        shutdown.request(&Request::drain("client", "through the API"));
        assert!(poll(pin!(shutdown.ended())).is_pending());
        drop(shutdown);
        done.notified().await;
    });
}

#[test]
fn who_waits_hears_when_the_runtime_is_taken_down_first() {
    let runtime = paused();
    let (_tree, root) = Tree::new("host");
    let held: Work = root.open(Kind::Turn, "turn").unwrap();
    let shutdown =
        Shutdown::new(runtime.handle().clone(), root.share(), Bounds::default(), Steps::new());
    shutdown.request(&Request::drain("operator", "SIGTERM"));
    drop(runtime);
    assert_eq!(paused().block_on(shutdown.ended()), None);
    drop(held);
}
