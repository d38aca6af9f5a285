//! Which hosts and addresses a run may reach: one rule for sockets and HTTP, asked before every connection.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::address::is_public;
use super::gate::{Gate, Task, in_pool};
use super::state::Outside;
use crate::sandbox::reach::{Addresses, Endpoint, Reach};

/// How long a name lookup may take.
const LOOKUP_TIME: Duration = Duration::from_secs(10);
/// Addresses that are kept of one answer.
const ADDRESSES_OF_A_NAME: usize = 32;
/// Looked-up addresses that a run may connect to at one time; older ones are forgotten.
const FOUND: usize = 256;

/// Turns names into addresses.
pub(crate) trait Resolver: Send + Sync + 'static {
    /// Starts to look up a host name. Dropping the future abandons the lookup.
    fn resolve(&self, host: &str, gate: &Arc<dyn Gate>) -> Task<io::Result<Vec<IpAddr>>>;
}

/// An embedder's own way from names to addresses, in place of the operating system's.
pub trait Names: Send + Sync + 'static {
    /// Looks a host name up. Dropping the future abandons the lookup. Addresses are checked against the grants of the
    /// run afterwards.
    fn look_up(&self, host: &str) -> futures::future::BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

impl Resolver for Arc<dyn Names> {
    fn resolve(&self, host: &str, _gate: &Arc<dyn Gate>) -> Task<io::Result<Vec<IpAddr>>> {
        self.look_up(host)
    }
}

/// The resolver of the operating system. It blocks a thread of the gate's pool for each lookup.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: &str, gate: &Arc<dyn Gate>) -> Task<io::Result<Vec<IpAddr>>> {
        let host = host.to_owned();
        let gate = gate.clone();
        Box::pin(async move {
            let look =
                move || Ok((host.as_str(), 0).to_socket_addrs()?.map(|found| found.ip()).collect());
            in_pool(&gate, "looks up a host name", look).await
        })
    }
}

/// What a guest names as its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    /// A name, in lower case and without the final dot.
    Name(String),
    /// A literal address.
    Address(IpAddr),
}

impl Host {
    /// Reads a host as URLs and lookups spell it; none when it is neither a name nor an address.
    pub(super) fn parse(text: &str) -> Option<Host> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Some(Host::Address(address));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let fits = |label: &str| {
            (1..=63).contains(&label.len())
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        (name.len() <= 253 && name.split('.').all(fits))
            .then(|| Host::Name(name.to_ascii_lowercase()))
    }

    /// Whether a grant's host pattern means this host.
    fn is_meant_by(&self, pattern: &str) -> bool {
        if pattern == "*" {
            return true;
        }
        match self {
            Host::Address(address) => Host::parse(pattern) == Some(Host::Address(*address)),
            Host::Name(name) => match pattern.strip_prefix("*.") {
                Some(parent) => {
                    let parent = parent.strip_suffix('.').unwrap_or(parent);
                    name.len() > parent.len() + 1
                        && name.as_bytes()[name.len() - parent.len() - 1] == b'.'
                        && name.as_bytes()[name.len() - parent.len()..]
                            .eq_ignore_ascii_case(parent.as_bytes())
                }
                None => pattern.strip_suffix('.').unwrap_or(pattern).eq_ignore_ascii_case(name),
            },
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(address) => address.fmt(f),
        }
    }
}

fn covers(endpoint: &Endpoint, port: u16) -> bool {
    endpoint.port.is_none_or(|granted| granted == port)
}

fn admits(endpoint: &Endpoint, address: IpAddr) -> bool {
    match endpoint.addresses {
        Addresses::Any => true,
        Addresses::Public => is_public(address),
    }
}

/// The network as one run may use it.
pub(super) struct Network {
    reach: Arc<Reach>,
    gate: Arc<dyn Gate>,
    outside: Arc<Outside>,
    /// Addresses that this run's own lookups gave, with the port of the grant; grows with each lookup, the oldest leave first.
    found: Mutex<Vec<(IpAddr, Option<u16>)>>,
}

