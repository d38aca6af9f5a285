//! Who may ask, by their tokens: a rate before anything is believed, then the token, then what it is good for.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use jiff::Timestamp;

use super::file::TokensError;
use super::gate::{Asking, Denied, Gate, Who};
use super::rate::{Peer, RateTable, Rates};
use super::scope::{Target, Verb};
use super::token::Refusal;
use super::tokens::Tokens;

/// Lets in who has a token that is good for what they want, as often as the rates allow.
pub struct TokenGate {
    path: PathBuf,
    tokens: Mutex<Kept>,
    rates: Rates,
}

/// The tokens, and when their file was changed last.
struct Kept {
    tokens: Tokens,
    changed: Option<Version>,
}

/// What is another one whenever the file is: it is never changed in its place, but replaced.
type Version = (u64, u64, SystemTime);

impl TokenGate {
    /// By the tokens of a file. Whoever changes it, with the command `token` for instance, changes who is let in from the
    /// next request on.
    ///
    /// # Errors
    ///
    /// [`TokensError`] when it cannot be read, or when somebody else could read or write it.
    pub fn open(path: impl Into<PathBuf>, rates: &RateTable) -> Result<TokenGate, TokensError> {
        let path = path.into();
        let changed = changed(&path);
        let tokens = Tokens::load(&path)?;
        let kept = Mutex::new(Kept { tokens, changed });
        Ok(TokenGate { path, tokens: kept, rates: Rates::new(rates) })
    }

    /// The tokens as they are in the file now. Where that cannot be read any more nobody is let in.
    fn kept(&self) -> Result<MutexGuard<'_, Kept>, Denied> {
        let mut kept = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let now = changed(&self.path);
        if now != kept.changed {
            kept.tokens.reload().map_err(|error| {
                tracing::error!(%error, "the tokens cannot be read; nobody is let in");
                Denied::Unauthenticated("no token can be checked now".to_owned())
            })?;
            kept.changed = now;
        }
        Ok(kept)
    }
}

fn changed(path: &std::path::Path) -> Option<Version> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.modified().ok()?))
}

impl Gate for TokenGate {
    fn check(&self, asking: &Asking<'_>) -> Result<Who, Denied> {
        self.with_ticket(asking.peer)?;
        let checked = self.kept()?.tokens.check(
            asking.authorization,
            asking.target,
            asking.verb,
            Timestamp::now(),
        );
        let principal = checked.map_err(|refusal| match refusal {
            Refusal::OutOfScope => Denied::Forbidden(refusal.to_string()),
            Refusal::Missing | Refusal::Malformed | Refusal::Unknown | Refusal::Expired => {
                Denied::Unauthenticated(refusal.to_string())
            }
        })?;
        self.rates.principal(&principal.token, Instant::now())?;
        let name = format!("{} ({})", principal.label, principal.token.as_str()).into();
        Ok(Who { name, token: Some(principal.token) })
    }

    fn is_still_good(&self, who: &Who, target: Target<'_>, verb: Verb) -> bool {
        let Some(token) = &who.token else { return true };
        self.kept().is_ok_and(|kept| kept.tokens.allow(token, target, verb, Timestamp::now()))
    }

    fn with_ticket(&self, peer: Option<Peer>) -> Result<(), Denied> {
        peer.map_or(Ok(()), |peer| Ok(self.rates.peer(peer, Instant::now())?))
    }

    fn health(&self, peer: Option<Peer>) -> Result<(), Denied> {
        peer.map_or(Ok(()), |peer| Ok(self.rates.health(peer, Instant::now())?))
    }

    fn authenticates(&self) -> bool {
        true
    }
}

impl fmt::Debug for TokenGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenGate").field("path", &self.path).finish_non_exhaustive()
    }
}
