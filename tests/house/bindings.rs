//! The SDK's bindings are generated ahead and checked in; this keeps them the same as `wit/`.
//!
//! After a change of the WIT: `CHECKREIN_BLESS=1 cargo test --test house bindings`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};
use wit_bindgen_rust::{Opts, WithOption};

/// The records of each interface that the SDK defines itself, and the names that it gives them.
const RECORDS: &[(&str, &[(&str, &str)])] = &[
    ("run", &[("task", "Task"), ("budget", "Budget")]),
    ("model", &[("request", "Request"), ("response", "Response"), ("usage", "Usage")]),
    (
        "delegate",
        &[
            ("child-task", "ChildTask"),
            ("request", "DelegateRequest"),
            ("task-result", "TaskResult"),
            ("outcome", "DelegateOutcome"),
            ("unit-status", "UnitStatus"),
            ("delegation-capacity", "DelegationCapacity"),
        ],
    ),
];

/// The bindings of one world, as they should stand in the SDK.
fn generate(world: &str) -> Result<String> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(root()?.join("wit"))?;
    let id = resolve.select_world(&[package], Some(world))?;
    let version =
        resolve.packages[package].name.version.clone().context("the package has a version")?;

    let records = "crate::bindings::records";
    let mut with =
        vec![(format!("checkrein:plugin/types@{version}"), WithOption::Path(records.to_owned()))];
    for (interface, names) in RECORDS {
        if world == "agent" {
            with.extend(names.iter().map(|(wit, rust)| {
                let key = format!("checkrein:plugin/{interface}@{version}/{wit}");
                (key, WithOption::Path(format!("{records}::{rust}")))
            }));
        }
    }
    let options = Opts {
        with,
        generate_all: true,
        pub_export_macro: true,
        export_macro_name: Some(format!("export_{world}")),
        disable_custom_section_link_helpers: true,
        ..Opts::default()
    };

    let mut files = Files::default();
    options.build().generate(&mut resolve, id, &mut files)?;
    let (_, bytes) = files.iter().next().context("one file for one world")?;
    let text = std::str::from_utf8(bytes)?;
    // The generated code ends with a section that describes the imports of the world wherever the code is linked.
    // It would describe the imports of both worlds in every component. The export macro brings a section for
    // its own world, imports included, and that one is enough.
    let (text, section) =
        text.rsplit_once("#[cfg(target_arch").context("the code ends with a section")?;
    ensure!(
        section.contains("-with-all-of-its-exports-removed:"),
        "the last section is that of the imports"
    );
    Ok(format!(
        "//! Bindings of the world `{world}`, generated from `wit/`.\n\n{}\n",
        text.trim_end()
    ))
}

#[test]
#[expect(clippy::disallowed_methods, reason = "whoever runs the test says whether to rewrite")]
fn the_checked_in_bindings_are_those_of_the_wit() -> Result<()> {
    for world in ["agent", "tool"] {
        let path = root()?.join("guest-sdk/src/bindings").join(format!("{world}.rs"));
        let wanted = generate(world)?;
        if std::env::var_os("CHECKREIN_BLESS").is_some() {
            fs::write(&path, &wanted)?;
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == wanted,
            "{} does not fit wit/; run `CHECKREIN_BLESS=1 cargo test --test house bindings`",
            path.display()
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
