//! The thread that ends a process whose shutdown hangs, with a real process that does.

use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::super::shutdown::Watchdog;
use super::super::{Kind, Tree};

const BOUND: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(60);

/// Says to a child which way it shall hang.
const HANGS: &str = "CHECKREIN_TEST_HANGS";

/// The exit code that the child's watchdog ends it with.
const ENDED: i32 = 86;

/// What a child of the next test runs; nothing in any other process.
#[test]
fn a_process_hangs_when_it_is_asked_to() {
    #[allow(clippy::disallowed_methods, reason = "this is how a test speaks to its child")]
    let Ok(way) = std::env::var(HANGS) else { return };
    let (tree, root) = Tree::new("host");
    let session = root.open(Kind::Session, "s1").unwrap();
    let _turn = session.open(Kind::Turn, "turn 4").unwrap();
    let mute = way == "and says nothing";
    let say = move |words: &str| {
        eprintln!("{words}");
        if mute {
            hang();
        }
    };
    #[allow(clippy::exit, reason = "the child plays the command, which supplies this")]
    let end = || std::process::exit(ENDED);
    let _watchdog = Watchdog::arm(tree, BOUND, say, end).unwrap();
    hang();
}

fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// Rule D6: the process ends, and has said what was still alive; also when whoever it says that to hangs as well.
#[test]
fn a_process_that_hangs_is_ended_and_says_what_was_alive() {
    let this = "work::tests::watchdog::a_process_hangs_when_it_is_asked_to";
    for way in ["for ever", "and says nothing"] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--nocapture", "--test-threads=1"])
            .env(HANGS, way)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(ENDED), "{said}");
        assert!(said.contains("has not ended after 0.0 s"), "{said}");
        assert!(said.contains("turn turn 4 (w2-3)"), "{said}");
        assert!(said.contains("of session s1 ("), "{said}");
    }
}

/// Rule D6: a shutdown that has ended ends nothing else.
#[test]
fn a_watchdog_that_is_dropped_does_nothing() {
    let (tree, _root) = Tree::new("host");
    let (said, hears) = mpsc::channel();
    let ended = said.clone();
    let watchdog = Watchdog::arm(
        tree,
        LONG,
        move |words| said.send(words.to_owned()).unwrap(),
        move || ended.send("ended".to_owned()).unwrap(),
    )
    .unwrap();
    drop(watchdog);
    // Both threads have gone, and neither has said or ended anything.
    assert_eq!(hears.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
}

/// Rule D6: a sink that panics does not keep the process.
#[test]
fn a_watchdog_whose_sink_panics_ends_the_process_all_the_same() {
    let (tree, _root) = Tree::new("host");
    let (ended, has_ended) = mpsc::channel();
    let _watchdog =
        Watchdog::arm(tree, BOUND, |_| panic!("the sink broke"), move || ended.send(()).unwrap())
            .unwrap();
    assert_eq!(has_ended.recv_timeout(LONG), Ok(()));
}
