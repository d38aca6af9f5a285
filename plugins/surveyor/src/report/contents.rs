//! Sections about what is there: languages, folders, sizes, times.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::summary::Report;
use crate::inventory::{File, Tally};
use crate::moment::Moment;
use crate::words::{Side, Table, code, number, percent, size};

impl Report<'_> {
    fn columns(&self) -> Columns {
        Columns { lines: self.survey.findings.languages.values().any(|tally| tally.lines > 0) }
    }

    pub(super) fn languages(&self, text: &mut String) {
        let mut rows: Vec<(&String, &Tally)> = self.survey.findings.languages.iter().collect();
        if rows.is_empty() {
            return;
        }
        rows.sort_by(|a, b| by_lines(a.1, b.1).then_with(|| a.0.cmp(b.0)));
        let columns = self.columns();
        let measure = |tally: &Tally| if columns.lines { tally.lines } else { tally.bytes };
        let all: u64 = rows.iter().map(|(_, tally)| measure(tally)).sum();
        text.push_str("## Languages\n\n");
        let mut table = columns.table("Language", Some("Share"));
        let most = self.survey.options.max_rows;
        let shown = if rows.len() == most + 1 { most + 1 } else { most };
        let row = |name: String, tally: &Tally| {
            columns.row(name, tally, Some(percent(measure(tally), all)))
        };
        for (name, tally) in rows.iter().take(shown) {
            table.row(row((*name).clone(), tally));
        }
        if rows.len() > shown {
            let mut rest = Tally::default();
            rows[shown..].iter().for_each(|(_, tally)| rest.add(**tally));
            table.row(row(format!("{} more", rows.len() - shown), &rest));
        }
        text.push_str(&table.render());
        text.push('\n');
    }

    pub(super) fn areas(&self, text: &mut String) {
        let mut areas: BTreeMap<String, Tally> = BTreeMap::new();
        for file in &self.survey.inventory.files {
            areas.entry(self.survey.ground.area(&file.path)).or_default().count(0, file.size);
        }
        if areas.len() < 2 {
            return;
        }
        for (name, tally) in &self.survey.findings.areas {
            areas.entry(name.clone()).or_default().lines = tally.lines;
        }
        let mut rows: Vec<(String, Tally)> = areas.into_iter().collect();
        rows.sort_by(|a, b| by_lines(&a.1, &b.1).then_with(|| a.0.cmp(&b.0)));
        text.push_str("## Where it is\n\n");
        let columns = self.columns();
        let mut table = columns.table("Folder", None);
        let shown = self.survey.options.max_rows;
        for (name, tally) in rows.iter().take(shown) {
            let name = if name.starts_with('(') { name.clone() } else { code(name) };
            table.row(columns.row(name, tally, None));
        }
        if rows.len() > shown {
            let mut rest = Tally::default();
            rows[shown..].iter().for_each(|(_, tally)| rest.add(*tally));
            table.row(columns.row(format!("{} more", rows.len() - shown), &rest, None));
        }
        text.push_str(&table.render());
        text.push('\n');
    }

    pub(super) fn largest(&self, text: &mut String) {
        let mut files: Vec<&File> =
            self.survey.inventory.files.iter().filter(|file| file.size > 0).collect();
        if files.len() < 2 {
            return;
        }
        files.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.path.cmp(&b.path)));
        files.truncate(self.survey.options.max_rows);
        text.push_str("## Largest files\n\n");
        let mut table = Table::new(&[("File", Side::Left), ("Size", Side::Right)]);
        for file in files {
            table.row([self.path(&file.path), size(file.size)]);
        }
        text.push_str(&table.render());
        text.push('\n');
    }

    pub(super) fn recent(&self, text: &mut String) {
        let mut files: Vec<&File> =
            self.survey.inventory.files.iter().filter(|file| file.modified.is_known()).collect();
        if files.len() < 2 {
            return;
        }
        files.sort_by(|a, b| newest_first(a, b));
        text.push_str("## Recently changed\n\n");
        let (busiest, most) = clusters(&files, Moment::ten_minutes)
            .into_iter()
            .map(|(moment, files)| (moment, files.len()))
            .max_by_key(|(moment, files)| (*files, *moment))
            .unwrap_or_default();
        if most == files.len() || files.len() >= 20 && most * 5 >= files.len() * 4 {
            let _ = writeln!(
                text,
                "{} of the files were changed within ten minutes of {busiest}: perhaps they were copied here then, and times say little.\n",
                percent(most as u64, files.len() as u64),
            );
        }
        if files.first().map(|file| file.modified) == files.last().map(|file| file.modified) {
            return;
        }
        let mut table = Table::new(&[("File", Side::Left), ("Changed (UTC)", Side::Left)]);
        for file in files.iter().take(self.survey.options.max_rows.min(10)) {
            table.row([self.path(&file.path), file.modified.to_string()]);
        }
        text.push_str(&table.render());
        text.push('\n');
        let days = clusters(&files, Moment::day);
        let (title, stretches) =
            if days.len() < 3 { ("Hour", clusters(&files, Moment::hour)) } else { ("Day", days) };
        if stretches.len() < 2 {
            return;
        }
        let mut table =
            Table::new(&[(title, Side::Left), ("Files", Side::Right), ("Mostly in", Side::Left)]);
        for (start, files) in stretches.iter().rev().take(7) {
            let start = if title == "Hour" { start.to_string() } else { start.date() };
            table.row([start, number(files.len() as u64), self.mostly_in(files)]);
        }
        text.push_str(&table.render());
        text.push('\n');
    }

    /// The folders in which most of the files are.
    fn mostly_in(&self, files: &[&File]) -> String {
        let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
        for file in files {
            let shown = self.survey.ground.show(&file.path);
            let folder = shown.rfind('/').map_or("", |at| &shown[..=at]);
            *folders.entry(folder).or_default() += 1;
        }
        let mut folders: Vec<(&str, usize)> = folders.into_iter().collect();
        folders.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        let name =
            |folder: &str| if folder.is_empty() { "(top level)".to_owned() } else { code(folder) };
        let names: Vec<String> = folders
            .iter()
            .take(3)
            .map(|(folder, count)| format!("{} ({count})", name(folder)))
            .collect();
        names.join(", ")
    }
}

