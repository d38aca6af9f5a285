//! What a plugin may touch: what it asks for, as far as an operator gives it, under the ceilings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::configuration::{Configuration, Granted};
use super::hosts::{self, HostEntry};
use super::limits::shown_limit;
use super::manifest::{Manifest, Requested, RequestedMount};
use super::names::{Name, SecretName, Variable};
use super::patterns::Patterns;
use super::secrets::SecretSource;
use super::settings::Settings;
use crate::sandbox::{Access, Addresses, Directory, Endpoint, LimitKind, Limits, Reach, Share};

/// Entries of a list that a finding shows.
const SHOWN: usize = 8;

/// How an operator came to run a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing<'a> {
    /// It was found in a folder. It is given what the configuration says and nothing else.
    Found,
    /// It came with the command, or was named on the command line. It is also given these directories (each
    /// in place of one of the same name in the configuration) and, where the configuration does not say
    /// otherwise, every tool, model and agent: those act under grants of their own.
    Named {
        /// The directories of the command line.
        directories: &'a [Directory],
    },
}

/// What an operator gives to one plugin. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// Directories.
    pub directories: Vec<Directory>,
    /// Hosts to connect to.
    pub network: Vec<Endpoint>,
    /// Environment variables.
    pub environment: BTreeSet<Variable>,
    /// Secrets, and where each is kept.
    pub secrets: BTreeMap<SecretName, SecretSource>,
    /// Tools.
    pub tools: Patterns,
    /// Models.
    pub models: Patterns,
    /// Agents to hand tasks to.
    pub delegation: Patterns,
    /// Configuration that goes before that of the manifest.
    pub configuration: Settings,
}

impl Given {
    /// What a configuration and a command line give to the plugin of that name.
    pub fn new(configuration: &Configuration, name: &Name, standing: Standing<'_>) -> Given {
        let table = configuration.plugins.get(name).cloned().unwrap_or_default();
        let Granted { directories, network, environment, secrets, tools, models, delegation } =
            table.grants;
        let (named, unsaid) = match standing {
            Standing::Found => (&[][..], Patterns::default()),
            Standing::Named { directories } => (directories, Patterns::any()),
        };
        let configured = directories
            .into_iter()
            .map(|given| Directory {
                mount: given.mount.guest_path(),
                path: given.path,
                access: given.access,
            })
            .filter(|given| named.iter().all(|named| named.mount != given.mount));
        Given {
            directories: named.iter().cloned().chain(configured).collect(),
            network: network.iter().map(HostEntry::endpoint).collect(),
            environment: environment.into_iter().collect(),
            secrets,
            tools: tools.unwrap_or_else(|| unsaid.clone()),
            models: models.unwrap_or_else(|| unsaid.clone()),
            delegation: delegation.unwrap_or(unsaid),
            configuration: table.configuration,
        }
    }
}

/// What a plugin may touch and use in the end: never more than it asked for, never more than it was given.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// Directories.
    pub directories: Vec<Directory>,
    /// Hosts to connect to.
    pub network: Vec<Endpoint>,
    /// Environment variables, by name: their values are read when a run starts.
    pub environment: Vec<Variable>,
    /// Secrets, and where each is kept: their values are read when a tool asks.
    pub secrets: BTreeMap<SecretName, SecretSource>,
    /// Tools.
    pub tools: Patterns,
    /// Models.
    pub models: Patterns,
    /// Agents to hand tasks to.
    pub delegation: Patterns,
    /// Limits of each run.
    pub limits: Limits,
    /// What the guest reads as its configuration.
    pub configuration: Settings,
}

impl Effective {
    /// What the sandbox opens for a run. `environment` looks a variable up; those that are not set stay unset.
    pub fn reach(&self, environment: &dyn Fn(&str) -> Option<String>) -> Reach {
        let set =
            |name: &Variable| environment(name.as_str()).map(|value| (name.to_string(), value));
        Reach {
            share: Share::default(),
            directories: self.directories.clone(),
            network: self.network.clone(),
            environment: self.environment.iter().filter_map(set).collect(),
        }
    }
}

impl Effective {
    /// The part of these grants that a run with those of `parent` can pass on: permissions only narrow (A10). What the
    /// guest reads as its configuration is its own.
    #[must_use]
    pub fn within(&self, parent: &Effective) -> Effective {
        let directories = self.directories.iter().filter_map(|own| {
            let same = |above: &&Directory| above.mount == own.mount && above.path == own.path;
            let access = parent.directories.iter().find(same)?.access.min(own.access);
            Some(Directory { access, ..own.clone() })
        });
        let mut network: Vec<Endpoint> = Vec::new();
        for own in &self.network {
            for part in parent.network.iter().filter_map(|above| hosts::meet(own, above)) {
                if !network.contains(&part) {
                    network.push(part);
                }
            }
        }
        let secret = |(name, source): &(&SecretName, &SecretSource)| {
            parent.secrets.get(*name) == Some(*source)
        };
        let secrets = self.secrets.iter().filter(secret);
        Effective {
            directories: directories.collect(),
            network,
            environment: self
                .environment
                .iter()
                .filter(|name| parent.environment.contains(name))
                .cloned()
                .collect(),
            secrets: secrets.map(|(name, source)| (name.clone(), source.clone())).collect(),
            tools: self.tools.meet(&parent.tools),
            models: self.models.meet(&parent.models),
            delegation: self.delegation.meet(&parent.delegation),
            limits: self.limits.under(&parent.limits),
            configuration: self.configuration.clone(),
        }
    }
}

