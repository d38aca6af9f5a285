//! The command `checkrein`, built on the library alone.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The child that compiles limits itself, so nothing may be set up before it.
    if std::env::args_os().nth(1).is_some_and(|first| first == cli::COMPILE_CHILD) {
        return checkrein::compile_child();
    }
    cli::main()
}
