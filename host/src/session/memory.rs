//! The small key-value memory of a session, with bounds.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::message::{Failure, FailureCode};

const MOST_KEY: usize = 256;
const MOST_VALUE: usize = 64 << 10;
const MOST_ENTRIES: usize = 1_024;
const MOST_BYTES: usize = 4 << 20;

/// What the agents of a session remember.
#[derive(Debug, Default)]
pub(super) struct Memory {
    entries: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl Memory {
    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.lock().get(key).cloned()
    }

    /// The memory as it was written down.
    pub(super) fn restored(entries: impl IntoIterator<Item = (String, Vec<u8>)>) -> Memory {
        Memory { entries: Mutex::new(entries.into_iter().collect()) }
    }

    /// Another memory with the same in it.
    pub(super) fn copied(&self) -> Memory {
        Memory { entries: Mutex::new(self.lock().clone()) }
    }

    /// Sets a value. `record` hears of it in the order in which values are set.
    pub(super) fn set(
        &self,
        key: &str,
        value: Vec<u8>,
        record: impl FnOnce(&str, &[u8]),
    ) -> Result<(), Failure> {
        let too_large = |what: String| Err(Failure::new(FailureCode::TooLarge, what));
        if key.is_empty() || key.len() > MOST_KEY {
            return too_large(format!(
                "a key of the memory has from 1 to {MOST_KEY} bytes, not {}",
                key.len()
            ));
        }
        if value.len() > MOST_VALUE {
            return too_large(format!(
                "a value of the memory has at most {MOST_VALUE} bytes, not {}",
                value.len()
            ));
        }
        let mut entries = self.lock();
        let old = entries.get(key).map_or(0, |old| key.len() + old.len());
        let bytes: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        let full = !entries.contains_key(key) && entries.len() >= MOST_ENTRIES;
        if full || bytes - old + key.len() + value.len() > MOST_BYTES {
            return too_large(format!(
                "the memory of the session is full: {MOST_ENTRIES} keys, {MOST_BYTES} bytes; delete something first"
            ));
        }
        record(key, &value);
        entries.insert(key.to_owned(), value);
        Ok(())
    }

    /// Takes a value out. `record` hears of it if there was one.
    pub(super) fn delete(&self, key: &str, record: impl FnOnce()) {
        let mut entries = self.lock();
        if entries.remove(key).is_some() {
            record();
        }
    }

    pub(super) fn keys(&self, prefix: &str) -> Vec<String> {
        let entries = self.lock();
        let from = entries
            .range::<str, _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
        from.map(|(key, _)| key).take_while(|key| key.starts_with(prefix)).cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(_: &str, _: &[u8]) {}

    #[test]
    fn the_memory_keeps_what_fits_and_says_what_does_not() {
        let memory = Memory::default();
        assert!(memory.set("", vec![], silent).is_err());
        assert!(memory.set(&"k".repeat(257), vec![], silent).is_err());
        assert!(memory.set("k", vec![0; MOST_VALUE + 1], silent).is_err());
        memory.set("b/2", vec![2], silent).unwrap();
        memory.set("b/1", vec![1], silent).unwrap();
        memory.set("c", vec![3], silent).unwrap();
        assert_eq!(memory.keys("b/"), ["b/1", "b/2"]);
        assert_eq!(memory.get("b/1"), Some(vec![1]));
        memory.delete("b/1", || {});
        assert_eq!(memory.get("b/1"), None);
    }

    #[test]
    fn a_full_memory_still_takes_a_new_value_for_an_old_key() {
        let memory = Memory::default();
        for n in 0..63 {
            memory.set(&format!("{n:03}"), vec![0; MOST_VALUE], silent).unwrap();
        }
        assert!(memory.set("one more", vec![0; MOST_VALUE], silent).is_err());
        memory.set("000", vec![1; MOST_VALUE], silent).unwrap();
        assert_eq!(memory.get("000"), Some(vec![1; MOST_VALUE]));
    }
}
