//! The set of profiles of a host.

use std::fs;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::{HomeLock, NotOpened, Parked, Profiles, Reconciled, Wanted, listing};
use super::{Opener, OtherProcess, poll, runtime, soon};
use crate::work::{Kind, Tree, Work};

struct Kit {
    runtime: tokio::runtime::Runtime,
    directory: tempfile::TempDir,
    opener: Arc<Opener>,
    profiles: Profiles<Arc<Opener>>,
    host: Work,
}

impl Kit {
    fn new(names: &[&str]) -> Kit {
        let (opener, directory) = (Arc::<Opener>::default(), tempfile::tempdir().unwrap());
        let (_, host) = Tree::new("host");
        let profiles = Profiles::new(host.share(), Arc::clone(&opener));
        let kit = Kit { runtime: runtime(), directory, opener, profiles, host };
        names.iter().for_each(|name| kit.write(name, "right = 1"));
        kit
    }

    fn write(&self, name: &str, text: &str) {
        let home = self.directory.path().join(name);
        fs::create_dir_all(&home).unwrap();
        fs::write(home.join("profile.toml"), text).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.directory.path().join(name).join("profile.toml")).unwrap();
    }

    fn wanted(&self) -> Vec<Wanted> {
        listing(self.directory.path()).unwrap()
    }

    fn reconcile(&self) -> Reconciled {
        soon(&self.runtime, self.profiles.reconcile(&self.wanted(), Duration::ZERO))
    }

    fn served(&self) -> Vec<String> {
        self.profiles.served().iter().map(|served| served.name().to_owned()).collect()
    }

    /// Starts work in a served profile that ends when it is dropped.
    fn work(&self, name: &str) -> Work {
        self.opener.last(name).1.open(Kind::SideRun, "stuck").unwrap()
    }

    fn is_locked(&self, name: &str) -> bool {
        HomeLock::take(&self.directory.path().join(name)).is_err()
    }
}

fn none() -> [String; 0] {
    []
}

/// Rules P6, P4, P5: reconciling goes on past a profile that cannot be released. The others are released and served; the
/// stuck one is removed and unrouted, keeps its lock, and is tried again.
#[test]
fn a_reconciliation_goes_on_past_a_stuck_profile() {
    let kit = Kit::new(&["a", "b", "c"]);
    assert_eq!(kit.reconcile().added, ["a", "b", "c"]);
    let stuck = kit.work("a");
    let (diary, _) = kit.opener.last("a");
    kit.remove("a");
    kit.remove("b");
    kit.write("d", "");
    let done = kit.reconcile();
    assert_eq!((done.removed, done.released), (vec!["a".into(), "b".into()], vec!["b".into()]));
    assert!(done.not_released["a"].contains("side run stuck"), "{:?}", done.not_released);
    assert_eq!((done.kept, done.added), (vec!["c".to_owned()], vec!["d".to_owned()]));
    assert_eq!(kit.served(), ["c", "d"]);
    assert!(kit.profiles.get("a").is_none());
    assert!(kit.is_locked("a") && !kit.is_locked("b"));

    let done = kit.reconcile();
    assert_eq!(done.removed, none(), "it was removed before");
    assert!(done.not_released.contains_key("a"));
    assert_eq!(diary.read(), ["unpublished"]);
    {
        let _in = kit.runtime.enter();
        let mut releasable = pin!(kit.profiles.releasable());
        assert!(poll(releasable.as_mut()).is_pending());
        drop(stuck);
        assert!(poll(releasable.as_mut()).is_ready());
    }
    let done = kit.reconcile();
    assert_eq!((done.released, done.not_released.len()), (vec!["a".into()], 0));
    assert!(!kit.is_locked("a"));
    assert_eq!(diary.read()[..3], ["unpublished", "unbound", "closed"]);
    assert_eq!(kit.profiles.retiring().len(), 0);
}

/// Rule P2: all that leaves is unlisted and stopped before the first wait.
#[test]
fn a_reconciliation_unlists_all_that_leaves_before_it_waits() {
    let kit = Kit::new(&["a", "b"]);
    kit.reconcile();
    let stuck = [kit.work("a"), kit.work("b")];
    let _in = kit.runtime.enter();
    let mut reconcile = pin!(kit.profiles.reconcile(&[], Duration::from_secs(3600)));
    assert!(poll(reconcile.as_mut()).is_pending());
    assert_eq!(kit.served(), none());
    assert!(stuck.iter().all(|stuck| stuck.signal().is_hard()));
    drop(stuck);
    let done = soon(&kit.runtime, reconcile);
    assert_eq!(done.released, ["a", "b"]);
}

