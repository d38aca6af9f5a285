//! What holds for every manifest and every configuration.

use std::path::Path;

use proptest::prelude::*;

use super::super::{Bound, Count, Given, LimitsTable, Pattern, Patterns, Size, decide};
use super::{HEAD, configure, manifest, parse};
use crate::sandbox::{Access, Addresses, Directory, Endpoint, Limits};

fn limits_table() -> impl Strategy<Value = LimitsTable> {
    let bound = prop_oneof![Just(Bound::None), (1u64..100).prop_map(|n| Bound::At(Count(n)))];
    (
        proptest::option::of((1u64..200 << 20).prop_map(Size)),
        proptest::option::of(bound.clone()),
        proptest::option::of((1u64..2_000).prop_map(Count)),
        proptest::option::of(bound),
    )
        .prop_map(|(memory, fuel, handles, model_tokens)| LimitsTable {
            memory,
            fuel,
            handles,
            model_tokens,
            ..LimitsTable::default()
        })
}

fn ceiling() -> impl Strategy<Value = Limits> {
    limits_table().prop_map(|table| table.over(&Limits::default()))
}

fn pattern() -> impl Strategy<Value = Pattern> {
    "[ab]{0,3}[*a]".prop_map(|text| Pattern::parse(&text).unwrap())
}

fn patterns() -> impl Strategy<Value = Patterns> {
    proptest::collection::vec(pattern(), 0..5).prop_map(Patterns::from_iter)
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    let host = prop::sample::select(vec!["*", "*.org", "*.a.org", "a.org", "x.a.org", "10.0.0.1"]);
    let port = prop::sample::select(vec![None, Some(80), Some(443)]);
    (host, port, any::<bool>()).prop_map(|(host, port, private)| Endpoint {
        host: host.to_owned(),
        port,
        addresses: if private { Addresses::Any } else { Addresses::Public },
    })
}

/// Whether an entry lets a connection through, written apart from the code that computes entries.
fn allows(all: &[Endpoint], host: &str, port: u16, private: bool) -> bool {
    all.iter().any(|entry| {
        let host_fits = entry.host == "*"
            || entry.host == host
            || entry
                .host
                .strip_prefix("*.")
                .is_some_and(|tail| host.ends_with(&format!(".{tail}")));
        host_fits
            && entry.port.is_none_or(|own| own == port)
            && (!private || entry.addresses == Addresses::Any)
    })
}

fn requested_network(all: &[Endpoint]) -> String {
    let entries: Vec<String> = all
        .iter()
        .map(|entry| {
            let port = entry.port.map_or_else(String::new, |port| format!(", port = {port}"));
            format!(
                "{{ host = \"{}\"{port}, private = {} }}",
                entry.host,
                entry.addresses == Addresses::Any
            )
        })
        .collect();
    format!("network = [{}]\n", entries.join(", "))
}

fn access() -> impl Strategy<Value = Access> {
    prop::sample::select(vec![Access::Read, Access::ReadWrite])
}

proptest! {
    #[test]
    fn reading_never_panics_and_never_gives_back_control_characters(text in "\\PC{0,200}|[\\x00-\\x7f]{0,200}|([a-z\\[\\]{}=\"'\\\\,. \\n\\x1b\u{202e}-]|name|kind|limits|grants|tools){0,60}") {
        for error in [
            parse(&text).err().map(|error| error.to_string()),
            parse(&format!("{HEAD}{text}")).err().map(|error| error.to_string()),
            configure(&text).err().map(|error| error.to_string()),
        ].into_iter().flatten() {
            prop_assert!(error.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{error:?}");
        }
    }

    #[test]
    fn bytes_that_were_damaged_never_panic(place in 0..HEAD.len(), byte in any::<u8>()) {
        let mut bytes = HEAD.as_bytes().to_vec();
        bytes[place] = byte;
        if let Ok(text) = String::from_utf8(bytes) {
            drop(super::super::Manifest::parse(&text, Path::new("x")));
        }
    }

    #[test]
    fn effective_limits_are_never_above_the_ceiling(table in limits_table(), ceiling in ceiling()) {
        let mut manifest = manifest("");
        manifest.limits = table;
        let limits = decide(&manifest, &Given::default(), &ceiling).effective.limits;
        prop_assert_eq!(&limits.under(&ceiling), &limits);
        prop_assert_eq!(manifest.limits.over(&ceiling).under(&ceiling), limits);
    }

    #[test]
    fn a_name_is_allowed_when_both_sides_allow_it(asked in patterns(), given in patterns(), name in "[ab]{1,5}") {
        let both = asked.meet(&given);
        prop_assert_eq!(both.allows(&name), asked.allows(&name) && given.allows(&name));
        prop_assert_eq!(given.meet(&asked), both);
    }

    #[test]
    fn a_connection_is_allowed_when_both_sides_allow_it(
        asked in proptest::collection::vec(endpoint(), 0..4),
        given in proptest::collection::vec(endpoint(), 0..4),
    ) {
        let manifest = manifest(&format!("[grants]\n{}", requested_network(&asked)));
        let gifts = Given { network: given.clone(), ..Given::default() };
        let effective = decide(&manifest, &gifts, &Limits::default()).effective.network;
        for host in ["a.org", "x.a.org", "y.x.a.org", "b.org", "b.com", "10.0.0.1"] {
            for port in [80, 443, 22] {
                for private in [false, true] {
                    let both = allows(&asked, host, port, private) && allows(&given, host, port, private);
                    prop_assert_eq!(allows(&effective, host, port, private), both, "{} {} {}", host, port, private);
                }
            }
        }
    }

    #[test]
    fn a_directory_is_never_given_beyond_either_side(
        asked in proptest::collection::btree_map("[abc*]", access(), 0..4),
        given in proptest::collection::btree_map("[abc]", access(), 0..4),
    ) {
        let word = |access| match access { Access::Read => "read", Access::ReadWrite => "read-write" };
        let requests: Vec<String> =
            asked.iter().map(|(mount, &a)| format!("{{ mount = \"{mount}\", access = \"{}\" }}", word(a))).collect();
        let manifest = manifest(&format!("[grants]\ndirectories = [{}]\n", requests.join(", ")));
        let gifts: Vec<Directory> = given
            .iter()
            .map(|(mount, &access)| Directory { mount: format!("/{mount}"), path: mount.into(), access })
            .collect();
        let gifts = Given { directories: gifts, ..Given::default() };
        let effective = decide(&manifest, &gifts, &Limits::default()).effective.directories;
        let expected = given.iter().filter(|(mount, _)| asked.contains_key(*mount) || asked.contains_key("*"));
        prop_assert_eq!(effective.len(), expected.count());
        for directory in effective {
            let mount = directory.mount.trim_start_matches('/');
            let most = asked.get(mount).or_else(|| asked.get("*"));
            prop_assert!(most.is_some_and(|most| directory.access <= *most), "{:?}", directory);
            prop_assert!(directory.access <= given[mount]);
        }
    }
}