impl Network {
    pub(super) fn new(reach: Arc<Reach>, gate: Arc<dyn Gate>, outside: Arc<Outside>) -> Network {
        Network { reach, gate, outside, found: Mutex::new(Vec::new()) }
    }

    pub(super) fn gate(&self) -> &Arc<dyn Gate> {
        &self.gate
    }

    pub(super) fn outside(&self) -> &Outside {
        &self.outside
    }

    /// Whether any grant covers this host and port, before anything is looked up.
    pub(super) fn grants(&self, host: &Host, port: u16) -> Result<(), Refusal> {
        if self.meant(host).any(|endpoint| covers(endpoint, port)) {
            return Ok(());
        }
        Err(self.refuse(Refusal::NotGranted, format_args!("{host} port {port}")))
    }

    /// The addresses at which a granted host may be connected to. The caller connects to one of these and looks nothing up again.
    pub(super) async fn addresses(
        &self,
        host: &Host,
        port: u16,
    ) -> Result<Vec<SocketAddr>, Refusal> {
        self.grants(host, port)?;
        let found = self.resolve(host).await?;
        let rules: Vec<&Endpoint> =
            self.meant(host).filter(|endpoint| covers(endpoint, port)).collect();
        let allowed: Vec<SocketAddr> = found
            .iter()
            .filter(|address| rules.iter().any(|endpoint| admits(endpoint, **address)))
            .map(|address| SocketAddr::new(*address, port))
            .collect();
        self.some_of(&found, allowed, host)
    }

    /// The addresses of a granted host for whichever port, remembered so that the run may connect to them.
    pub(super) async fn look_up(&self, host: &Host) -> Result<Vec<IpAddr>, Refusal> {
        if self.meant(host).next().is_none() {
            return Err(self.refuse(Refusal::NotGranted, format_args!("a lookup of {host}")));
        }
        let found = self.resolve(host).await?;
        let mut allowed = Vec::new();
        let mut remember = Vec::new();
        for address in &found {
            let ports = self
                .meant(host)
                .filter(|endpoint| admits(endpoint, *address))
                .map(|endpoint| endpoint.port);
            let before = remember.len();
            remember.extend(ports.map(|port| (*address, port)));
            if remember.len() > before {
                allowed.push(*address);
            }
        }
        let allowed = self.some_of(&found, allowed, host)?;
        let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|entry| !remember.contains(entry));
        known.extend(remember);
        let surplus = known.len().saturating_sub(FOUND);
        known.drain(..surplus);
        Ok(allowed)
    }

    /// Whether a socket may connect to this address: a granted literal one, or one that a lookup of this run gave.
    pub(super) fn may_connect(&self, to: SocketAddr) -> Result<(), Refusal> {
        let host = Host::Address(to.ip());
        let mut literal =
            self.meant(&host).filter(|endpoint| covers(endpoint, to.port())).peekable();
        let named = literal.peek().is_some();
        if literal.any(|endpoint| admits(endpoint, to.ip())) {
            return Ok(());
        }
        let known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if known
            .iter()
            .any(|(address, port)| *address == to.ip() && port.is_none_or(|port| port == to.port()))
        {
            return Ok(());
        }
        drop(known);
        let refusal = if named { Refusal::NotPublic } else { Refusal::NotGranted };
        Err(self.refuse(refusal, format_args!("{host} port {}", to.port())))
    }

    async fn resolve(&self, host: &Host) -> Result<Vec<IpAddr>, Refusal> {
        let name = match host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        let lookup = self.outside.resolver().resolve(name, &self.gate);
        let mut found = match tokio::time::timeout(LOOKUP_TIME, lookup).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => return Err(Refusal::Unknown),
            Err(_) => return Err(Refusal::Timeout),
        };
        let mut seen = Vec::new();
        found.retain(|address| {
            !seen.contains(address) && seen.len() < ADDRESSES_OF_A_NAME && {
                seen.push(*address);
                true
            }
        });
        Ok(found)
    }

    /// The allowed addresses, unless none of those found is allowed.
    fn some_of<T>(
        &self,
        found: &[IpAddr],
        allowed: Vec<T>,
        host: &Host,
    ) -> Result<Vec<T>, Refusal> {
        match (found.first(), allowed.is_empty()) {
            (None, _) => Err(Refusal::Unknown),
            (Some(first), true) => {
                Err(self.refuse(Refusal::NotPublic, format_args!("{host} ({first})")))
            }
            (Some(_), false) => Ok(allowed),
        }
    }

    fn meant(&self, host: &Host) -> impl Iterator<Item = &Endpoint> {
        self.reach.network.iter().filter(|endpoint| host.is_meant_by(&endpoint.host))
    }

    fn refuse(&self, refusal: Refusal, what: fmt::Arguments<'_>) -> Refusal {
        self.gate.denied(&format!("network: {what}: {refusal}"));
        refusal
    }
}

