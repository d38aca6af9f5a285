//! How far a worker has come, for those who hear of its run when it is gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is known of one worker. Clones are of the same one.
#[derive(Debug, Clone, Default)]
pub(in crate::sandbox) struct Fate {
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Its guest may have executed something.
    begun: bool,
    /// It has said how its run ended.
    told: bool,
    /// How the process ended, in words.
    gone: Option<String>,
}

impl Fate {
    pub(super) fn begins(&self) {
        self.lock().begun = true;
    }

    pub(super) fn tells(&self) {
        self.lock().told = true;
    }

    /// The process has been reaped. The first words stay.
    pub(super) fn goes(&self, words: String) {
        self.lock().gone.get_or_insert(words);
    }

    pub(super) fn has_begun(&self) -> bool {
        self.lock().begun
    }

    pub(super) fn has_told(&self) -> bool {
        self.lock().told
    }

    /// How the process ended.
    pub(super) fn words(&self) -> String {
        self.lock().gone.clone().unwrap_or_else(|| "its process is gone".to_owned())
    }

    /// How the process ended, if its guest had begun and it left no word about the end of the run (M4).
    pub(in crate::sandbox) fn lost(&self) -> Option<String> {
        let lost = {
            let known = self.lock();
            known.begun && !known.told
        };
        lost.then(|| self.words())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
