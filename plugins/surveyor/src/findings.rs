//! What was found in a part; and the same of several parts, merged.

use std::collections::BTreeMap;

use checkrein_guest::prelude::*;

use crate::inventory::{Ground, Tally};
use crate::markers::Kind;
use crate::secrets::Secret;
use crate::troubles::Troubles;

/// A marker that someone left for later.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Marker {
    /// Its kind.
    pub(crate) kind: Kind,
    /// The file.
    pub(crate) path: String,
    /// The line.
    pub(crate) line: u64,
    /// What it says.
    pub(crate) text: String,
}

/// How many markers of one kind, in how many files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MarkerCount {
    /// Markers.
    pub(crate) markers: u64,
    /// Files that have one.
    pub(crate) files: u64,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Findings {
    /// Text by language. Generated files are not among them.
    pub(crate) languages: BTreeMap<String, Tally>,
    /// Text by area.
    pub(crate) areas: BTreeMap<String, Tally>,
    /// Files that say of themselves that a program wrote them.
    pub(crate) generated: Tally,
    /// Files that turned out not to be text: path and size.
    pub(crate) binary: Vec<(String, u64)>,
    /// Empty files.
    pub(crate) empty: u64,
    /// Markers by kind.
    pub(crate) marker_counts: BTreeMap<Kind, MarkerCount>,
    /// The most urgent markers.
    pub(crate) markers: Vec<Marker>,
    /// Strings that look like secrets: the first ones.
    pub(crate) secrets: Vec<Secret>,
    /// How many there are altogether.
    pub(crate) secret_count: u64,
    /// Files by their SPDX line.
    pub(crate) spdx: BTreeMap<String, u64>,
    /// Licences that manifests name, with the manifests.
    pub(crate) manifests: BTreeMap<String, Vec<String>>,
    /// Licences of texts, with the files.
    pub(crate) licence_files: BTreeMap<String, Vec<String>>,
    /// Files with more finds than one answer takes: what is counted there is a lower bound.
    pub(crate) crowded: u64,
    /// What could not be read.
    pub(crate) troubles: Troubles,
}

impl Findings {
    /// Counts a text file.
    pub(crate) fn count_text(
        &mut self,
        ground: &Ground,
        path: &str,
        language: &str,
        lines: u64,
        bytes: u64,
    ) {
        self.languages.entry(language.to_owned()).or_default().count(lines, bytes);
        self.areas.entry(ground.area(path)).or_default().count(lines, bytes);
    }

    /// Puts the findings of another part to these, and keeps at most `keep` of each list.
    pub(crate) fn merge(&mut self, other: Findings, keep: usize) {
        tallies(&mut self.languages, other.languages);
        tallies(&mut self.areas, other.areas);
        self.generated.add(other.generated);
        self.binary.extend(other.binary);
        self.empty += other.empty;
        for (kind, count) in other.marker_counts {
            let sum = self.marker_counts.entry(kind).or_default();
            sum.markers += count.markers;
            sum.files += count.files;
        }
        self.markers.extend(other.markers);
        self.secrets.extend(other.secrets);
        self.secret_count += other.secret_count;
        for (expression, files) in other.spdx {
            *self.spdx.entry(expression).or_default() += files;
        }
        lists(&mut self.manifests, other.manifests);
        lists(&mut self.licence_files, other.licence_files);
        self.crowded += other.crowded;
        self.troubles.merge(other.troubles);
        self.trim(keep);
    }

    /// Sorts the lists, and keeps at most `keep` of each; of secrets more, since several in one file are shown as one.
    pub(crate) fn trim(&mut self, keep: usize) {
        self.markers.sort();
        self.markers.truncate(keep);
        self.secrets.sort();
        self.secrets.dedup();
        self.secrets.truncate(keep.saturating_mul(20));
    }

    /// How long the longest list is of which reports show the first entries only.
    pub(crate) fn longest(&self) -> usize {
        self.markers.len().max(self.secrets.len()).max(self.troubles.kept.len())
    }

    /// Cuts these lists. Everything is still counted.
    pub(crate) fn cut(&mut self, keep: usize) {
        self.markers.truncate(keep);
        self.secrets.truncate(keep);
        self.troubles.cut(keep);
    }
}

fn tallies(sums: &mut BTreeMap<String, Tally>, others: BTreeMap<String, Tally>) {
    for (name, tally) in others {
        sums.entry(name).or_default().add(tally);
    }
}

fn lists(sums: &mut BTreeMap<String, Vec<String>>, others: BTreeMap<String, Vec<String>>) {
    for (name, paths) in others {
        let list = sums.entry(name).or_default();
        list.extend(paths);
        list.sort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(line: u64) -> Findings {
        let mut findings = Findings::default();
        let ground = Ground::new(vec!["/w".to_owned()]);
        findings.count_text(&ground, "/w/src/a.rs", "Rust", 10, 100);
        findings.marker_counts.insert(Kind::Todo, MarkerCount { markers: 2, files: 1 });
        findings.markers.push(Marker {
            kind: Kind::Todo,
            path: "/w/a".into(),
            line,
            text: "x".into(),
        });
        findings.markers.push(Marker {
            kind: Kind::Fixme,
            path: "/w/z".into(),
            line,
            text: "x".into(),
        });
        findings.spdx.insert("MIT".into(), 1);
        findings.manifests.insert("MIT".into(), vec![format!("/w/{line}/Cargo.toml")]);
        findings
    }

    #[test]
    fn merging_is_the_same_in_any_order() {
        let (mut a, mut b) = (some(1), some(2));
        a.merge(some(2), 3);
        b.merge(some(1), 3);
        assert_eq!(a, b);
        assert_eq!(a.languages["Rust"], Tally { files: 2, lines: 20, bytes: 200 });
        assert_eq!(a.marker_counts[&Kind::Todo], MarkerCount { markers: 4, files: 2 });
        let kinds: Vec<Kind> = a.markers.iter().map(|marker| marker.kind).collect();
        assert_eq!(kinds, [Kind::Fixme, Kind::Fixme, Kind::Todo]);
        assert_eq!(a.manifests["MIT"].len(), 2);
    }

    #[test]
    fn findings_cross_the_door_between_parent_and_child() {
        let text = serde_json::to_string(&some(1)).unwrap();
        assert_eq!(serde_json::from_str::<Findings>(&text).unwrap(), some(1));
    }
}