/// Why a host cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// No grant covers it.
    #[error("not granted")]
    NotGranted,
    /// It stands for addresses that its grant leaves out.
    #[error(
        "the address is not one of the public internet, and the grant is for public addresses only"
    )]
    NotPublic,
    /// There is no such name.
    #[error("the name has no address")]
    Unknown,
    /// The lookup took too long.
    #[error("the lookup took too long")]
    Timeout,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Names, TestGate};
    use super::*;

    fn endpoint(host: &str, port: Option<u16>, addresses: Addresses) -> Endpoint {
        Endpoint { host: host.to_owned(), port, addresses }
    }

    fn network(endpoints: Vec<Endpoint>, names: &[(&str, &[&str])]) -> (Network, Arc<TestGate>) {
        let gate = TestGate::new();
        let reach = Arc::new(Reach { network: endpoints, ..Reach::default() });
        let outside = Arc::new(Outside::new().unwrap().with_resolver(Arc::new(Names::new(names))));
        (Network::new(reach, gate.clone(), outside), gate)
    }

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn hosts_are_names_or_addresses() {
        assert_eq!(host("Example.ORG."), Host::Name("example.org".to_owned()));
        assert_eq!(host("[::1]"), Host::Address("::1".parse().unwrap()));
        assert_eq!(host("10.0.0.1"), Host::Address("10.0.0.1".parse().unwrap()));
        for wrong in [
            "",
            ".",
            "a..b",
            "a b",
            "user@host",
            "host/path",
            "b\u{fc}cher.de",
            "[example.org]",
            &"a".repeat(64),
        ] {
            assert_eq!(Host::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn patterns_mean_what_they_say() {
        let yes = [
            ("example.org", "example.org"),
            ("EXAMPLE.org", "example.org"),
            ("example.org.", "example.org"),
            ("*.example.org", "a.example.org"),
            ("*.example.org", "a.b.example.org"),
            ("*.Example.org", "a.example.ORG"),
            ("*", "anything.test"),
            ("*", "10.1.2.3"),
            ("10.0.0.1", "10.0.0.1"),
            ("::1", "[::1]"),
            ("[::1]", "::1"),
        ];
        let no = [
            ("example.org", "a.example.org"),
            ("example.org", "example.org.evil.test"),
            ("*.example.org", "example.org"),
            ("*.example.org", "badexample.org"),
            ("*.example.org", "a.example.org.evil.test"),
            ("*.0.0.1", "10.0.0.1"),
            ("10.0.0.1", "10.0.0.2"),
            ("127.0.0.1", "::ffff:127.0.0.1"),
        ];
        for (pattern, name) in yes {
            assert!(host(name).is_meant_by(pattern), "{pattern} means {name}");
        }
        for (pattern, name) in no {
            assert!(!host(name).is_meant_by(pattern), "{pattern} does not mean {name}");
        }
    }

    #[tokio::test]
    async fn a_name_that_is_both_public_and_private_gives_the_public_addresses() {
        let names: &[(&str, &[&str])] =
            &[("both.test", &["10.0.0.1", "1.1.1.1", "::1", "1.1.1.1"])];
        let (net, _) = network(vec![endpoint("both.test", Some(443), Addresses::Public)], names);
        assert_eq!(
            net.addresses(&host("both.test"), 443).await.unwrap(),
            ["1.1.1.1:443".parse().unwrap()]
        );
        assert_eq!(net.addresses(&host("both.test"), 80).await, Err(Refusal::NotGranted));
        assert_eq!(
            net.look_up(&host("both.test")).await.unwrap(),
            ["1.1.1.1".parse::<IpAddr>().unwrap()]
        );
        assert_eq!(net.may_connect("1.1.1.1:443".parse().unwrap()), Ok(()));
        assert_eq!(net.may_connect("1.1.1.1:444".parse().unwrap()), Err(Refusal::NotGranted));
        assert_eq!(net.may_connect("10.0.0.1:443".parse().unwrap()), Err(Refusal::NotGranted));
    }

    #[tokio::test]
    async fn a_name_that_is_only_private_is_refused_and_the_log_says_why() {
        let names: &[(&str, &[&str])] = &[("inner.test", &["10.0.0.1", "fe80::1"])];
        let (net, gate) = network(vec![endpoint("*", None, Addresses::Public)], names);
        assert_eq!(net.addresses(&host("inner.test"), 443).await, Err(Refusal::NotPublic));
        assert!(gate.denials()[0].contains("inner.test (10.0.0.1)"), "{:?}", gate.denials());
        assert_eq!(net.look_up(&host("inner.test")).await, Err(Refusal::NotPublic));
        assert_eq!(net.may_connect("10.0.0.1:443".parse().unwrap()), Err(Refusal::NotPublic));
        let (any, _) = network(vec![endpoint("inner.test", None, Addresses::Any)], names);
        assert_eq!(any.addresses(&host("inner.test"), 1).await.unwrap().len(), 2);
        assert_eq!(any.addresses(&host("missing.test"), 1).await, Err(Refusal::NotGranted));
    }

    #[tokio::test]
    async fn literal_addresses_follow_the_same_rule() {
        let public = vec![
            endpoint("127.0.0.1", Some(80), Addresses::Public),
            endpoint("8.8.8.8", None, Addresses::Public),
        ];
        let (net, _) = network(public, &[]);
        assert_eq!(net.may_connect("127.0.0.1:80".parse().unwrap()), Err(Refusal::NotPublic));
        assert_eq!(net.may_connect("8.8.8.8:53".parse().unwrap()), Ok(()));
        assert_eq!(net.addresses(&host("127.0.0.1"), 80).await, Err(Refusal::NotPublic));
        let (any, _) = network(vec![endpoint("127.0.0.1", Some(80), Addresses::Any)], &[]);
        assert_eq!(any.may_connect("127.0.0.1:80".parse().unwrap()), Ok(()));
        assert_eq!(any.may_connect("127.0.0.2:80".parse().unwrap()), Err(Refusal::NotGranted));
    }

    #[tokio::test]
    async fn the_system_is_asked_on_the_pool() {
        let gate = TestGate::new();
        let shared: Arc<dyn Gate> = gate.clone();
        let found = SystemResolver.resolve("localhost", &shared).await.unwrap();
        assert!(found.iter().all(|address| address.is_loopback()), "{found:?}");
        assert_eq!(gate.blocked.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn an_unknown_name_is_unknown() {
        let (net, _) = network(vec![endpoint("*", None, Addresses::Any)], &[]);
        assert_eq!(net.addresses(&host("missing.test"), 80).await, Err(Refusal::Unknown));
    }
}
