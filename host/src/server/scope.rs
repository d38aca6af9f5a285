//! What a token is good for: profiles and verbs.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What somebody wants to do. None of them brings another along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// See what there is: profiles, plugins, sessions and their events, the tree of work, metrics.
    Read,
    /// Start work: open sessions, send prompts and messages, start side runs.
    Prompt,
    /// Stop work, of every kind and at every level below the host.
    Stop,
    /// Change what the host does: drain, reload, retire, shut down.
    Admin,
}

impl Verb {
    /// All of them.
    pub const ALL: [Verb; 4] = [Verb::Read, Verb::Prompt, Verb::Stop, Verb::Admin];

    /// The name, as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Prompt => "prompt",
            Verb::Stop => "stop",
            Verb::Admin => "admin",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which profiles a token is good for: `"all"`, or a list of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub enum Profiles {
    /// Every one, also those that come later, and what belongs to the host as a whole.
    All,
    /// These, and nothing that belongs to the host as a whole.
    Only(BTreeSet<String>),
}

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// The host as a whole.
    Host,
    /// One profile.
    Profile(&'a str),
}

impl Profiles {
    pub(super) fn cover(&self, target: Target<'_>) -> bool {
        match (self, target) {
            (Profiles::All, _) => true,
            (Profiles::Only(_), Target::Host) => false,
            (Profiles::Only(names), Target::Profile(name)) => names.contains(name),
        }
    }
}

/// How [`Profiles`] is written.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged, expecting = "`profiles` is neither \"all\" nor a list of names")]
enum Written {
    Word(All),
    Names(BTreeSet<String>),
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum All {
    All,
}

impl From<Written> for Profiles {
    fn from(written: Written) -> Profiles {
        match written {
            Written::Word(All::All) => Profiles::All,
            Written::Names(names) => Profiles::Only(names),
        }
    }
}

impl From<Profiles> for Written {
    fn from(profiles: Profiles) -> Written {
        match profiles {
            Profiles::All => Written::Word(All::All),
            Profiles::Only(names) => Written::Names(names),
        }
    }
}
