//! Many files in one call: one answer for each, in their order, until the answer or the time is used up.

use std::time::{Duration, Instant};

use checkrein_guest::prelude::*;
use checkrein_reading::{MOST_READ, Regular, Unreadable, json_len, paths};

/// An answer stays below this many bytes.
const MAX_ANSWER: usize = 700 << 10;
/// That many paths are in one call at most.
pub(crate) const MAX_PATHS: usize = 10_000;
/// After this time it answers with what there is.
const MAX_TIME: Duration = Duration::from_secs(60);

/// The answers for a list of paths.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Batch<T> {
    /// One for each text or path, in the order they were given.
    pub(crate) results: Vec<T>,
    /// The answer, the time or the bytes that one call reads were used up: call again with the paths from this one on,
    /// counted from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_path: Option<usize>,
}

/// What the answers have in common.
pub(crate) trait Entry: Sized {
    /// The answer for a path that cannot be read.
    fn failed(path: &str, error: String) -> Self;

    /// Bytes of an answer beside the path, about.
    fn weight(&self) -> usize;
}

/// Opens a path as an agent wrote it.
pub(crate) fn open(given: &str) -> Result<(Regular, u64), String> {
    let path = paths::resolve(given)
        .and_then(|place| place.path(given))
        .map_err(|failure| failure.message)?;
    Regular::open(&path).map_err(|why: Unreadable| why.reason())
}

/// Asks `ask` about each path, of which it reads at most so many bytes.
pub(crate) fn each<T: Entry>(
    paths: &[String],
    most: u64,
    mut ask: impl FnMut(&str, Regular, u64) -> Result<T, String>,
) -> Batch<T> {
    let deadline = Instant::now() + MAX_TIME;
    let mut batch = Batch { results: Vec::with_capacity(paths.len()), next_path: None };
    let (mut size, mut read) = (0, 0);
    for (place, path) in paths.iter().enumerate() {
        if place > 0 && (size > MAX_ANSWER || Instant::now() > deadline) {
            batch.next_path = Some(place);
            break;
        }
        let opened = open(path);
        if let Ok((_, length)) = &opened {
            let wanted = most.min(*length);
            if place > 0 && wanted <= MOST_READ && read + wanted > MOST_READ {
                batch.next_path = Some(place);
                break;
            }
            if wanted <= MOST_READ {
                read += wanted;
            }
        }
        let answer = opened.and_then(|(file, length)| {
            if most.min(length) > MOST_READ {
                return Err(format!("has {length} bytes, and one call reads {MOST_READ} at most"));
            }
            ask(path, file, length)
        });
        let answer = answer.unwrap_or_else(|error| T::failed(path, error));
        size += json_len(path) + answer.weight();
        batch.results.push(answer);
    }
    batch
}

/// Checks that exactly one of a text and a list of paths is there, and that the list is not too long.
pub(crate) fn check(text: Option<&String>, paths: &[String]) -> Result<(), Failure> {
    match (text, paths.len()) {
        (None, 0) => Err(Failure::invalid("give `text`, or at least one path in `paths`")),
        (Some(_), 1..) => Err(Failure::invalid("`text` and `paths` exclude each other")),
        (None, count @ MAX_PATHS..) if count > MAX_PATHS => Err(Failure::too_large(format!(
            "`paths` has {count} entries; split it: {MAX_PATHS} are allowed"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Entry for (String, u64) {
        fn failed(_path: &str, error: String) -> Self {
            (error, 0)
        }

        fn weight(&self) -> usize {
            0
        }
    }

    #[test]
    fn more_bytes_than_one_call_reads_are_for_the_next_call() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, mebibytes: u64| {
            let path = folder.path().join(name);
            let file = std::fs::File::create(&path).expect("a file");
            file.set_len(mebibytes << 20).expect("without contents");
            path.display().to_string()
        };
        let paths = [file("a", 500), file("b", 2_000), file("c", 268), file("d", 1)];
        let look = |most| each(&paths, most, |_, _, length| Ok((String::new(), length)));
        let first = look(u64::MAX);
        assert_eq!(first.next_path, Some(3));
        assert_eq!(first.results.len(), 3);
        assert!(first.results[1].0.contains("one call reads"), "{:?}", first.results);
        let beginnings = look(1 << 20);
        assert_eq!((beginnings.next_path, beginnings.results.len()), (None, 4));
    }
}