/// The columns of a tally: without lines, when they were not counted.
struct Columns {
    lines: bool,
}

impl Columns {
    fn table(&self, first: &str, share: Option<&str>) -> Table {
        let mut columns = vec![(first, Side::Left), ("Files", Side::Right)];
        columns.extend(self.lines.then_some(("Lines", Side::Right)));
        columns.extend(share.map(|share| (share, Side::Right)));
        columns.push(("Size", Side::Right));
        Table::new(&columns)
    }

    fn row(&self, first: String, tally: &Tally, share: Option<String>) -> Vec<String> {
        let mut row = vec![first, number(tally.files)];
        row.extend(self.lines.then(|| number(tally.lines)));
        row.extend(share);
        row.push(size(tally.bytes));
        row
    }
}

fn by_lines(a: &Tally, b: &Tally) -> std::cmp::Ordering {
    b.lines.cmp(&a.lines).then_with(|| b.bytes.cmp(&a.bytes))
}

/// The files by the stretch of time that they were changed in.
fn clusters<'f>(
    files: &[&'f File],
    stretch: fn(Moment) -> Moment,
) -> BTreeMap<Moment, Vec<&'f File>> {
    let mut clusters: BTreeMap<Moment, Vec<&File>> = BTreeMap::new();
    for file in files {
        clusters.entry(stretch(file.modified)).or_default().push(file);
    }
    clusters
}

/// The order in which what changed last comes first.
pub(super) fn newest_first(a: &File, b: &File) -> std::cmp::Ordering {
    b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path))
}
