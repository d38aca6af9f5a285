//! Many rounds at random, and nothing left.

use std::collections::VecDeque;
use std::future::pending;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::super::{Grace, Kind, Running, Stop, Work, spawn};
use super::Kit;

const ROUNDS: usize = 10_000;

/// A number below the bound, from a fixed seed: a failure comes back.
fn below(rng: &mut TestRng, bound: u32) -> u32 {
    rng.next_u32() % bound
}

fn execution(kit: &Kit, rng: &mut TestRng, work: Work) -> Running<u32> {
    let control = kit.control.handle().clone();
    match below(rng, 6) {
        0 => kit.start(work, async { 0 }),
        1 => kit.start(work, pending()),
        2 => kit.start(work, async {
            loop {
                tokio::task::yield_now().await;
            }
        }),
        3 => kit.start(work, async {
            tokio::task::yield_now().await;
            std::panic::resume_unwind(Box::new("on purpose"))
        }),
        4 => {
            let signal = work.signal();
            kit.start(work, async move {
                signal.raised(super::super::StopKind::Soft).await;
                4
            })
        }
        _ => {
            let held = work.share();
            kit.start(work, async move {
                match held.open(Kind::ModelRequest, "model") {
                    Ok(request) => spawn(&control, request, async { 5 }).await.unwrap_or(5),
                    Err(_) => 5,
                }
            })
        }
    }
}

fn stop(rng: &mut TestRng) -> Stop {
    match below(rng, 3) {
        0 => Stop::soft("a user", "please", Grace::Never),
        1 => Stop::soft(
            "a user",
            "please",
            Grace::After(Duration::from_micros(u64::from(below(rng, 500)))),
        ),
        _ => Stop::hard("a user", "now"),
    }
}

/// Rule W4: opened, stopped and dropped at random, 10,000 times; afterwards the tree is empty.
#[test]
fn nothing_is_left_after_ten_thousand_rounds() {
    let kit = Kit::new();
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let session = kit.root.open(Kind::Session, "session").unwrap();
    let registry = session.open(Kind::Registry, "background").unwrap();
    let (mut running, mut bare) = (VecDeque::new(), VecDeque::new());
    for _ in 0..ROUNDS {
        let turn = session.open(Kind::Turn, "turn").unwrap();
        let unit = turn.open(Kind::Unit, "unit").unwrap();
        let (turn_id, unit_id) = (turn.id(), unit.id());
        if below(&mut rng, 4) == 0 {
            bare.push_back(turn.share());
        }
        if below(&mut rng, 8) == 0 {
            turn.stop(&stop(&mut rng));
        }
        running.push_back(execution(&kit, &mut rng, turn));
        if below(&mut rng, 2) == 0 {
            registry.adopt(&[&unit]).unwrap();
        }
        running.push_back(execution(&kit, &mut rng, unit));
        match below(&mut rng, 4) {
            0 => drop(kit.tree.stop(turn_id, &stop(&mut rng))),
            1 => drop(kit.tree.stop(unit_id, &stop(&mut rng))),
            2 if below(&mut rng, 50) == 0 => drop(registry.stop_children(&stop(&mut rng))),
            _ => {}
        }
        while running.len() > 20 {
            let at = below(&mut rng, running.len() as u32) as usize;
            drop(running.swap_remove_back(at));
        }
        while bare.len() > 5 {
            drop(bare.pop_front());
        }
    }
    drop((running, bare, registry, session));
    kit.empty();
}

/// Rules W2, W4: the same from several threads at once, without executions: nothing but the tree.
#[test]
fn nothing_is_left_after_threads_have_opened_moved_stopped_and_dropped() {
    let kit = Kit::new();
    let registry = kit.root.open(Kind::Registry, "background").unwrap();
    let seeds: Vec<[u8; 32]> = {
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        (0..4).map(|_| std::array::from_fn(|_| runner.rng().next_u32() as u8)).collect()
    };
    std::thread::scope(|scope| {
        for seed in &seeds {
            let (kit, registry) = (&kit, &registry);
            scope.spawn(move || {
                let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, seed);
                let mut held: Vec<Work> = vec![kit.root.share()];
                for _ in 0..5_000 {
                    let at = below(&mut rng, held.len() as u32) as usize;
                    match below(&mut rng, 6) {
                        0..3 => held.push(held[at].open(Kind::Child, "child").unwrap()),
                        3 if at > 0 => drop(held.swap_remove(at)),
                        4 if at > 0 => drop(held[at].stop(&stop(&mut rng))),
                        5 if at > 0 => registry.adopt(&[&held[at]]).unwrap(),
                        _ => {}
                    }
                    if held.len() > 40 {
                        held.truncate(1);
                    }
                }
            });
        }
    });
    drop(registry);
    kit.empty();
}
