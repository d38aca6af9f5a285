//! Sections about what was found in files: secrets, markers, duplicates, licences.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::summary::Report;
use crate::licences;
use crate::secrets::Secret;
use crate::words::{Side, Table, count, number, prose, size};

impl Report<'_> {
    pub(super) fn secrets(&self, text: &mut String) {
        let findings = &self.survey.findings;
        if findings.secret_count == 0 {
            return;
        }
        text.push_str("## Strings that look like secrets\n\n");
        text.push_str("Values are masked. Some may be examples; a real one belongs out of the files, and must be replaced where it was used.\n\n");
        let mut table = Table::new(&[
            ("Where", Side::Left),
            ("What", Side::Left),
            ("Shown as", Side::Left),
            ("Note", Side::Left),
        ]);
        let mut groups: Vec<&[Secret]> = Vec::new();
        for group in findings.secrets.chunk_by(|a, b| a.path == b.path && a.name == b.name) {
            groups.push(group);
        }
        groups.truncate(self.survey.options.max_findings);
        for group in &groups {
            let first = &group[0];
            let more = match group.len() {
                1 => String::new(),
                lines => format!(" and {} more", lines - 1),
            };
            table.row([
                format!("{}{more}", self.place(&first.path, first.line)),
                first.name.clone(),
                prose(&first.masked),
                if first.in_tests { "tests or examples".to_owned() } else { String::new() },
            ]);
        }
        text.push_str(&table.render());
        self.more(text, findings.secret_count, groups.iter().map(|group| group.len()).sum());
    }

    pub(super) fn markers(&self, text: &mut String) {
        let findings = &self.survey.findings;
        let all: u64 = findings.marker_counts.values().map(|count| count.markers).sum();
        if all == 0 {
            return;
        }
        text.push_str("## Markers for later\n\n");
        let mut table =
            Table::new(&[("Marker", Side::Left), ("Number", Side::Right), ("Files", Side::Right)]);
        for (kind, count) in &findings.marker_counts {
            table.row([kind.word().to_owned(), number(count.markers), number(count.files)]);
        }
        text.push_str(&table.render());
        text.push('\n');
        let shown = findings.markers.len().min(self.survey.options.max_findings);
        for marker in &findings.markers[..shown] {
            let says = if marker.text.is_empty() {
                String::new()
            } else {
                format!(": {}", prose(&marker.text))
            };
            let _ = writeln!(
                text,
                "- {} {}{says}",
                marker.kind.word(),
                self.place(&marker.path, marker.line)
            );
        }
        self.more(text, all, shown);
        if findings.crowded > 0 {
            let _ = writeln!(
                text,
                "{} more finds than are read of one file, so all numbers of markers and secrets are at least these.\n",
                if findings.crowded == 1 {
                    "1 file has".to_owned()
                } else {
                    format!("{} files have", number(findings.crowded))
                }
            );
        }
    }

    pub(super) fn duplicates(&self, text: &mut String) {
        let groups = self.survey.duplicates.groups();
        if groups.is_empty() {
            return;
        }
        text.push_str("## Duplicate files\n\n");
        let shown = groups.len().min(self.survey.options.max_findings);
        for group in &groups[..shown] {
            let paths: Vec<String> =
                group.paths.iter().take(6).map(|path| self.path(path)).collect();
            let more = match group.paths.len().saturating_sub(6) {
                0 => String::new(),
                more => format!(" and {} more", number(more as u64)),
            };
            let _ = writeln!(
                text,
                "- {} × {}: {}{more}",
                group.paths.len(),
                size(group.size),
                paths.join(", ")
            );
        }
        self.more(text, groups.len() as u64, shown);
    }

    pub(super) fn licences(&self, text: &mut String) {
        let findings = &self.survey.findings;
        let mut table = Table::new(&[("Licence", Side::Left), ("Said by", Side::Left)]);
        let most = self.survey.options.max_rows;
        for (sort, said) in
            [("text of", &findings.licence_files), ("manifest", &findings.manifests)]
        {
            for (licence, paths) in by_depth(said).into_iter().take(most) {
                let shown: Vec<String> = paths.iter().take(4).map(|path| self.path(path)).collect();
                let more = match paths.len().saturating_sub(4) {
                    0 => String::new(),
                    more => format!(" and {} more", number(more as u64)),
                };
                table.row([prose(licence), format!("{sort} {}{more}", shown.join(", "))]);
            }
            if said.len() > most {
                table.row([format!("{} more", said.len() - most), format!("{sort} other files")]);
            }
        }
        let mut spdx: Vec<(&String, &u64)> = findings.spdx.iter().collect();
        spdx.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        for (licence, files) in spdx.into_iter().take(most) {
            table.row([prose(licence), format!("SPDX line of {}", count(*files, "file", "files"))]);
        }
        if table.is_empty() {
            return;
        }
        text.push_str("## Licences\n\n");
        text.push_str(&table.render());
        text.push('\n');
    }
}

/// Licences with the files that name them: those said nearest to the top first, then those said most often.
pub(super) fn by_depth(said: &BTreeMap<String, Vec<String>>) -> Vec<(&str, Vec<&str>)> {
    let depth = |path: &&str| path.matches('/').count();
    let mut rows: Vec<(&str, Vec<&str>)> = said
        .iter()
        .map(|(name, paths)| {
            let mut paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            paths.sort_by(|a, b| depth(a).cmp(&depth(b)).then_with(|| a.cmp(b)));
            (name.as_str(), paths)
        })
        .collect();
    let rank = |row: &(&str, Vec<&str>)| {
        let top = row.1.first().map_or(usize::MAX, depth);
        (row.0 == licences::UNKNOWN, top, std::cmp::Reverse(row.1.len()))
    };
    rows.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.0.cmp(b.0)));
    rows
}
