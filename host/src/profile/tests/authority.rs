//! One profile being served and retired.

use std::path::Path;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use super::super::{
    Authority, Claimed, HomeLock, NoTicket, NotReleased, Retired, STOPPING, TICKET_LIFE, Why,
    WorkCount,
};
use super::{Diary, Things, lock, poll, runtime, soon, until};
use crate::work::{Grace, Kind, Refused, Stop, StopKind, Tree, Work};

const LONG: Duration = Duration::from_secs(3600);

struct Kit {
    runtime: tokio::runtime::Runtime,
    home: tempfile::TempDir,
    tree: Tree,
    root: Work,
    diary: Diary,
    authority: Authority<Things>,
    /// A session of the profile, as somebody outside has it.
    session: Work,
}

impl Kit {
    fn new() -> Kit {
        Kit::with(|_| {})
    }

    fn with(change: impl FnOnce(&Things)) -> Kit {
        let (home, diary) = (tempfile::tempdir().unwrap(), Diary::default());
        let (tree, root) = Tree::new("host");
        let claimed = Claimed::new(&root, "support", lock(home.path())).unwrap();
        let session = claimed.work().open(Kind::Session, "session").unwrap();
        let things = Things::new(&diary);
        change(&things);
        let authority = Authority::serve(claimed, things).unwrap();
        Kit { runtime: runtime(), home, tree, root, diary, authority, session }
    }

    fn retire(&self, bound: Duration) -> Retired {
        soon(&self.runtime, self.authority.retire(bound))
    }

    fn is_locked(&self) -> bool {
        HomeLock::take(self.home.path()).is_err()
    }
}

/// A runtime whose clock moves when nothing else does.
fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

fn alive(retired: Retired) -> Vec<String> {
    match retired {
        Retired::NotReleased(NotReleased { why: Why::Alive(nodes), .. }) => {
            nodes.iter().map(|node| node.label.to_string()).collect()
        }
        other @ (Retired::Released | Retired::NotReleased(_)) => {
            panic!("work should be alive: {other:?}")
        }
    }
}

fn count(home: &Path) -> usize {
    WorkCount::read(home).unwrap().unwrap().written.count
}

/// Rules P2, P4, P5, N2: with a bound of 0 and work alive it is not released, and all is kept; a later retirement, once the
/// work has ended, releases everything, and the schedule owner is unbound once.
#[test]
fn a_profile_is_released_when_its_work_has_ended_and_not_earlier() {
    let kit = Kit::new();
    let turn = kit.session.open(Kind::Turn, "turn").unwrap();
    assert!(kit.authority.is_published());
    for _ in 0..3 {
        assert_eq!(alive(kit.retire(Duration::ZERO)), ["turn"]);
        assert_eq!(kit.diary.read(), ["unpublished"], "P4: nothing is closed or unbound");
        assert!(kit.is_locked(), "P4");
        assert!(!kit.authority.is_published() && !kit.authority.is_released());
        assert!(kit.tree.contains(turn.id()), "P4: nothing is settled falsely");
    }
    soon(&kit.runtime, kit.authority.count_settled());
    assert_eq!(count(kit.home.path()), 1, "N2: the whole count, also while it retires");

    drop(turn);
    assert!(matches!(kit.retire(Duration::ZERO), Retired::Released));
    assert!(kit.authority.is_released() && !kit.is_locked());
    assert_eq!(kit.diary.read(), ["unpublished", "unbound", "closed", "dropped"]);
    assert_eq!(count(kit.home.path()), 0, "N2");
    assert!(matches!(kit.retire(LONG), Retired::Released), "asked again it is the same answer");
    assert_eq!(kit.diary.count("unbound"), 1, "P5");
}

