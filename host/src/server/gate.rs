//! Who may ask: the one place that lets a request in.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::rate::{Peer, RateTable, Rates, TooMany};
use super::scope::{Target, Verb};
use super::token::TokenId;

/// Decides about each request before anything else of it is read.
pub trait Gate: Send + Sync + 'static {
    /// Who asks, if they may.
    ///
    /// # Errors
    ///
    /// [`Denied`] when they may not.
    fn check(&self, asking: &Asking<'_>) -> Result<Who, Denied>;

    /// Whether somebody who was let in once would be let in for that now. What goes on for long, as a stream of events does, asks
    /// every second, so this costs little; and it counts for no rate.
    fn is_still_good(&self, who: &Who, target: Target<'_>, verb: Verb) -> bool;

    /// Whether that peer may ask now with a ticket. Asked before anything of the ticket is looked at, so that guessing is
    /// bounded. What the ticket is good for is not a matter of the gate.
    ///
    /// # Errors
    ///
    /// [`Denied`] when it may not.
    fn with_ticket(&self, peer: Option<Peer>) -> Result<(), Denied>;

    /// Whether a peer may ask once more whether the host lives or takes work. Nobody has to say who they are for that, and it
    /// needs no room among the requests: this is all that bounds it.
    ///
    /// # Errors
    ///
    /// [`Denied::TooMany`] when it asks too often.
    fn health(&self, peer: Option<Peer>) -> Result<(), Denied>;

    /// Whether a request needs more than a connection. A listener beyond this machine needs such a gate.
    fn authenticates(&self) -> bool;
}

/// What a request shows of itself.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    /// Where it comes from; none for one that comes through no socket.
    pub peer: Option<Peer>,
    /// The value of its header `Authorization`.
    pub authorization: Option<&'a [u8]>,
    /// What it is about.
    pub target: Target<'a>,
    /// What it wants.
    pub verb: Verb,
}

impl fmt::Debug for Asking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking")
            .field("target", &self.target)
            .field("verb", &self.verb)
            .finish_non_exhaustive()
    }
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// As stops name their issuer.
    pub name: Arc<str>,
    /// The token that lets them in, or that made their ticket; none for whoever needs no token.
    pub token: Option<TokenId>,
}

impl Who {
    /// Somebody who needs no token.
    pub fn named(name: &str) -> Who {
        Who { name: name.into(), token: None }
    }
}

/// Why a request is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// It does not say who asks, or that is not believed.
    #[error("{0}")]
    Unauthenticated(String),
    /// Who asks may not do that.
    #[error("{0}")]
    Forbidden(String),
    /// They ask too often.
    #[error("too many requests; try again in {} s", .retry_after.as_secs_f64().ceil())]
    TooMany {
        /// When a request will be taken again.
        retry_after: Duration,
    },
}

impl From<TooMany> for Denied {
    fn from(error: TooMany) -> Denied {
        Denied::TooMany { retry_after: error.retry_after }
    }
}

/// Lets everybody in who can connect: for a Unix socket, whose file says who may.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalUser;

/// Lets everybody in who can connect, as often as the rates allow: for an address of this machine without tokens.
#[derive(Debug)]
pub struct RatedUser {
    rates: Rates,
}

impl RatedUser {
    /// As often as these rates allow one peer.
    pub fn new(rates: &RateTable) -> RatedUser {
        RatedUser { rates: Rates::new(rates) }
    }
}

impl Gate for RatedUser {
    fn check(&self, asking: &Asking<'_>) -> Result<Who, Denied> {
        self.with_ticket(asking.peer)?;
        Ok(Who::named("user"))
    }

    fn is_still_good(&self, _who: &Who, _target: Target<'_>, _verb: Verb) -> bool {
        true
    }

    fn with_ticket(&self, peer: Option<Peer>) -> Result<(), Denied> {
        peer.map_or(Ok(()), |peer| Ok(self.rates.peer(peer, Instant::now())?))
    }

    fn health(&self, peer: Option<Peer>) -> Result<(), Denied> {
        peer.map_or(Ok(()), |peer| Ok(self.rates.health(peer, Instant::now())?))
    }

    fn authenticates(&self) -> bool {
        false
    }
}

impl Gate for LocalUser {
    fn check(&self, _asking: &Asking<'_>) -> Result<Who, Denied> {
        Ok(Who::named("user"))
    }

    fn is_still_good(&self, _who: &Who, _target: Target<'_>, _verb: Verb) -> bool {
        true
    }

    fn with_ticket(&self, _peer: Option<Peer>) -> Result<(), Denied> {
        Ok(())
    }

    fn health(&self, _peer: Option<Peer>) -> Result<(), Denied> {
        Ok(())
    }

    fn authenticates(&self) -> bool {
        false
    }
}
