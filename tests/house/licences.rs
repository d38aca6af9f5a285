//! Every dependency has a licence that `deny.toml` allows.

use std::env;
use std::process::Command;

use crate::source::root;

#[test]
fn every_dependency_has_an_allowed_licence() {
    let deny: toml::Table = std::fs::read_to_string(root().join("deny.toml"))
        .expect("it is there")
        .parse()
        .expect("it is TOML");
    let allowed: Vec<&str> = deny["licenses"]["allow"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|licence| licence.as_str().expect("a name"))
        .collect();
    let mut wrong = Vec::new();
    for manifest in ["Cargo.toml", "plugins/Cargo.toml", "tests/guests/Cargo.toml"] {
        let output = Command::new(env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
            .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
            .arg(root().join(manifest))
            .output()
            .expect("cargo can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
        for package in metadata["packages"].as_array().expect("a list") {
            let licence = package["license"].as_str().unwrap_or("none");
            let fits = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX).is_ok_and(
                |expression| {
                    expression.evaluate(|wanted| allowed.contains(&wanted.to_string().as_str()))
                },
            );
            if !fits {
                wrong.push(format!("{} {}: {licence}", package["name"], package["version"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