/// Rule P2: unlisted, without tickets, closed for new work, before the first wait.
#[test]
fn a_retirement_unpublishes_from_its_first_poll() {
    let kit = Kit::new();
    let _in = kit.runtime.enter();
    let turn = kit.session.open(Kind::Turn, "turn").unwrap();
    let ticket = kit.authority.tickets().issue("attach", "giver", TICKET_LIFE).unwrap();
    {
        let mut retire = pin!(kit.authority.retire(LONG));
        assert!(poll(retire.as_mut()).is_pending());
    }
    assert!(!kit.authority.is_published());
    assert!(kit.authority.held().is_none());
    assert_eq!(kit.diary.read(), ["unpublished"]);
    assert!(kit.authority.tickets().redeem(ticket.reveal(), "attach").is_err());
    assert_eq!(
        kit.authority.tickets().issue("attach", "giver", TICKET_LIFE).unwrap_err(),
        NoTicket::NotServed
    );
    let refused = kit.session.open(Kind::Turn, "late").unwrap_err();
    assert!(matches!(refused, Refused::Closed { reason, .. } if &*reason == STOPPING));
    drop(turn);
    assert!(
        matches!(kit.retire(LONG), Retired::Released),
        "it was given up, and can be asked again"
    );
    assert_eq!(kit.diary.count("unpublished"), 1);
}

/// Rules P3, G2: every kind of work carries the hard stop with the fixed reason, what comes late too, and nothing outside.
#[test]
fn a_retirement_stops_everything_hard_also_what_comes_late() {
    let kit = Kit::new();
    let elsewhere = kit.root.open(Kind::SideRun, "elsewhere").unwrap();
    let registry = kit.session.open(Kind::Registry, "registry").unwrap();
    let soft = kit.session.open(Kind::Turn, "turn").unwrap();
    soft.stop(&Stop::soft("a user", "please", Grace::Never));
    let mut works = vec![soft];
    for kind in [Kind::SideRun, Kind::Worker] {
        works.push(kit.session.open(kind, "run").unwrap());
    }
    works.push(registry.open(Kind::Unit, "unit").unwrap());
    works.push(works[3].open(Kind::Child, "child").unwrap());
    let moving = kit.root.open(Kind::Child, "moving").unwrap();
    assert_eq!(alive(kit.retire(Duration::ZERO)).len(), works.len());
    works.push(works[0].open(Kind::ToolCall, "late").unwrap());
    works[0].adopt(&[&moving]).unwrap();
    works.push(moving);
    for work in &works {
        let stop = work.signal().stop().unwrap();
        assert_eq!((stop.kind(), stop.message()), (StopKind::Hard, "profile is stopping"));
    }
    assert!(!elsewhere.signal().is_raised());
    assert_eq!(alive(kit.retire(Duration::ZERO)).len(), works.len());
    drop(works);
    assert!(matches!(kit.retire(Duration::ZERO), Retired::Released));
}

/// Rule P4: the bound is kept. Nothing was stopped by its passing but what was stopped before.
#[test]
fn a_retirement_ends_with_its_bound() {
    let kit = Kit::new();
    let turn = kit.session.open(Kind::Turn, "turn").unwrap();
    let retired = paused().block_on(async {
        let begun = tokio::time::Instant::now();
        let retired = kit.authority.retire(Duration::from_secs(7)).await;
        assert_eq!(begun.elapsed().as_secs(), 7);
        retired
    });
    let Retired::NotReleased(left) = retired else { panic!("the turn is alive") };
    let words = format!(
        "the profile support is stopped and not released: 1 piece(s) of work have not ended: turn turn ({})",
        turn.id()
    );
    assert_eq!(left.to_string(), words);
}

