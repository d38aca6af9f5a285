//! The places of a listener: how many connections there may be, and how many of them one peer may hold.
//!
//! 1. One peer holds at most its share.
//! 2. The last places are for peers that hold none, so that whoever holds many does not keep out who comes to stop something.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::rate::Peer;

/// The part of the places that is for peers that hold none: one in so many.
const KEPT: usize = 8;

/// Who holds connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// An address, as rates count it.
    Address(IpAddr),
    /// A process of this machine. Users are told apart by who may open the socket.
    Process(i32),
    /// Somebody of whom the system does not say it.
    Unknown,
}

impl Holder {
    pub(super) fn at(address: IpAddr) -> Holder {
        match Peer::Address(address).counted() {
            Peer::Address(address) => Holder::Address(address),
            Peer::User(_) => Holder::Unknown,
        }
    }
}

/// The places of one listener.
#[derive(Debug)]
pub(super) struct Places {
    room: Arc<Semaphore>,
    most: usize,
    share: usize,
    /// The lock protects the counts; they are only looked up and counted under it.
    held: Mutex<HashMap<Holder, usize>>,
}

/// A place that is held until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    holder: Holder,
    /// Given back after the count of its holder.
    _room: OwnedSemaphorePermit,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All are taken, or all that are not kept for others.
    Full,
    /// The peer has its share.
    Share,
}

impl Places {
    pub(super) fn new(most: usize, share: usize) -> Arc<Places> {
        let most = most.clamp(1, 1 << 20);
        let (room, held) = (Arc::new(Semaphore::new(most)), Mutex::default());
        Arc::new(Places { room, most, share: share.clamp(1, most), held })
    }

    pub(super) fn take(self: &Arc<Places>, holder: Holder) -> Result<Place, NoPlace> {
        let mut held = self.held();
        let has = held.get(&holder).copied().unwrap_or(0);
        let kept = if has == 0 { 0 } else { self.most / KEPT };
        let left = self.room.available_permits();
        if left > 0 && has >= self.share {
            return Err(NoPlace::Share);
        }
        if left <= kept {
            return Err(NoPlace::Full);
        }
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(|_| NoPlace::Full)?;
        held.insert(holder, has + 1);
        Ok(Place { places: Arc::clone(self), holder, _room: room })
    }

    /// How many are held.
    pub(super) fn taken(&self) -> usize {
        self.most - self.room.available_permits()
    }

    /// Waits until none is held.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(super) async fn empty(&self) {
        let all = u32::try_from(self.most).unwrap_or(u32::MAX);
        drop(self.room.acquire_many(all).await);
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Holder, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.places.held();
        match held.get_mut(&self.holder) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(held.remove(&self.holder)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_holds_its_share_and_the_last_places_are_for_those_who_hold_none() {
        let places = Places::new(16, 12);
        let (greedy, other) = (Holder::Process(1), Holder::Process(2));
        let mut held: Vec<Place> = (0..12).map(|_| places.take(greedy).unwrap()).collect();
        assert_eq!(places.take(greedy).unwrap_err(), NoPlace::Share);
        held.extend([places.take(other).unwrap(), places.take(other).unwrap()]);
        // Two are left, for peers that have none.
        assert_eq!(places.take(other).unwrap_err(), NoPlace::Full);
        held.extend([3, 4].map(|id| places.take(Holder::Process(id)).unwrap()));
        assert_eq!(places.take(Holder::Process(5)).unwrap_err(), NoPlace::Full);
        assert_eq!(places.taken(), 16);
        held.drain(11..);
        assert_eq!(places.taken(), 11);
        held.push(places.take(greedy).unwrap());
        assert_eq!(places.take(greedy).unwrap_err(), NoPlace::Share);
        drop(held);
        assert_eq!((places.taken(), places.held().len()), (0, 0));
    }

    #[test]
    fn there_is_a_place_for_somebody_however_few_there_are() {
        for most in 0..9 {
            let places = Places::new(most, 0);
            let place = places.take(Holder::Unknown).unwrap();
            let why = if most < 2 { NoPlace::Full } else { NoPlace::Share };
            assert_eq!(places.take(Holder::Unknown).unwrap_err(), why);
            drop(place);
            assert!(places.take(Holder::Unknown).is_ok());
        }
    }

    #[test]
    fn addresses_of_one_network_are_one_peer() {
        let at = |text: &str| Holder::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::2:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
    }
}
