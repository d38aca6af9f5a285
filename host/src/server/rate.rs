//! How often somebody may ask: a bucket for each principal, and one for each peer.
//!
//! A bucket holds `burst` requests and fills at an even rate. All that is kept of one is the time at which it will be
//! full again, so that a bucket that is full need not be kept at all.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::token::TokenId;

/// The most buckets of one sort. Peers beyond that share one.
const MOST: usize = 16_384;

/// How long it takes at least until the full buckets are looked for again.
const BETWEEN_SWEEPS: Duration = Duration::from_secs(1);

/// The most that a rate can be.
const HIGHEST: u32 = 10_000_000;

/// How often somebody may ask.
///
/// ```toml
/// requests-per-minute = 600        # of one token
/// burst = 100
/// peer-requests-per-minute = 1200  # of one address or local user, whatever their tokens; also without any
/// peer-burst = 200
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RateTable {
    /// Requests of one token in a minute, in the long run.
    #[serde(deserialize_with = "amount")]
    pub requests_per_minute: u32,
    /// How many of these may come at once.
    #[serde(deserialize_with = "amount")]
    pub burst: u32,
    /// Requests of one peer in a minute, in the long run.
    #[serde(deserialize_with = "amount")]
    pub peer_requests_per_minute: u32,
    /// How many of these may come at once.
    #[serde(deserialize_with = "amount")]
    pub peer_burst: u32,
}

impl Default for RateTable {
    fn default() -> RateTable {
        RateTable {
            requests_per_minute: 600,
            burst: 100,
            peer_requests_per_minute: 1200,
            peer_burst: 200,
        }
    }
}

fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let whole = i64::deserialize(deserializer)?;
    match u32::try_from(whole) {
        Ok(amount) if (1..=HIGHEST).contains(&amount) => Ok(amount),
        Ok(_) | Err(_) => {
            Err(D::Error::custom(format!("{whole} is no number of requests; write 1 to {HIGHEST}")))
        }
    }
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// From an address. Of an IPv6 address the first 64 bits count: the rest is the peer's to choose.
    Address(IpAddr),
    /// From a user of this machine, through a Unix socket.
    User(u32),
}

impl Peer {
    /// As whom it is counted.
    pub(super) fn counted(self) -> Peer {
        match self {
            Peer::Address(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
                Some(mapped) => Peer::Address(mapped.into()),
                None => {
                    let network = u128::from(address) & !u128::from(u64::MAX);
                    Peer::Address(Ipv6Addr::from(network).into())
                }
            },
            Peer::Address(IpAddr::V4(_)) | Peer::User(_) => self,
        }
    }
}

/// The buckets of all peers and principals. They are asked in this order: peers before the token is looked at, so that
/// guessing is bounded, too. A look at the health of the host has buckets of its own, as large as those of peers.
pub struct Rates {
    principals: Buckets<TokenId>,
    peers: Buckets<Peer>,
    /// Of those who ask how the host is. Whoever asks for other things too often is still told that it lives.
    health: Buckets<Peer>,
}

/// Somebody asks too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests; try again in {} s", .retry_after.as_secs_f64().ceil())]
pub struct TooMany {
    /// When a request will be taken again.
    pub retry_after: Duration,
}

impl Rates {
    /// Full buckets for everybody.
    pub fn new(table: &RateTable) -> Rates {
        Rates {
            principals: Buckets::new(table.requests_per_minute, table.burst, MOST),
            peers: Buckets::new(table.peer_requests_per_minute, table.peer_burst, MOST),
            health: Buckets::new(table.peer_requests_per_minute, table.peer_burst, MOST),
        }
    }

    /// Takes a request out of the peer's bucket.
    ///
    /// # Errors
    ///
    /// [`TooMany`] when it is empty. Nothing was taken.
    pub fn peer(&self, peer: Peer, now: Instant) -> Result<(), TooMany> {
        self.peers.take(peer.counted(), now)
    }

    /// Takes a look at the health of the host out of the peer's bucket for those.
    ///
    /// # Errors
    ///
    /// [`TooMany`] when it is empty. Nothing was taken.
    pub fn health(&self, peer: Peer, now: Instant) -> Result<(), TooMany> {
        self.health.take(peer.counted(), now)
    }

    /// Takes a request out of the principal's bucket.
    ///
    /// # Errors
    ///
    /// [`TooMany`] when it is empty. Nothing was taken.
    pub fn principal(&self, token: &TokenId, now: Instant) -> Result<(), TooMany> {
        self.principals.take(token.clone(), now)
    }
}

impl fmt::Debug for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rates").finish_non_exhaustive()
    }
}

pub(super) struct Buckets<K> {
    /// How long one request takes to come back.
    interval: Duration,
    /// How long an empty bucket takes to be full.
    whole: Duration,
    most: usize,
    /// The lock protects the buckets; they are only looked up and counted under it.
    state: Mutex<State<K>>,
}

struct State<K> {
    /// When each is full again. One that is not in here is full.
    full_at: HashMap<K, Instant>,
    /// When the one is full that those share for whom there is no room.
    shared_full_at: Option<Instant>,
    swept: Option<Instant>,
}

impl<K: Eq + Hash> Buckets<K> {
    pub(super) fn new(per_minute: u32, burst: u32, most: usize) -> Buckets<K> {
        let interval = Duration::from_secs(60) / per_minute.max(1);
        let state = State { full_at: HashMap::new(), shared_full_at: None, swept: None };
        let whole = interval.saturating_mul(burst.max(1));
        Buckets { interval, whole, most, state: Mutex::new(state) }
    }

    pub(super) fn take(&self, key: K, now: Instant) -> Result<(), TooMany> {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let due = state.swept.is_none_or(|swept| now.duration_since(swept) >= BETWEEN_SWEEPS);
        if state.full_at.len() >= self.most && due && !state.full_at.contains_key(&key) {
            state.full_at.retain(|_, full_at| *full_at > now);
            state.swept = Some(now);
        }
        let has_room = state.full_at.len() < self.most;
        let kept = match state.full_at.get_mut(&key) {
            Some(full_at) => Some(full_at),
            None if has_room => None,
            None => Some(state.shared_full_at.get_or_insert(now)),
        };
        let full_at = kept.as_ref().map_or(now, |full_at| **full_at).max(now);
        let after = full_at + self.interval;
        let wait = after.duration_since(now).saturating_sub(self.whole);
        if !wait.is_zero() {
            return Err(TooMany { retry_after: wait });
        }
        match kept {
            Some(full_at) => *full_at = after,
            None => drop(state.full_at.insert(key, after)),
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.state.lock().unwrap().full_at.len()
    }
}
