//! Hosts and ports, as manifests ask for them and operators give them.

use std::net::IpAddr;
use std::num::NonZeroU16;

use serde::Deserialize;
use serde::de::Deserializer;

use super::document::from_text;
use super::text::printable;
use crate::sandbox::{Addresses, Endpoint};

/// One entry of `network` in a `[grants]` table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostEntry {
    /// A host name, an address, `*.example.org` for all names below one, or `*` for every host.
    pub host: HostPattern,
    /// The port. Left out: every port.
    #[serde(default)]
    pub port: Option<NonZeroU16>,
    /// Whether the name may also stand for loopback, private and link-local addresses.
    #[serde(default)]
    pub private: bool,
}

impl HostEntry {
    /// The entry as the sandbox understands it.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            host: self.host.0.clone(),
            port: self.port.map(NonZeroU16::get),
            addresses: if self.private { Addresses::Any } else { Addresses::Public },
        }
    }
}

/// A host name, an address, `*.example.org`, or `*`; in lower case, without a dot at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern(String);

impl HostPattern {
    /// Checks a host, and writes it in the one way in which hosts are compared.
    ///
    /// # Errors
    /// When it is no such name or address.
    pub fn parse(text: &str) -> Result<HostPattern, HostError> {
        let refuse = |why| Err(HostError { text: printable(text), why });
        if text == "*" {
            return Ok(HostPattern(text.to_owned()));
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(HostPattern(address.to_canonical().to_string()));
        }
        if text.contains("://") || text.contains('/') {
            return refuse("write the host alone, without scheme and path");
        }
        if text.contains(':') {
            return refuse("write the port as a key of its own: `port = 443`");
        }
        if !text.is_ascii() {
            return refuse("write names with other letters in their `xn--` form");
        }
        let lower = text.to_ascii_lowercase();
        let lower = lower.strip_suffix('.').unwrap_or(&lower);
        let name = lower.strip_prefix("*.").unwrap_or(lower);
        if name.contains('*') {
            return refuse("a `*` can only stand for everything, or before the first dot");
        }
        let labels = name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
                && !label.starts_with('-')
                && !label.ends_with('-')
        });
        if !labels || name.len() > 253 {
            return refuse("a host name has letters, digits and `-` between its dots");
        }
        // `0x7f.1`, `2130706433`: resolvers read such names as addresses, each in its own way.
        if name.rsplit('.').next().is_some_and(is_number) {
            return refuse("a name cannot end in a number; write an address in full");
        }
        Ok(HostPattern(lower.to_owned()))
    }

    /// The host as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_number(label: &str) -> bool {
    let digits = label.strip_prefix("0x");
    label.bytes().all(|c| c.is_ascii_digit())
        || digits.is_some_and(|rest| rest.bytes().all(|c| c.is_ascii_hexdigit()))
}

impl<'de> Deserialize<'de> for HostPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HostPattern, D::Error> {
        from_text(deserializer, "a host name or an address", |text| {
            HostPattern::parse(text).map_err(|error| error.to_string())
        })
    }
}

/// What two entries have in common, if anything. Of two hosts that share a name, one contains the other.
pub(super) fn meet(a: &Endpoint, b: &Endpoint) -> Option<Endpoint> {
    let host = if covers(&a.host, &b.host) {
        &b.host
    } else if covers(&b.host, &a.host) {
        &a.host
    } else {
        return None;
    };
    let port = match (a.port, b.port) {
        (Some(one), Some(other)) if one != other => return None,
        (one, other) => one.or(other),
    };
    let addresses = match (a.addresses, b.addresses) {
        (Addresses::Any, Addresses::Any) => Addresses::Any,
        (Addresses::Public, _) | (_, Addresses::Public) => Addresses::Public,
    };
    Some(Endpoint { host: host.clone(), port, addresses })
}

fn covers(wide: &str, narrow: &str) -> bool {
    match wide.strip_prefix('*') {
        Some("") => true,
        Some(tail) => narrow.ends_with(tail),
        None => wide == narrow,
    }
}

/// An entry as people read it.
pub(super) fn words(endpoint: &Endpoint) -> String {
    let port = endpoint.port.map_or_else(String::new, |port| format!(", port {port}"));
    let private = match endpoint.addresses {
        Addresses::Public => "",
        Addresses::Any => ", private addresses too",
    };
    format!("{}{port}{private}", endpoint.host)
}

/// A text that is no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a host: {why}")]
pub struct HostError {
    /// The text, escaped.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_written_in_one_way() {
        let same = |text| HostPattern::parse(text).unwrap().0;
        assert_eq!(same("API.Example.ORG."), "api.example.org");
        assert_eq!(same("[::1]"), "::1");
        assert_eq!(same("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(same("*.Example.org"), "*.example.org");
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for bad in [
            "",
            ".",
            "*.",
            "a..b",
            "http://a",
            "a/b",
            "a:80",
            "*a.org",
            "a.*.org",
            "*.*.org",
            "ä.org",
            "2130706433",
            "0x7f.1",
            "1.2.3",
            "*.1",
            "a\n.org",
            "-a.org",
            "a b",
        ] {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
        assert!(HostPattern::parse(&format!("{}.org", "a".repeat(64))).is_err());
    }

    #[test]
    fn two_entries_share_what_both_allow() {
        let entry =
            |host: &str, port, addresses| Endpoint { host: host.to_owned(), port, addresses };
        let all = entry("*", None, Addresses::Public);
        let below = entry("*.a.org", Some(443), Addresses::Any);
        let one = entry("x.a.org", None, Addresses::Any);
        assert_eq!(meet(&all, &below), Some(entry("*.a.org", Some(443), Addresses::Public)));
        assert_eq!(meet(&below, &one), Some(entry("x.a.org", Some(443), Addresses::Any)));
        assert_eq!(meet(&below, &entry("a.org", None, Addresses::Any)), None);
        assert_eq!(meet(&below, &entry("xa.org", None, Addresses::Any)), None);
        assert_eq!(meet(&below, &entry("x.a.org", Some(80), Addresses::Any)), None);
    }
}
