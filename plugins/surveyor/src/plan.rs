//! The plan: the files in parts, each a folder or a few neighbouring ones, none too large.
//!
//! A part is a stretch of the sorted list of files, so that each file is in exactly one part.

use std::ops::Range;

use crate::inventory::{File, Ground};

/// How large a part may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Files.
    pub(crate) files: usize,
    /// Bytes.
    pub(crate) bytes: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { files: 1_600, bytes: 64 << 20 }
    }
}

/// One part of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// What people call it, such as `src/` or `docs/ to examples/`.
    pub(crate) name: String,
    /// Its place in the sorted list of files.
    pub(crate) files: Range<usize>,
    /// How many bytes of it will be read.
    pub(crate) bytes: u64,
}

/// Plans parts for files that are sorted by path. `weight` is how many bytes of a file will be read.
pub(crate) fn plan(
    files: &[File],
    ground: &Ground,
    bounds: Bounds,
    weight: impl Fn(&File) -> u64,
) -> Vec<Part> {
    let weights = files.iter().map(weight).collect();
    Plan { files, ground, bounds, weights, pieces: Vec::new() }.parts()
}

/// A plan in the making.
struct Plan<'f> {
    files: &'f [File],
    ground: &'f Ground,
    bounds: Bounds,
    weights: Vec<u64>,
    pieces: Vec<Range<usize>>,
}

impl Plan<'_> {
    fn parts(mut self) -> Vec<Part> {
        self.cut(0..self.files.len(), 0);
        let mut parts: Vec<Range<usize>> = Vec::new();
        for piece in std::mem::take(&mut self.pieces) {
            // Small neighbours share a part.
            if let Some(last) = parts.last_mut() {
                let joined = last.start..piece.end;
                if self.fits(&joined) {
                    *last = joined;
                    continue;
                }
            }
            parts.push(piece);
        }
        let part = |range: Range<usize>| Part {
            name: name(self.files, self.ground, &range),
            bytes: self.bytes(&range),
            files: range,
        };
        let mut parts: Vec<Part> = parts.into_iter().map(part).collect();
        number_apart(&mut parts);
        parts
    }

    /// Cuts a stretch into folders that fit, going down where they do not. `depth` is how many folders the whole
    /// stretch has in common.
    fn cut(&mut self, range: Range<usize>, depth: usize) {
        if range.is_empty() {
            return;
        }
        if self.fits(&range) || range.len() == 1 {
            self.pieces.push(range);
            return;
        }
        let mut start = range.start;
        while start < range.end {
            let first = self.folder(start, depth);
            let mut end = start + 1;
            while end < range.end && self.folder(end, depth) == first {
                end += 1;
            }
            let stretch = start..end;
            if first.is_some() && !self.fits(&stretch) {
                self.cut(stretch, depth + 1);
            } else {
                self.chop(stretch);
            }
            start = end;
        }
    }

    /// Cuts files of one folder by number and size alone.
    fn chop(&mut self, range: Range<usize>) {
        let mut start = range.start;
        let mut bytes = 0;
        for place in range.clone() {
            let full = place - start >= self.bounds.files
                || bytes + self.weights[place] > self.bounds.bytes;
            if place > start && full {
                self.pieces.push(start..place);
                (start, bytes) = (place, 0);
            }
            bytes += self.weights[place];
        }
        self.pieces.push(start..range.end);
    }

    /// The folder at that depth which the file is in; none when the file itself stands there.
    fn folder(&self, place: usize, depth: usize) -> Option<&str> {
        let mut parts = self.ground.below(&self.files[place].path).split('/').skip(depth);
        parts.next().filter(|_| parts.next().is_some())
    }

    fn fits(&self, range: &Range<usize>) -> bool {
        range.len() <= self.bounds.files && self.bytes(range) <= self.bounds.bytes
    }

    fn bytes(&self, range: &Range<usize>) -> u64 {
        self.weights[range.clone()].iter().sum()
    }
}

