//! Tests of this room through its public items: hostile manifests, configurations, grants, folders.

mod catalogue;
mod configuration;
mod grants;
mod manifest;
mod properties;

use std::path::Path;

use super::{Configuration, ConfigurationError, Manifest, ManifestError};

/// The lines that every manifest needs.
const HEAD: &str = "name = \"probe\"\nversion = \"0.1.0\"\nkind = \"agent\"\ncomponent = \"probe.wasm\"\ndescription = \"Probes.\"\n";

fn parse(text: &str) -> Result<Manifest, ManifestError> {
    Manifest::parse(text, Path::new("probe/plugin.toml"))
}

/// A manifest with these lines after the ones that every manifest needs.
fn manifest(rest: &str) -> Manifest {
    parse(&format!("{HEAD}{rest}")).unwrap()
}

fn manifest_error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

/// An error without the key that it names behind the position.
fn keyless(error: &str) -> String {
    let named = error.split_once(": `").and_then(|(position, rest)| {
        let (_key, words) = rest.split_once("`: ")?;
        position.ends_with(|c: char| c.is_ascii_digit()).then(|| format!("{position}: {words}"))
    });
    named.unwrap_or_else(|| error.to_owned())
}

fn configure(text: &str) -> Result<Configuration, ConfigurationError> {
    Configuration::parse(text, Path::new("/etc/checkrein/config.toml"))
}

fn configuration(text: &str) -> Configuration {
    configure(text).unwrap()
}

/// The first example in the docs of a file of this room.
fn example(source: &str) -> String {
    let lines = source.lines().skip_while(|line| *line != "/// ```toml").skip(1);
    let lines = lines.take_while(|line| *line != "/// ```");
    lines.map(|line| format!("{}\n", line.trim_start_matches("///").trim_start())).collect()
}

#[test]
fn the_examples_in_the_docs_are_read() {
    assert_eq!(parse(&example(include_str!("../manifest.rs"))).unwrap().name.as_str(), "greeter");
    assert!(
        configuration(&example(include_str!("../configuration.rs"))).plugins.contains_key("http")
    );
}

#[test]
fn the_served_interface_is_the_one_in_the_wit_folder() {
    let wit = include_str!("../../../../wit/types.wit");
    assert!(wit.starts_with(&format!("package checkrein:plugin@{};", super::Interface::SERVED)));
}
