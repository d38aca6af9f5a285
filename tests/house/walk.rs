//! Follows `docs/writing-a-plugin.md` word by word, as a newcomer would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// One thing that the page tells its reader to do.
#[derive(Debug)]
enum Step {
    /// Write a file.
    File { name: String, text: String },
    /// Run a command, and see these lines in what it prints.
    Run { command: String, sees: Vec<String> },
}

/// Reads the marked blocks of a page in order.
fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(mark) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if let Some((_, name)) = mark.split_once("file=") {
            steps.push(Step::File { name: name.to_owned(), text: block.join("\n") + "\n" });
        } else if mark.ends_with(" run") {
            for line in block {
                match (line.strip_prefix("$ "), steps.last_mut()) {
                    (Some(command), _) => {
                        steps.push(Step::Run { command: command.to_owned(), sees: Vec::new() })
                    }
                    (None, Some(Step::Run { sees, .. })) => sees.push(line.to_owned()),
                    (None, _) => {}
                }
            }
        }
    }
    steps
}

#[test]
fn the_walk_through_writing_a_plugin_works_word_by_word() -> Result<()> {
    let root = root()?;
    let page = fs::read_to_string(root.join("docs/writing-a-plugin.md"))?;
    let folder = tempfile::tempdir()?;
    std::os::unix::fs::symlink(&root, folder.path().join("checkrein"))?;
    let command = option_env!("CARGO_BIN_EXE_checkrein").map(Path::new);

    let mut here = folder.path().to_owned();
    let mut ran = 0;
    for step in steps(&page) {
        match step {
            Step::File { name, text } => fs::write(here.join(&name), text).context(name)?,
            Step::Run { command: line, .. } if line.starts_with("cd ") => here.push(&line[3..]),
            // Where this is compiled without the command, the rest of the page is followed all the same.
            Step::Run { command: line, .. }
                if line.starts_with("checkrein ") && command.is_none() => {}
            Step::Run { command: line, sees } => {
                run(&line, &sees, &here, command)?;
                ran += 1;
            }
        }
    }
    ensure!(ran >= 4, "the page has lost its marked blocks: {ran} commands were run");
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the environment of a test is not that of a newcomer"
)]
fn run(line: &str, sees: &[String], here: &Path, command: Option<&Path>) -> Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(here);
    if let Some(folder) = command.and_then(Path::parent) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
        shell.env("PATH", std::env::join_paths(all)?);
    }
    // What cargo tells this test is not meant for the newcomer's cargo.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let ours = text.starts_with("CARGO") && text != "CARGO_HOME";
        if ours
            || text.starts_with("RUSTC")
            || text.ends_with("RUSTFLAGS")
            || text == "LLVM_PROFILE_FILE"
        {
            shell.env_remove(&name);
        }
    }
    let output = shell.output().with_context(|| format!("cannot run `{line}`"))?;
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{line}` ended with {}:\n{printed}", output.status);
    for wanted in sees {
        ensure!(
            printed.contains(wanted.as_str()),
            "`{line}` did not print `{wanted}`, but:\n{printed}"
        );
    }
    Ok(())
}

/// The top of the repository: where `wit/` is.
fn root() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .find(|folder| folder.join("wit/agent.wit").is_file())
        .map(Path::to_owned)
        .context("the repository has a folder `wit`")
}