/// The effective grants, and what became of each request.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The grants.
    pub effective: Effective,
    /// One for each request, and one for each gift that nobody asked for.
    pub findings: Vec<Finding>,
}

/// What became of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing it is about.
    pub subject: Subject,
    /// The thing, as people read it.
    pub request: String,
    /// What became of it.
    pub verdict: Verdict,
}

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subject {
    /// A directory.
    Directory,
    /// A host.
    Network,
    /// An environment variable.
    Environment,
    /// A secret.
    Secret,
    /// A tool, or several.
    Tools,
    /// A model, or several.
    Models,
    /// An agent to hand tasks to, or several.
    Delegation,
    /// A limit.
    Limit,
    /// A key of the configuration.
    Configuration,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All of it was given.
    Granted,
    /// A part was given: which, and why not all.
    Narrowed(String),
    /// Nothing was given: why, and what to do.
    Denied(String),
    /// It was given, but the manifest does not ask for it; so it is not used.
    Unasked,
}

/// Decides what a plugin may touch. Reads and opens nothing.
pub fn decide(manifest: &Manifest, given: &Given, ceiling: &Limits) -> Decision {
    let asked = &manifest.grants;
    let mut findings = Findings(Vec::new());
    let wanted = manifest.limits.over(ceiling);
    let limits = wanted.under(ceiling);
    let effective = Effective {
        directories: directories(asked, given, &mut findings),
        network: network(asked, given, &mut findings),
        environment: environment(asked, given, &mut findings),
        secrets: secrets(asked, given, &mut findings),
        tools: patterns(Subject::Tools, &asked.tools, &given.tools, &mut findings),
        models: patterns(Subject::Models, &asked.models, &given.models, &mut findings),
        delegation: patterns(
            Subject::Delegation,
            &asked.delegation,
            &given.delegation,
            &mut findings,
        ),
        limits,
        configuration: manifest.configuration.under(&given.configuration),
    };
    for kind in manifest.limits.kinds() {
        findings.limit(kind, &wanted, &effective.limits);
    }
    for (key, _) in
        given.configuration.iter().filter(|(key, _)| manifest.configuration.get(key).is_none())
    {
        findings.add(Subject::Configuration, super::text::printable(key), Verdict::Unasked);
    }
    Decision { effective, findings: findings.0 }
}

fn directories(asked: &Requested, given: &Given, findings: &mut Findings) -> Vec<Directory> {
    let access_of = |mount: &RequestedMount| {
        asked
            .directories
            .iter()
            .find(|request| request.mount == *mount)
            .map(|request| request.access)
    };
    let rest = access_of(&RequestedMount::Any);
    let named: BTreeMap<String, Access> = asked
        .directories
        .iter()
        .filter_map(|request| match &request.mount {
            RequestedMount::Any => None,
            RequestedMount::Named(mount) => Some((mount.guest_path(), request.access)),
        })
        .collect();
    // A request by name goes before the one for all: a plugin may ask to write everywhere but there.
    let wanted = |directory: &Directory| named.get(&directory.mount).copied().or(rest);
    let effective: Vec<Directory> = given
        .directories
        .iter()
        .filter_map(|directory| {
            let access = wanted(directory)?.min(directory.access);
            Some(Directory { access, ..directory.clone() })
        })
        .collect();

    for request in &asked.directories {
        let matched: Vec<&Directory> = given
            .directories
            .iter()
            .filter(|directory| match &request.mount {
                RequestedMount::Any => !named.contains_key(&directory.mount),
                RequestedMount::Named(mount) => mount.guest_path() == directory.mount,
            })
            .collect();
        let less: Vec<&str> = matched
            .iter()
            .filter(|directory| directory.access < request.access)
            .map(|directory| directory.mount.as_str())
            .collect();
        let verdict = match (matched.is_empty(), less.is_empty()) {
            (true, _) => Verdict::Denied(
                "no such directory is given; use --dir NAME=PATH or the configuration".to_owned(),
            ),
            (false, true) => Verdict::Granted,
            (false, false) => Verdict::Narrowed(format!("given for reading only: {}", list(&less))),
        };
        let access = match request.access {
            Access::Read => "read",
            Access::ReadWrite => "read-write",
        };
        findings.add(Subject::Directory, format!("{} ({access})", request.mount), verdict);
    }
    for directory in given.directories.iter().filter(|directory| wanted(directory).is_none()) {
        findings.add(Subject::Directory, directory.mount.clone(), Verdict::Unasked);
    }
    effective
}

