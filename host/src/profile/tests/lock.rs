//! The lock on a home.

use std::io::{Read, stdin};
use std::path::PathBuf;

use super::super::{HomeLock, LockError};
use super::{OtherProcess, lock};

/// Rule P1: a second process sees the lock, hears who has it and what to do, and gets it when the first is killed.
#[test]
fn a_lock_is_seen_by_a_second_process_and_does_not_outlive_its_holder() {
    let home = tempfile::tempdir().unwrap();
    let mut other = OtherProcess::holding(home.path());
    let error = HomeLock::take(home.path()).unwrap_err();
    let words = error.to_string();
    let LockError::Held { holder: Some(holder), .. } = error else { panic!("{words}") };
    assert_eq!(holder.process.pid, other.pid());
    for part in [
        format!("the home {} is served already", home.path().display()),
        format!("by process {}, since ", other.pid()),
        " GMT; stop that one first".to_owned(),
    ] {
        assert!(words.contains(&part), "{words}");
    }

    other.kill();
    other.reap();
    let taken = lock(home.path());
    assert_eq!(taken.holder().process.pid, std::process::id());
}

/// Rule P1: a second authority in the same process is refused as well, until the first is gone.
#[test]
fn a_lock_is_seen_in_the_same_process() {
    let home = tempfile::tempdir().unwrap();
    let first = lock(home.path());
    let words = HomeLock::take(home.path()).unwrap_err().to_string();
    assert!(words.contains("by this very process"), "{words}");
    drop(first);
    drop(lock(home.path()));
}

/// A holder that is gone is not named, and neither is garbage.
#[test]
fn a_refusal_does_not_name_who_is_dead() {
    let home = tempfile::tempdir().unwrap();
    let held = lock(home.path());
    let mut holder = held.holder().clone();
    holder.process.started -= 1;
    for text in [serde_json::to_string(&holder).unwrap(), String::new(), "\u{1}{".to_owned()] {
        std::fs::write(home.path().join("lock"), text).unwrap();
        let error = HomeLock::take(home.path()).unwrap_err();
        assert!(matches!(error, LockError::Held { holder: None, .. }), "{error}");
        assert!(error.to_string().contains("has not said who it is"), "{error}");
    }
}

#[test]
fn a_home_that_cannot_be_locked_is_said_to_be() {
    let home = tempfile::tempdir().unwrap();
    let unusable = |path: PathBuf| {
        let error = HomeLock::take(&path).unwrap_err();
        assert!(matches!(error, LockError::Unusable { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    };
    unusable(home.path().join("missing"));
    let linked = home.path().join("linked");
    std::fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink("/tmp/elsewhere", linked.join("lock")).unwrap();
    unusable(linked);
}

/// What [`OtherProcess`] runs: it holds a home until it is killed, or until nobody listens any more.
#[test]
#[ignore = "run by other tests, as a process of its own"]
fn another_process_holds_a_home() {
    let mut path = String::new();
    stdin().read_line(&mut path).unwrap();
    if path.is_empty() {
        return;
    }
    let _held = lock(path.trim_end().as_ref());
    println!("it is held");
    stdin().read_to_end(&mut Vec::new()).unwrap();
}
