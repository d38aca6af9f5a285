//! Random sequences of what can happen to the profiles of a host, beside a naive model.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::super::{HomeLock, Parked, Profiles, Retired, Wanted, listing};
use super::{Diary, Opener, runtime, soon};
use crate::work::{Kind, Tree, Work};

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The configuration is there, right or wrong, with these words.
    Write {
        at: usize,
        wrong: bool,
        words: u8,
    },
    Disappear(usize),
    Stick(usize),
    Unstick(usize),
    Reconcile,
    Serve(usize),
    Retire(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..NAMES.len();
    prop_oneof![
        3 => (at.clone(), prop::bool::weighted(0.2), 0..3_u8)
            .prop_map(|(at, wrong, words)| Step::Write { at, wrong, words }),
        2 => at.clone().prop_map(Step::Disappear),
        3 => at.clone().prop_map(Step::Stick),
        3 => at.clone().prop_map(Step::Unstick),
        4 => Just(Step::Reconcile),
        2 => at.clone().prop_map(Step::Serve),
        1 => at.prop_map(Step::Retire),
    ]
}

/// What the model knows of one home.
#[derive(Debug, Default)]
struct Home {
    wanted: Option<(bool, u8)>,
    /// The configuration that its authority took over last.
    served: Option<(bool, u8)>,
    retiring: bool,
    /// Work of its one authority.
    stuck: Vec<Work>,
}

impl Home {
    fn retire(&mut self) -> bool {
        let served = self.served.take().is_some();
        self.retiring = (self.retiring || served) && !self.stuck.is_empty();
        served
    }

    /// Whether it is served afterwards by a new authority.
    fn open(&mut self) -> bool {
        let opens = !self.retiring && self.wanted.is_some_and(|(wrong, _)| !wrong);
        if opens {
            self.served = self.wanted;
        }
        opens
    }
}

struct Pair {
    runtime: tokio::runtime::Runtime,
    directory: tempfile::TempDir,
    opener: Arc<Opener>,
    profiles: Profiles<Arc<Opener>>,
    homes: [Home; NAMES.len()],
}

impl Pair {
    fn new() -> Pair {
        let (_, host) = Tree::new("host");
        let opener = Arc::<Opener>::default();
        let profiles = Profiles::new(host, Arc::clone(&opener));
        let directory = tempfile::tempdir().unwrap();
        for name in NAMES {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Pair { runtime: runtime(), directory, opener, profiles, homes: Default::default() }
    }

    fn wanted(&self) -> Vec<Wanted> {
        listing(self.directory.path()).unwrap()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write { at, wrong, words } => {
                let text = format!("{} = {words}", if wrong { "wrong" } else { "right" });
                let home = self.directory.path().join(NAMES[at]);
                fs::write(home.join("profile.toml"), text).unwrap();
                self.homes[at].wanted = Some((wrong, words));
            }
            Step::Disappear(at) => {
                let home = self.directory.path().join(NAMES[at]);
                let there = fs::remove_file(home.join("profile.toml")).is_ok();
                assert_eq!(self.homes[at].wanted.take().is_some(), there);
            }
            Step::Stick(at) => {
                if self.homes[at].served.is_some() {
                    let (_, profile) = self.opener.last(NAMES[at]);
                    self.homes[at].stuck.push(profile.open(Kind::SideRun, "stuck").unwrap());
                }
            }
            Step::Unstick(at) => drop(self.homes[at].stuck.pop()),
            Step::Reconcile => self.reconcile(),
            Step::Serve(at) => self.serve(at),
            Step::Retire(at) => {
                let known = self.homes[at].served.is_some() || self.homes[at].retiring;
                self.homes[at].retire();
                let retired = soon(&self.runtime, self.profiles.retire(NAMES[at], Duration::ZERO));
                match retired {
                    None => assert!(!known),
                    Some(Retired::Released) => assert!(known && !self.homes[at].retiring),
                    Some(Retired::NotReleased(_)) => assert!(self.homes[at].retiring),
                }
            }
        }
    }

