//! Sections about what was not surveyed: counted apart, or out of reach.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::summary::Report;
use crate::apart::{self, Apart};
use crate::inventory::{File, Tally};
use crate::words::{Side, Table, code, count, first, number, prose, size};

impl Report<'_> {
    pub(super) fn apart(&self, text: &mut String) {
        let inventory = &self.survey.inventory;
        let mut rows: BTreeMap<Apart, Tally> = inventory.apart.clone();
        if self.survey.findings.generated.files > 0 {
            rows.entry(Apart::Generated).or_default().add(self.survey.findings.generated);
        }
        let mut lines = Vec::new();
        let mut also = |number: u64, one: &str, many: &str| {
            if number > 0 {
                lines.push(count(number, one, many));
            }
        };
        also(inventory.ignored, "entry that git ignores", "entries that git ignores");
        also(inventory.hidden, "hidden entry", "hidden entries");
        also(
            inventory.excluded,
            "excluded entry (version control, or excluded by an option)",
            "excluded entries (version control, or excluded by an option)",
        );
        also(inventory.links, "symbolic link, not followed", "symbolic links, not followed");
        also(inventory.special, "device, pipe or socket", "devices, pipes or sockets");
        if rows.is_empty() && lines.is_empty() {
            return;
        }
        text.push_str("## Counted apart\n\n");
        if !rows.is_empty() {
            let mut table = Table::new(&[
                ("What", Side::Left),
                ("Files", Side::Right),
                ("Size", Side::Right),
                ("Such as", Side::Left),
            ]);
            for (why, tally) in &rows {
                table.row([
                    why.title().to_owned(),
                    number(tally.files),
                    size(tally.bytes),
                    self.such_as(*why),
                ]);
            }
            text.push_str(&table.render());
            text.push('\n');
        }
        if !lines.is_empty() {
            let _ = writeln!(text, "Not looked into: {}.\n", lines.join("; "));
        }
    }

    fn such_as(&self, why: Apart) -> String {
        let inventory = &self.survey.inventory;
        let top = |tallies: &BTreeMap<String, Tally>, wanted: &dyn Fn(&str) -> bool| {
            let mut rows: Vec<(&String, &Tally)> =
                tallies.iter().filter(|(name, _)| wanted(name)).collect();
            rows.sort_by(|a, b| b.1.files.cmp(&a.1.files).then_with(|| a.0.cmp(b.0)));
            let names: Vec<String> = rows
                .iter()
                .take(5)
                .map(|(name, tally)| format!("{} ({})", code(name), number(tally.files)))
                .collect();
            names.join(", ")
        };
        match why {
            Apart::Binary => top(&inventory.binary, &|_| true),
            Apart::Vendored | Apart::Built => top(&inventory.folders_apart, &|folder| {
                apart::by_path(&format!("{folder}/debug/x")) == Some(why)
            }),
            Apart::Generated | Apart::Large => {
                let (ground, options) = (&self.survey.ground, &self.survey.options);
                let is_such = |file: &&File| match apart::by_path(ground.below(&file.path)) {
                    None => why == Apart::Large && file.size > options.max_file_bytes,
                    Some(other) => other == why,
                };
                let paths: Vec<String> = inventory
                    .files
                    .iter()
                    .filter(is_such)
                    .take(3)
                    .map(|file| self.path(&file.path))
                    .collect();
                paths.join(", ")
            }
        }
    }

    pub(super) fn troubles(&self, text: &mut String) {
        let survey = self.survey;
        let mut all = survey.inventory.troubles.clone();
        all.merge(survey.findings.troubles.clone());
        all.merge(survey.duplicates.troubles.clone());
        if all.count() == 0 {
            return;
        }
        all.kept.sort();
        text.push_str("## Could not be looked at\n\n");
        let shown = all.kept.len().min(survey.options.max_findings.min(20));
        for (path, why) in &all.kept[..shown] {
            let _ = writeln!(text, "- {}: {}", self.path(path), prose(&first(why, 200)));
        }
        self.more(text, all.count(), shown);
    }
}
