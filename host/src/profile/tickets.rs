//! Tickets: what lets a local client in once, for one purpose, for a short while (P8).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// How long a ticket is good for at most.
pub const TICKET_LIFE: Duration = Duration::from_secs(30);

/// How many unused tickets a profile has at one time.
pub const MOST_TICKETS: usize = 64;

/// How a ticket begins, so that one that has got into a log can be found.
const PREFIX: &str = "crt_";

/// The tickets of one served profile. One made for another profile is unknown here.
pub struct Tickets {
    now: Arc<dyn Fn() -> Instant + Send + Sync>,
    state: Mutex<State>,
}

/// Protected by one lock, so that a ticket is either redeemed or revoked.
#[derive(Default)]
struct State {
    live: Vec<Live>,
    revoked: bool,
}

/// A ticket that was given out. Of the ticket itself only the hash is kept.
struct Live {
    hash: [u8; 32],
    purpose: Arc<str>,
    giver: Arc<str>,
    until: Instant,
}

/// A ticket, as its client has it. It is not kept and not shown.
pub struct Ticket(String);

impl Tickets {
    /// None yet. `now` is the clock by which they run out.
    pub fn new(now: impl Fn() -> Instant + Send + Sync + 'static) -> Tickets {
        Tickets { now: Arc::new(now), state: Mutex::new(State::default()) }
    }

    /// Makes a ticket for one purpose, that is good for so long, and for [`TICKET_LIFE`] at most. What stands for its giver is
    /// given back when it is used.
    ///
    /// # Errors
    ///
    /// [`NoTicket`] when the profile is not served, when too many are unused, or when the system gives no random bytes.
    pub fn issue(&self, purpose: &str, giver: &str, life: Duration) -> Result<Ticket, NoTicket> {
        let mut random = [0_u8; 32];
        getrandom::fill(&mut random).map_err(|error| NoTicket::NoRandomness(error.to_string()))?;
        let ticket = Ticket(
            random.iter().fold(PREFIX.to_owned(), |text, byte| text + &format!("{byte:02x}")),
        );
        let now = (self.now)();
        let mut state = self.lock();
        if state.revoked {
            return Err(NoTicket::NotServed);
        }
        state.forget(now);
        if state.live.len() >= MOST_TICKETS {
            let next = state.live.iter().map(|live| live.until).min().unwrap_or(now);
            return Err(NoTicket::TooMany { retry_after: next - now });
        }
        let (hash, until) = (hash(ticket.reveal()), now + life.min(TICKET_LIFE));
        state.live.push(Live { hash, purpose: purpose.into(), giver: giver.into(), until });
        Ok(ticket)
    }

    /// Uses a ticket up, whether or not it is good for that purpose. How long it takes does not depend on how much of
    /// `text` is right. Returns what stands for whoever had it made.
    ///
    /// # Errors
    ///
    /// [`BadTicket`] when it is not a ticket of this profile, not for that purpose, used, run out or revoked. It does not
    /// say which, because whoever asks may be guessing.
    pub fn redeem(&self, text: &str, purpose: &str) -> Result<Arc<str>, BadTicket> {
        let (asked, now) = (hash(text), (self.now)());
        let mut state = self.lock();
        state.forget(now);
        let mut found = u32::MAX;
        for (at, live) in (0_u32..).zip(&state.live) {
            let same: Choice = live.hash.ct_eq(&asked);
            found.conditional_assign(&at, same);
        }
        let Some(at) = usize::try_from(found).ok().filter(|at| *at < state.live.len()) else {
            return Err(BadTicket);
        };
        let live = state.live.swap_remove(at);
        if &*live.purpose == purpose { Ok(live.giver) } else { Err(BadTicket) }
    }

    /// No ticket is good any more, and none will be made. Returns how many were unused; 0 when this was done before.
    pub fn revoke(&self) -> usize {
        let now = (self.now)();
        let mut state = self.lock();
        state.revoked = true;
        std::mem::take(&mut state.live).iter().filter(|live| now < live.until).count()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets those that have run out.
    fn forget(&mut self, now: Instant) {
        self.live.retain(|live| now < live.until);
    }
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

impl Ticket {
    /// The text that the client shows.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(not shown)")
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Tickets")
            .field("live", &state.live.len())
            .field("revoked", &state.revoked)
            .finish()
    }
}

/// Why no ticket was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoTicket {
    /// The profile is not served, or is being retired.
    #[error("the profile is not served, so there are no tickets for it")]
    NotServed,
    /// Too many tickets are unused. They run out by themselves.
    #[error(
        "{MOST_TICKETS} tickets of this profile are unused; use them, or wait until they have run out"
    )]
    TooMany {
        /// When the next of them runs out.
        retry_after: Duration,
    },
    /// The system gave no random bytes.
    #[error("the system gives no random bytes: {0}")]
    NoRandomness(String),
}

/// The ticket is not good here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this ticket is not good here; ask for a new one")]
pub struct BadTicket;