    fn reconcile(&mut self) {
        let wanted = self.wanted();
        let done = soon(&self.runtime, self.profiles.reconcile(&wanted, Duration::ZERO));
        for (name, home) in NAMES.iter().zip(&mut self.homes) {
            let listed = |names: &[String]| names.iter().any(|listed| listed == name);
            let was_retiring = home.retiring;
            let removed = home.wanted.is_none() && home.served.is_some();
            if removed || was_retiring {
                home.retire();
            }
            let released = (removed || was_retiring) && !home.retiring;
            assert_eq!(listed(&done.removed), removed, "{name}: {done:?}");
            assert_eq!(listed(&done.released), released, "{name}: {done:?}");
            assert_eq!(done.not_released.contains_key(*name), home.retiring, "{name}: {done:?}");
            let (mut kept, mut reloaded, mut not_reloaded, mut added) =
                (false, false, false, false);
            if let (Some(served), Some(now)) = (home.served, home.wanted) {
                kept = served == now;
                not_reloaded = !kept && now.0;
                reloaded = !kept && !now.0;
                if reloaded {
                    home.served = Some(now);
                }
            } else {
                added = home.open();
            }
            assert_eq!(listed(&done.kept), kept, "{name}: {done:?}");
            assert_eq!(listed(&done.reloaded), reloaded, "{name}: {done:?}");
            assert_eq!(done.not_reloaded.contains_key(*name), not_reloaded, "{name}: {done:?}");
            assert_eq!(listed(&done.added), added, "{name}: {done:?}");
            match done.parked.get(*name) {
                None => assert!(home.wanted.is_none() || home.served.is_some(), "{name}"),
                Some(Parked::Retiring { .. }) => assert!(home.retiring, "P7: {name}"),
                Some(Parked::NotOpened(_)) => {
                    assert!(!home.retiring && home.wanted.is_some_and(|now| now.0), "{name}");
                }
                Some(other) => panic!("{name} is parked for no reason: {other}"),
            }
        }
    }

    fn serve(&mut self, at: usize) {
        let wanted = self.wanted().into_iter().find(|wanted| wanted.name == NAMES[at]);
        let Some(wanted) = wanted else { return };
        let home = &mut self.homes[at];
        if home.served.is_none() {
            home.retire();
            home.open();
        }
        let served = soon(&self.runtime, self.profiles.serve(&wanted, Duration::ZERO));
        assert_eq!(served.is_ok(), home.served.is_some(), "{served:?}");
    }

    /// What holds after every step.
    fn check(&self) {
        let listed: Vec<_> = self.profiles.served();
        let names: Vec<_> = listed.iter().map(|served| served.name().to_owned()).collect();
        let expected = NAMES.iter().zip(&self.homes);
        let expected: Vec<_> =
            expected.filter(|(_, home)| home.served.is_some()).map(|(name, _)| *name).collect();
        assert_eq!(names, expected, "P2: what is retired is not listed");

        let retiring = self.profiles.retiring();
        let mut authorities = BTreeMap::<_, usize>::new();
        for authority in listed.iter().chain(&retiring) {
            *authorities.entry(authority.home().to_owned()).or_default() += 1;
        }
        for (name, home) in NAMES.iter().zip(&self.homes) {
            let path = self.directory.path().join(name);
            let living = authorities.get(&path).copied().unwrap_or(0);
            let expected = usize::from(home.served.is_some() || home.retiring);
            assert_eq!(living, expected, "P1, P7: authorities of {name}");
            assert_eq!(HomeLock::take(&path).is_err(), living == 1, "P4: the lock of {name}");
            assert!(home.stuck.is_empty() || living == 1, "P4: work of {name} and no authority");
        }
        let opened = self.opener.opened.lock().unwrap();
        for (at, (name, diary, _)) in opened.iter().enumerate() {
            let is_last = !opened[at + 1..].iter().any(|(later, ..)| later == name);
            let home = &self.homes[NAMES.iter().position(|other| other == name).unwrap()];
            check_diary(diary, is_last, home);
        }
    }
}

fn check_diary(diary: &Diary, is_last: bool, home: &Home) {
    let whole = ["unpublished", "unbound", "closed", "dropped"];
    let expected = match (is_last, home.served.is_some(), home.retiring) {
        (true, true, _) => &whole[..0],
        (true, false, true) => &whole[..1],
        (true, false, false) | (false, ..) => &whole[..],
    };
    assert_eq!(diary.read(), expected, "P2, P4, P5: in this order, each once, none early");
}

fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.min(96), failure_persistence: None, ..usual }
}

proptest! {
    #![proptest_config(config())]

    /// Rules P1, P2, P4, P5, P6, P7.
    #[test]
    fn the_registry_does_what_the_naive_model_does(steps in prop::collection::vec(step(), 0..40)) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
            pair.check();
        }
    }
}