/// Rule P5: retirements at the same time join.
#[test]
fn retirements_at_the_same_time_join() {
    let kit = Kit::new();
    let _in = kit.runtime.enter();
    let turn = kit.session.open(Kind::Turn, "turn").unwrap();
    let mut one = pin!(kit.authority.retire(LONG));
    let mut other = pin!(kit.authority.retire(LONG));
    assert!(poll(one.as_mut()).is_pending() && poll(other.as_mut()).is_pending());
    assert!(matches!(
        poll(pin!(kit.authority.retire(Duration::ZERO))),
        Poll::Ready(Retired::NotReleased(_))
    ));
    drop(turn);
    let (one, other) = soon(&kit.runtime, async { tokio::join!(one, other) });
    assert!(matches!((one, other), (Retired::Released, Retired::Released)));
    assert_eq!(kit.diary.read()[..3], ["unpublished", "unbound", "closed"]);
    assert!(!kit.is_locked());
}

/// Rules P4, P5: what cannot be closed yet is kept, and asked for again; the schedule owner stays unbound.
#[test]
fn a_store_that_cannot_be_closed_keeps_the_lock() {
    let mut writing = None;
    let kit = Kit::with(|things| {
        things.writing.store(true, Ordering::SeqCst);
        writing = Some(things.writing.clone());
    });
    for _ in 0..2 {
        let Retired::NotReleased(left) = kit.retire(LONG) else { panic!("somebody writes") };
        assert!(matches!(&left.why, Why::Closing(words) if words == "a write is under way"));
        assert!(kit.is_locked());
        assert_eq!(kit.diary.read(), ["unpublished", "unbound"]);
    }
    writing.unwrap().store(false, Ordering::SeqCst);
    assert!(matches!(kit.retire(LONG), Retired::Released));
    assert!(!kit.is_locked());
    assert_eq!(kit.diary.read(), ["unpublished", "unbound", "closed", "dropped"]);
}

/// Rule P4: closing that hangs has a bound of its own.
#[test]
fn closing_that_hangs_does_not_hang_a_retirement() {
    let mut hangs = None;
    let kit = Kit::with(|things| {
        things.hangs.store(true, Ordering::SeqCst);
        hangs = Some(things.hangs.clone());
    });
    let retired = paused().block_on(kit.authority.retire(LONG));
    assert!(matches!(retired, Retired::NotReleased(NotReleased { why: Why::Closing(_), .. })));
    assert!(kit.is_locked());
    hangs.unwrap().store(false, Ordering::SeqCst);
    assert!(matches!(kit.retire(LONG), Retired::Released));
    assert!(!kit.is_locked());
}

/// Rule P4: an authority that somebody lost stops its work and keeps the lock until that has ended.
#[test]
fn a_lost_authority_keeps_the_lock_until_its_work_has_ended() {
    let Kit { authority, session, home, diary, runtime: _runtime, .. } = Kit::new();
    let turn = session.open(Kind::Turn, "turn").unwrap();
    drop(authority);
    assert_eq!(turn.signal().stop().unwrap().message(), STOPPING);
    assert!(HomeLock::take(home.path()).is_err());
    assert_eq!(diary.read(), [""; 0]);
    drop((turn, session));
    assert_eq!(diary.read(), ["dropped"]);
    until(|| HomeLock::take(home.path()).is_ok());
    assert_eq!(count(home.path()), 0);
}

/// Rule P4: so does a home on which opening failed half way.
#[test]
fn a_home_whose_opening_failed_stays_locked_until_its_work_has_ended() {
    let home = tempfile::tempdir().unwrap();
    let (_tree, root) = Tree::new("host");
    let claimed = Claimed::new(&root, "support", lock(home.path())).unwrap();
    let work = claimed.work().open(Kind::Compilation, "compilation").unwrap();
    drop(claimed);
    assert!(work.signal().is_hard());
    assert!(HomeLock::take(home.path()).is_err());
    drop(work);
    drop(lock(home.path()));
}

/// A session that somebody has a handle of does not keep the profile, and can do nothing more.
#[test]
fn an_idle_session_does_not_keep_its_profile() {
    let kit = Kit::new();
    assert!(matches!(kit.retire(Duration::ZERO), Retired::Released));
    assert!(!kit.is_locked());
    assert!(kit.session.open(Kind::Turn, "late").is_err());
    assert!(kit.tree.contains(kit.authority.id()));
}