/// Rule P6: a home that is slow to open holds up neither the others nor the next reconciliation. It is parked meanwhile, and
/// published as soon as it is open.
#[test]
fn a_home_that_is_slow_to_open_holds_up_no_other() {
    let kit = Kit::new(&["b", "c"]);
    kit.write("a", "slow = 1");
    {
        let wanted = kit.wanted();
        let mut first = pin!(kit.profiles.reconcile(&wanted, Duration::ZERO));
        let others = async {
            loop {
                assert!(poll(first.as_mut()).is_pending(), "it waits for the slow one for a while");
                if kit.served() == ["b", "c"] {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        soon(&kit.runtime, others);
        let done = soon(&kit.runtime, first);
        assert_eq!(done.added, ["b", "c"]);
        assert!(matches!(done.parked["a"], Parked::Opening { .. }), "{done:?}");
        assert_eq!(kit.profiles.parked(), done.parked);
    }
    kit.remove("c");
    let done = kit.reconcile();
    assert_eq!((done.kept, done.released), (vec!["b".to_owned()], vec!["c".to_owned()]));
    assert!(matches!(done.parked["a"], Parked::Opening { .. }));
    // Meanwhile it has another configuration, which is taken over in its turn.
    kit.write("a", "right = 1");
    kit.opener.goes_on.notify_one();
    soon(&kit.runtime, kit.profiles.releasable());
    assert_eq!(
        (kit.served(), kit.profiles.parked().len()),
        (vec!["a".to_owned(), "b".to_owned()], 0)
    );
    assert_eq!(kit.reconcile().reloaded, ["a"]);
}

/// Rule P6: so does one that is slow to take over a configuration. It is served with the old one.
#[test]
fn a_profile_that_is_slow_to_reload_holds_up_no_other() {
    let kit = Kit::new(&["a"]);
    kit.reconcile();
    kit.write("a", "slow = 1");
    kit.write("b", "right = 1");
    let done = kit.reconcile();
    assert_eq!((&done.added, &done.reloaded), (&vec!["b".to_owned()], &vec![]));
    assert!(done.not_reloaded["a"].to_string().contains("still being taken over"), "{done:?}");
    assert_eq!(kit.served(), ["a", "b"]);
    kit.opener.goes_on.notify_one();
    soon(&kit.runtime, kit.profiles.releasable());
    assert_eq!(kit.reconcile().kept, ["a", "b"]);
}

/// Rule P2: one that is not wanted any more while it is being opened is given up, and its home is free.
#[test]
fn a_home_that_is_not_wanted_any_more_is_not_opened() {
    let kit = Kit::new(&[]);
    kit.write("a", "slow = 1");
    assert!(matches!(kit.reconcile().parked["a"], Parked::Opening { .. }));
    kit.remove("a");
    assert_eq!(kit.reconcile().parked.len(), 0);
    kit.opener.goes_on.notify_one();
    kit.write("a", "right = 1");
    let served = async {
        while kit.served().is_empty() {
            kit.profiles.reconcile(&kit.wanted(), Duration::ZERO).await;
        }
    };
    soon(&kit.runtime, served);
    assert_eq!(kit.opener.opened.lock().unwrap().len(), 1, "it was opened once");
}

/// Rule P7: a home whose old authority is still being retired is parked, and served once that has ended.
#[test]
fn a_home_is_not_served_twice_while_its_old_authority_retires() {
    let kit = Kit::new(&["a"]);
    kit.reconcile();
    let wanted = kit.wanted().remove(0);
    let stuck = kit.work("a");
    kit.remove("a");
    kit.reconcile();
    kit.write("a", "right = 1");
    let done = kit.reconcile();
    assert!(matches!(&done.parked["a"], Parked::Retiring { words } if words.contains("stuck")));
    assert_eq!((done.added, kit.served()), (vec![], vec![]));
    assert_eq!(kit.profiles.parked(), done.parked);
    let parked = soon(&kit.runtime, kit.profiles.serve(&wanted, Duration::ZERO)).unwrap_err();
    assert!(matches!(parked, Parked::Retiring { .. }));

    let _in = kit.runtime.enter();
    let mut serve = pin!(kit.profiles.serve(&wanted, Duration::from_secs(3600)));
    assert!(poll(serve.as_mut()).is_pending(), "it tries to finish that first");
    drop(stuck);
    let served = soon(&kit.runtime, serve).unwrap();
    assert_eq!((served.name(), served.is_published()), ("a", true));
    assert_eq!(kit.served(), ["a"]);
    assert!(kit.profiles.parked().is_empty());
    assert_eq!(kit.reconcile().kept, ["a"]);
}

/// Rule P1: a home that another process serves is parked, with the process, and served when that has ended.
#[test]
fn a_home_of_another_process_is_parked() {
    let kit = Kit::new(&["a", "b"]);
    let mut other = OtherProcess::holding(&kit.directory.path().join("a"));
    let done = kit.reconcile();
    let Parked::LockHeld { pid, words } = &done.parked["a"] else { panic!("{done:?}") };
    assert_eq!(*pid, Some(other.pid()));
    assert!(words.contains("stop that one first"), "{words}");
    assert_eq!(done.added, ["b"]);
    other.kill();
    other.reap();
    assert_eq!(kit.reconcile().added, ["a"]);
}

/// A changed configuration is taken over without touching what runs; a wrong one is not, and says where it is wrong.
#[test]
fn a_changed_configuration_is_reloaded_and_a_wrong_one_is_told() {
    let kit = Kit::new(&["a", "b"]);
    kit.write("b", "\nwrong = 1");
    let done = kit.reconcile();
    let words = done.parked["b"].to_string();
    assert!(words.ends_with("b/profile.toml, line 2, `wrong`: there is no such key"), "{words}");
    let running = kit.work("a");
    kit.write("a", "right = 2");
    assert_eq!(kit.reconcile().reloaded, ["a"]);
    assert_eq!(kit.reconcile().kept, ["a"]);
    kit.write("a", "wrong = 2");
    let done = kit.reconcile();
    assert!(matches!(&done.not_reloaded["a"], NotOpened::Configuration { line: Some(1), .. }));
    assert_eq!(kit.served(), ["a"], "it goes on with the old one");
    kit.write("a", "right = 3");
    kit.write("b", "right = 3");
    let done = kit.reconcile();
    assert_eq!((done.reloaded, done.added), (vec!["a".to_owned()], vec!["b".to_owned()]));
    assert_eq!(kit.opener.loaded.load(Ordering::SeqCst), 2);
    assert!(!running.signal().is_raised());
}

/// What a configuration names is taken over like the configuration itself, and said.
#[test]
fn what_has_changed_beside_a_configuration_is_reloaded_and_told() {
    let kit = Kit::new(&["a"]);
    kit.reconcile();
    kit.opener.outdated.store(true, Ordering::SeqCst);
    let outdated = soon(&kit.runtime, kit.profiles.outdated());
    assert!(outdated.contains("a"), "{outdated:?}");
    let done = kit.reconcile();
    assert_eq!((done.reloaded, &*done.changed["a"]), (vec!["a".into()], &["a plugin".into()][..]));
    let done = kit.reconcile();
    assert_eq!((done.kept, done.changed.len()), (vec!["a".to_owned()], 0));
    kit.opener.outdated.store(true, Ordering::SeqCst);
    kit.write("a", "right = 2");
    assert_eq!(kit.reconcile().changed["a"], ["the configuration has changed", "a plugin"]);
}

#[test]
fn a_reconciliation_can_be_written_down() {
    let kit = Kit::new(&["a"]);
    kit.write("b", "wrong");
    let text = serde_json::to_value(kit.reconcile()).unwrap();
    assert_eq!(text["added"], serde_json::json!(["a"]));
    assert_eq!(text["not-reloaded"], serde_json::json!({}));
    assert_eq!(text["parked"]["b"]["reason"], "not-opened");
    assert_eq!(text["parked"]["b"]["line"], 1);
}

/// Rule W5: a host that takes no new work serves no new profile.
#[test]
fn a_host_that_drains_serves_nothing_new() {
    let kit = Kit::new(&["a"]);
    kit.host.close("shutting down");
    let done = kit.reconcile();
    assert!(
        matches!(&done.parked["a"], Parked::Refused { words } if words.contains("shutting down"))
    );
    assert!(!kit.is_locked("a"));
}

/// Rule P2: one profile is retired by name, also while the set is being changed.
#[test]
fn a_profile_is_retired_by_name_while_another_is_waited_for() {
    let kit = Kit::new(&["a", "b"]);
    kit.reconcile();
    let stuck = kit.work("a");
    kit.remove("a");
    let wanted = kit.wanted();
    let _in = kit.runtime.enter();
    let mut reconcile = pin!(kit.profiles.reconcile(&wanted, Duration::from_secs(3600)));
    assert!(poll(reconcile.as_mut()).is_pending());
    let retired = soon(&kit.runtime, kit.profiles.retire("b", Duration::ZERO));
    assert!(matches!(retired, Some(super::super::Retired::Released)));
    assert_eq!(kit.served(), none());
    assert!(soon(&kit.runtime, kit.profiles.retire("nobody", Duration::ZERO)).is_none());
    drop(stuck);
    let done = soon(&kit.runtime, reconcile);
    assert_eq!((done.released, done.added), (vec!["a".to_owned()], vec!["b".to_owned()]));
}

#[test]
fn a_listing_has_folders_with_a_configuration() {
    let kit = Kit::new(&["b", "a", ".hidden"]);
    fs::create_dir(kit.directory.path().join("empty")).unwrap();
    fs::create_dir_all(kit.directory.path().join("odd").join("profile.toml")).unwrap();
    fs::write(kit.directory.path().join("file"), "").unwrap();
    let before = kit.wanted();
    let names: Vec<_> = before.iter().map(|wanted| &*wanted.name).collect();
    assert_eq!(names, ["a", "b"]);
    kit.write("a", "right = 1");
    assert_eq!(kit.wanted(), before, "the same text is the same version");
    kit.write("a", "right = 2");
    assert_ne!(kit.wanted()[0].version, before[0].version);
    assert!(listing(Path::new("/nowhere")).is_err());
}
