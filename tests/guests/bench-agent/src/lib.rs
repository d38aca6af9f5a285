//! The agent that the benchmarks run. Its goal says what it does: `start`, `calls N`, `waits N`, `tools N`, `spin`,
//! `park`, `loop`, `tool`, `model`.

use std::hint::black_box;
use std::time::Duration;

use checkrein_guest::prelude::*;

#[derive(Default)]
struct Bench;

impl Agent for Bench {
    fn run(&self, run: &Run) -> Result<String, Failure> {
        let task = run.task();
        let (what, times) = task.goal.split_once(' ').unwrap_or((&task.goal, "1"));
        let times: u64 = times.parse().unwrap_or(1);
        match what {
            "calls" => (0..times).for_each(|_| {
                black_box(run.stop_requested());
            }),
            "waits" => {
                for _ in 0..times {
                    run.checkpoint("bench")?;
                }
            }
            "tools" => {
                for n in 0..times {
                    let call = ToolCall {
                        id: n.to_string(),
                        name: "bench_echo".into(),
                        arguments: "{}".into(),
                    };
                    black_box(run.call(vec![call])?);
                }
            }
            "spin" => loop {
                black_box(());
            },
            "loop" => loop {
                black_box(run.stop_requested());
            },
            "park" => run.sleep(Duration::from_secs(86_400))?,
            "tool" => {
                let call =
                    ToolCall { id: "1".into(), name: "bench_spin".into(), arguments: "{}".into() };
                black_box(run.call(vec![call])?);
            }
            "model" => {
                black_box(run.complete(Request::ask("hello"))?);
            }
            _ => {}
        }
        Ok(String::new())
    }
}

agent!(Bench);