fn network(asked: &Requested, given: &Given, findings: &mut Findings) -> Vec<Endpoint> {
    let mut effective: Vec<Endpoint> = Vec::new();
    let mut used = BTreeSet::new();
    for request in asked.network.iter().map(HostEntry::endpoint) {
        let mut parts = Vec::new();
        for (index, gift) in given.network.iter().enumerate() {
            if let Some(part) = hosts::meet(&request, gift) {
                used.insert(index);
                parts.push(part);
            }
        }
        let words: Vec<String> = parts.iter().map(hosts::words).collect();
        let verdict = if parts.is_empty() {
            Verdict::Denied("the operator does not give this host".to_owned())
        } else if parts.contains(&request) {
            Verdict::Granted
        } else {
            let public = parts.iter().all(|part| part.addresses == Addresses::Public);
            let why = match request.addresses {
                Addresses::Any if public => " (public addresses only)",
                Addresses::Any | Addresses::Public => "",
            };
            Verdict::Narrowed(format!("given only: {}{why}", list(&words)))
        };
        findings.add(Subject::Network, hosts::words(&request), verdict);
        for part in parts {
            if !effective.contains(&part) {
                effective.push(part);
            }
        }
    }
    for (_, gift) in given.network.iter().enumerate().filter(|(index, _)| !used.contains(index)) {
        findings.add(Subject::Network, hosts::words(gift), Verdict::Unasked);
    }
    effective
}

fn environment(asked: &Requested, given: &Given, findings: &mut Findings) -> Vec<Variable> {
    let asked: BTreeSet<&Variable> = asked.environment.iter().collect();
    for name in &asked {
        let verdict = match given.environment.contains(*name) {
            true => Verdict::Granted,
            false => Verdict::Denied("the operator does not give this variable".to_owned()),
        };
        findings.add(Subject::Environment, name.to_string(), verdict);
    }
    for name in given.environment.iter().filter(|name| !asked.contains(name)) {
        findings.add(Subject::Environment, name.to_string(), Verdict::Unasked);
    }
    given.environment.iter().filter(|name| asked.contains(name)).cloned().collect()
}

fn secrets(
    asked: &Requested,
    given: &Given,
    findings: &mut Findings,
) -> BTreeMap<SecretName, SecretSource> {
    let asked: BTreeSet<&SecretName> = asked.secrets.iter().collect();
    for name in &asked {
        let verdict = match given.secrets.contains_key(*name) {
            true => Verdict::Granted,
            false => Verdict::Denied("the operator does not give this secret".to_owned()),
        };
        findings.add(Subject::Secret, name.to_string(), verdict);
    }
    for name in given.secrets.keys().filter(|name| !asked.contains(name)) {
        findings.add(Subject::Secret, name.to_string(), Verdict::Unasked);
    }
    let both = given.secrets.iter().filter(|(name, _)| asked.contains(name));
    both.map(|(name, source)| (name.clone(), source.clone())).collect()
}

fn patterns(
    subject: Subject,
    asked: &Patterns,
    given: &Patterns,
    findings: &mut Findings,
) -> Patterns {
    for pattern in asked.iter() {
        let parts = given.part_of(pattern);
        let verdict = if parts.is_empty() {
            Verdict::Denied("the operator gives none of these".to_owned())
        } else if parts.contains(pattern) {
            Verdict::Granted
        } else {
            let words: Vec<String> = parts.iter().map(ToString::to_string).collect();
            Verdict::Narrowed(format!("given only: {}", list(&words)))
        };
        findings.add(subject, pattern.to_string(), verdict);
    }
    asked.meet(given)
}

fn list<S: AsRef<str>>(words: &[S]) -> String {
    let first: Vec<&str> = words.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match words.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{} and {more} more", first.join("; ")),
        Some(_) | None => first.join("; "),
    }
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, subject: Subject, request: String, verdict: Verdict) {
        self.0.push(Finding { subject, request, verdict });
    }

    fn limit(&mut self, kind: LimitKind, wanted: &Limits, effective: &Limits) {
        let (wanted, effective) = (shown_limit(wanted, kind), shown_limit(effective, kind));
        let verdict = match wanted == effective {
            true => Verdict::Granted,
            false => Verdict::Narrowed(format!("the operator's ceiling is {effective}")),
        };
        self.add(Subject::Limit, format!("{kind} = {wanted}"), verdict);
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Subject::Directory => "directory",
            Subject::Network => "network",
            Subject::Environment => "environment",
            Subject::Secret => "secret",
            Subject::Tools => "tools",
            Subject::Models => "models",
            Subject::Delegation => "delegation",
            Subject::Limit => "limit",
            Subject::Configuration => "configuration",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Granted => f.write_str("granted"),
            Verdict::Narrowed(why) => write!(f, "narrowed: {why}"),
            Verdict::Denied(why) => write!(f, "denied: {why}"),
            Verdict::Unasked => f.write_str("given, but not in the manifest"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.subject, self.request, self.verdict)
    }
}
