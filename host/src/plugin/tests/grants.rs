//! Requests against gifts.

use super::super::{Decision, Given, Name, Standing, Verdict, decide};
use super::{configuration, manifest};
use crate::sandbox::{Access, Addresses, Directory, Limits};

/// Decides for the plugin `probe`.
fn decided(requests: &str, operator: &str, standing: Standing<'_>) -> Decision {
    let configuration = configuration(operator);
    let name = Name::parse("probe").unwrap();
    decide(
        &manifest(requests),
        &Given::new(&configuration, &name, standing),
        &configuration.ceiling(&name),
    )
}

fn findings(decision: &Decision) -> Vec<String> {
    decision.findings.iter().map(ToString::to_string).collect()
}

fn directory(mount: &str, access: Access) -> Directory {
    Directory { mount: mount.to_owned(), path: "/data".into(), access }
}

const ASKS: &str = "[grants]\ndirectories = [{ mount = \"*\" }]\nnetwork = [{ host = \"*\" }]\nenvironment = [\"LANG\"]\n\
    tools = [\"*\"]\nmodels = true\ndelegation = true\n";

#[test]
fn nothing_is_granted_by_default() {
    let decision = decided(ASKS, "", Standing::Found);
    assert_eq!(
        decision.effective.reach(&|_| Some("x".to_owned())),
        crate::sandbox::Reach::default()
    );
    assert!(decision.effective.tools.is_empty() && decision.effective.models.is_empty());
    assert!(decision.effective.delegation.is_empty() && decision.effective.secrets.is_empty());
    assert_eq!(decision.findings.len(), 6);
    assert!(decision.findings.iter().all(|finding| matches!(finding.verdict, Verdict::Denied(_))));
}

#[test]
fn a_plugin_that_was_named_gets_the_directories_of_the_command_line() {
    let given = [directory("/work", Access::ReadWrite)];
    let decision = decided(ASKS, "", Standing::Named { directories: &given });
    assert_eq!(decision.effective.directories, [directory("/work", Access::Read)]);
    assert!(
        decision.effective.tools.allows("files_read") && decision.effective.models.allows("main")
    );
    assert!(decision.effective.network.is_empty());
    assert!(decision.effective.environment.is_empty());
}

#[test]
fn the_configuration_narrows_what_a_named_plugin_gets() {
    let decision = decided(
        "[grants]\ntools = [\"files_*\", \"text_hash\"]\nmodels = [\"*\"]\n",
        "[plugins.probe.grants]\ntools = [\"files_read\", \"files_list\"]\nmodels = false\n",
        Standing::Named { directories: &[] },
    );
    assert_eq!(decision.effective.tools.to_string(), "files_list, files_read");
    assert!(decision.effective.models.is_empty());
    assert_eq!(
        findings(&decision),
        [
            "tools files_*: narrowed: given only: files_list; files_read",
            "tools text_hash: denied: the operator gives none of these",
            "models *: denied: the operator gives none of these",
        ]
    );
}

#[test]
fn a_directory_of_the_command_line_stands_in_place_of_one_in_the_file() {
    let named = [directory("/work", Access::Read)];
    let operator = "[plugins.probe.grants]\ndirectories = [{ mount = \"work\", path = \"a\", access = \"read-write\" }, \
        { mount = \"out\", path = \"b\", access = \"read-write\" }]\n";
    let asks = "[grants]\ndirectories = [{ mount = \"*\", access = \"read-write\" }, { mount = \"in\" }]\n";
    let decision = decided(asks, operator, Standing::Named { directories: &named });
    let all: Vec<_> =
        decision.effective.directories.iter().map(|d| (d.mount.as_str(), d.access)).collect();
    assert_eq!(all, [("/work", Access::Read), ("/out", Access::ReadWrite)]);
    assert_eq!(
        findings(&decision),
        [
            "directory * (read-write): narrowed: given for reading only: /work",
            "directory in (read): denied: no such directory is given; use --dir NAME=PATH or the configuration",
        ]
    );
}

#[test]
fn a_request_by_name_goes_before_the_one_for_all() {
    let given = [directory("/a", Access::ReadWrite), directory("/b", Access::ReadWrite)];
    let asks =
        "[grants]\ndirectories = [{ mount = \"*\", access = \"read-write\" }, { mount = \"a\" }]\n";
    let decision = decided(asks, "", Standing::Named { directories: &given });
    let all: Vec<_> = decision.effective.directories.iter().map(|d| d.access).collect();
    assert_eq!(all, [Access::Read, Access::ReadWrite]);
}

#[test]
fn a_host_is_given_as_far_as_both_sides_say() {
    let decision = decided(
        "[grants]\nnetwork = [{ host = \"*.a.org\", private = true }, { host = \"b.org\", port = 80 }, { host = \"c.org\" }]\n",
        "[plugins.probe.grants]\nnetwork = [{ host = \"x.a.org\", port = 443 }, { host = \"b.org\" }, { host = \"d.org\" }]\n",
        Standing::Found,
    );
    let all: Vec<_> =
        decision.effective.network.iter().map(|e| (e.host.as_str(), e.port, e.addresses)).collect();
    assert_eq!(
        all,
        [("x.a.org", Some(443), Addresses::Public), ("b.org", Some(80), Addresses::Public)]
    );
    assert_eq!(
        findings(&decision),
        [
            "network *.a.org, private addresses too: narrowed: given only: x.a.org, port 443 (public addresses only)",
            "network b.org, port 80: granted",
            "network c.org: denied: the operator does not give this host",
            "network d.org: given, but not in the manifest",
        ]
    );
}

#[test]
fn what_nobody_asked_for_is_not_used() {
    let operator = "[plugins.probe]\nconfiguration = { colour = 1 }\n[plugins.probe.grants]\nenvironment = [\"HOME\"]\n\
        secrets = { token = { env = \"T\" } }\ndirectories = [{ mount = \"w\", path = \"x\" }]\n";
    let decision = decided("", operator, Standing::Found);
    assert_eq!(
        decision.effective.reach(&|_| Some("x".to_owned())),
        crate::sandbox::Reach::default()
    );
    assert!(decision.effective.secrets.is_empty());
    assert_eq!(decision.findings.len(), 4);
    assert!(decision.findings.iter().all(|finding| finding.verdict == Verdict::Unasked));
}

#[test]
fn a_manifest_lowers_limits_and_never_raises_them() {
    let decision = decided(
        "[limits]\nmemory = \"1GiB\"\nfuel = 5\nwall-time = \"none\"\nhandles = 1000\n",
        "[limits]\nmemory = \"32MiB\"\n",
        Standing::Found,
    );
    let limits = &decision.effective.limits;
    assert_eq!(*limits, Limits { memory: 32 << 20, fuel: Some(5), ..Limits::default() });
    assert_eq!(
        findings(&decision),
        [
            "limit memory = 1 GiB: narrowed: the operator's ceiling is 32 MiB",
            "limit fuel = 5: granted",
            "limit wall-time = none: narrowed: the operator's ceiling is 10 min",
            "limit handles = 1000: granted",
        ]
    );
}

#[test]
fn variables_have_the_values_that_the_caller_finds() {
    let asks = "[grants]\nenvironment = [\"A\", \"B\", \"C\"]\n";
    let decision =
        decided(asks, "[plugins.probe.grants]\nenvironment = [\"A\", \"B\"]\n", Standing::Found);
    let reach = decision.effective.reach(&|name| (name != "B").then(|| name.to_lowercase()));
    assert_eq!(reach.environment, [("A".to_owned(), "a".to_owned())]);
}
