//! The command `checkrein`, built on the library alone.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The children that compile and that run guests limit themselves, so nothing may be set up before them.
    if let Some(first) = std::env::args_os().nth(1) {
        if first == cli::COMPILE_CHILD {
            return checkrein::compile_child();
        }
        if first == cli::WORKER {
            return checkrein::worker_child();
        }
    }
    cli::main()
}
