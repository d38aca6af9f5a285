//! Listing a directory, some hundred entries for each call on the pool, however many there are.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use cap_std::fs::ReadDir;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry};

use super::super::gate::{FilePermit, Gate, in_pool};
use super::attributes;
use super::descriptor::OpenDirectory;

/// Entries that are read in one call.
const BATCH: usize = 512;

/// A directory that is being listed.
pub(super) struct Listing {
    /// None when all has been read, or reading failed.
    rest: Option<Box<ReadDir>>,
    /// Read, but not given to the guest yet.
    batch: VecDeque<DirectoryEntry>,
    /// Given to the guest after the batch.
    error: Option<io::Error>,
    #[expect(dead_code, reason = "held for its drop")]
    permit: FilePermit,
}

impl Listing {
    /// Begins to list a directory. Blocks.
    pub(super) fn start(directory: &OpenDirectory, permit: FilePermit) -> io::Result<Listing> {
        let rest = Some(Box::new(directory.dir.entries()?));
        let mut listing = Listing { rest, batch: VecDeque::new(), error: None, permit };
        listing.fill();
        Ok(listing)
    }

    /// The next entry, from the batch or from the next one.
    pub(super) async fn next(
        &mut self,
        gate: &Arc<dyn Gate>,
    ) -> io::Result<Option<DirectoryEntry>> {
        if self.batch.is_empty()
            && let Some(rest) = self.rest.take()
        {
            let (rest, batch, error) =
                in_pool(gate, "lists a directory", move || Ok(read(rest))).await?;
            (self.rest, self.batch, self.error) = (rest, batch, error);
        }
        match (self.batch.pop_front(), self.error.take()) {
            (Some(entry), error) => {
                self.error = error;
                Ok(Some(entry))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    fn fill(&mut self) {
        if let Some(rest) = self.rest.take() {
            (self.rest, self.batch, self.error) = read(rest);
        }
    }
}

fn read(
    mut rest: Box<ReadDir>,
) -> (Option<Box<ReadDir>>, VecDeque<DirectoryEntry>, Option<io::Error>) {
    let mut batch = VecDeque::with_capacity(BATCH);
    while batch.len() < BATCH {
        match rest.next() {
            None => return (None, batch, None),
            Some(Err(error)) => return (None, batch, Some(error)),
            Some(Ok(entry)) => {
                let mut type_ = entry.file_type().map_or(DescriptorType::Unknown, attributes::kind);
                if type_ == DescriptorType::Unknown {
                    // This file system does not say in its listing; one that is gone again stays unknown.
                    type_ = entry
                        .metadata()
                        .map_or(type_, |metadata| attributes::kind(metadata.file_type()));
                }
                // A name that is not Unicode is shown with replacement characters rather than ending the listing: it cannot
                // be opened under that name, but its neighbours are seen.
                let name = entry.file_name().to_string_lossy().into_owned();
                batch.push_back(DirectoryEntry { type_, name });
            }
        }
    }
    (Some(rest), batch, None)
}
