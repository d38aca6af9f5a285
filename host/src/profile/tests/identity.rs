//! Who a process is.

use super::super::{Life, ProcessIdentity};
use super::{OtherProcess, until};

/// Rule N3: the living and the dead are told apart, and so is one that has got the number of a dead one.
#[test]
fn a_process_is_known_by_more_than_its_number() {
    let own = ProcessIdentity::own().unwrap();
    assert_eq!((own.pid, own.life()), (std::process::id(), Life::Alive));
    let earlier = ProcessIdentity { started: own.started - 1, ..own.clone() };
    assert_eq!(earlier.life(), Life::Dead, "a number that is used again");
    let before = ProcessIdentity { boot_id: "another".to_owned(), ..own.clone() };
    assert_eq!(before.life(), Life::Dead, "the machine was started anew");
    let nobody = ProcessIdentity { pid: u32::MAX, ..own.clone() };
    assert_eq!(nobody.life(), Life::Dead);

    let text = serde_json::to_string(&own).unwrap();
    assert!(text.contains("\"boot-id\":"), "{text}");
    assert_eq!(serde_json::from_str::<ProcessIdentity>(&text).unwrap(), own);
}

/// Rule N3: dead from its last instruction on, and not only when its parent has taken note.
#[test]
fn a_killed_process_is_dead() {
    let home = tempfile::tempdir().unwrap();
    let mut other = OtherProcess::holding(home.path());
    let text = std::fs::read(home.path().join("lock")).unwrap();
    let holder: super::super::Holder = serde_json::from_slice(&text).unwrap();
    assert_eq!((holder.process.pid, holder.process.life()), (other.pid(), Life::Alive));
    other.kill();
    // Its end can be seen by its lock, and it is not reaped.
    until(|| super::super::HomeLock::take(home.path()).is_ok());
    until(|| !holder.process.is_alive());
    assert_eq!(holder.process.life(), Life::Dead);
    other.reap();
    assert_eq!(holder.process.life(), Life::Dead);
}
