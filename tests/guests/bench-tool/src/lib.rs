//! The tools that the benchmarks call.

use std::hint::black_box;

use checkrein_guest::prelude::*;

struct Echo;

impl Tool for Echo {
    const NAME: &str = "echo";
    const DESCRIPTION: &str = "Answers at once.";
    type Arguments = NoArguments;

    fn call(_arguments: NoArguments, _cx: &ToolContext) -> Result<Output, Failure> {
        Ok(Output::text("echo"))
    }
}

struct Spin;

impl Tool for Spin {
    const NAME: &str = "spin";
    const DESCRIPTION: &str = "Never answers.";
    type Arguments = NoArguments;

    fn call(_arguments: NoArguments, _cx: &ToolContext) -> Result<Output, Failure> {
        loop {
            black_box(());
        }
    }
}

tools!(Echo, Spin);