/// The folder that a stretch is, or where it begins and ends.
fn name(files: &[File], ground: &Ground, range: &Range<usize>) -> String {
    let shown = |place: usize| files.get(place).map_or("", |file| ground.show(&file.path));
    if range.len() == files.len() {
        return "everything".to_owned();
    }
    let (first, last) = (shown(range.start), shown(range.end.saturating_sub(1)));
    let end = first.rfind('/').map_or(0, |at| at + 1);
    let common = first[..end].bytes().zip(last.bytes()).take_while(|(a, b)| a == b).count();
    let common =
        first.get(..common).and_then(|start| start.rfind('/')).map_or("", |at| &first[..=at]);
    let before = range.start.checked_sub(1).map_or("", shown);
    let is_whole =
        !common.is_empty() && !before.starts_with(common) && !shown(range.end).starts_with(common);
    // A stretch of one flat folder is called by it, whole or not.
    if is_whole
        || !common.is_empty()
            && common.len() == end
            && last.rfind('/').map_or(0, |at| at + 1) == end
    {
        return common.to_owned();
    }
    let next = |path: &str| {
        let rest = &path[common.len()..];
        let end = rest.find('/').map_or(rest.len(), |at| at + 1);
        path[..common.len() + end].to_owned()
    };
    match (next(first), next(last)) {
        (from, to) if from == to => from,
        (from, to) => format!("{from} to {to}"),
    }
}

/// Several parts of one folder get numbers.
fn number_apart(parts: &mut [Part]) {
    let mut start = 0;
    while start < parts.len() {
        let mut end = start + 1;
        while end < parts.len() && parts[end].name == parts[start].name {
            end += 1;
        }
        if end - start > 1 {
            for (number, part) in (1..).zip(&mut parts[start..end]) {
                part.name = format!("{} ({number})", part.name);
            }
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment::Moment;

    fn files(paths: &[(&str, u64)]) -> Vec<File> {
        let mut files: Vec<File> = paths
            .iter()
            .map(|(path, size)| File {
                path: format!("/w/{path}"),
                size: *size,
                modified: Moment::default(),
            })
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    fn view(files: &[File], bounds: Bounds) -> Vec<String> {
        let ground = Ground::new(vec!["/w".to_owned()]);
        let parts = plan(files, &ground, bounds, |file| file.size);
        // Every file is in exactly one part, in order.
        let covered: Vec<usize> = parts.iter().flat_map(|part| part.files.clone()).collect();
        assert_eq!(covered, (0..files.len()).collect::<Vec<_>>());
        for part in &parts {
            assert!(
                part.files.len() == 1
                    || part.files.len() <= bounds.files && part.bytes <= bounds.bytes
            );
        }
        parts.iter().map(|part| format!("{} ({})", part.name, part.files.len())).collect()
    }

    #[test]
    fn a_small_folder_is_one_part() {
        let files = files(&[("a", 1), ("src/b", 1), ("src/c", 1)]);
        assert_eq!(view(&files, Bounds::default()), ["everything (3)"]);
        assert_eq!(view(&[], Bounds::default()), [""; 0]);
    }

    #[test]
    fn folders_stay_together_as_far_as_they_fit() {
        let files = files(&[
            ("a/1", 1),
            ("a/2", 1),
            ("b/1", 1),
            ("b/2", 1),
            ("b/c/1", 1),
            ("b/c/2", 1),
            ("d/1", 1),
            ("e", 1),
        ]);
        let bounds = Bounds { files: 4, bytes: 100 };
        assert_eq!(view(&files, bounds), ["a/ (2)", "b/ (4)", "d/ to e (2)"]);
        let bounds = Bounds { files: 2, bytes: 100 };
        assert_eq!(view(&files, bounds), ["a/ (2)", "b/ (2)", "b/c/ (2)", "d/ to e (2)"]);
    }

    #[test]
    fn size_counts_as_well_and_a_giant_is_alone() {
        let files = files(&[("a/1", 60), ("a/2", 60), ("a/3", 1_000), ("a/4", 1)]);
        assert_eq!(
            view(&files, Bounds { files: 10, bytes: 100 }),
            ["a/ (1) (1)", "a/ (2) (1)", "a/ (3) (1)", "a/ (4) (1)"]
        );
    }

    #[test]
    fn a_folder_of_many_files_is_chopped() {
        let paths: Vec<String> = (0..10_000).map(|number| format!("all/{number:05}")).collect();
        let files = files(&paths.iter().map(|path| (path.as_str(), 10)).collect::<Vec<_>>());
        let parts = view(&files, Bounds { files: 3_000, bytes: 1 << 30 });
        assert_eq!(
            parts,
            ["all/ (1) (3000)", "all/ (2) (3000)", "all/ (3) (3000)", "all/ (4) (1000)"]
        );
    }
}
