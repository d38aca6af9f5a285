//! The beginning of a report: what is missing, and a summary. And the whole of it, section by section.

use std::fmt::Write as _;

use crate::asking::Ended;
use crate::duplicates::Group;
use crate::inventory::Tally;
use crate::languages::{Languages, Use};
use crate::licences;
use crate::markers::Kind;
use crate::survey::{Planned, Reading, Stage, Survey};
use crate::words::{code, count, number, percent, plain, prose, size};

use super::contents::newest_first;
use super::finds::by_depth;

/// A report stays below this many bytes, whatever was found.
const MOST: usize = 900 << 10;

/// So many parts are named.
const SHOWN: usize = 8;

/// Writes the report of a survey.
pub(crate) fn render(survey: &Survey) -> String {
    let report = Report { survey, total: survey.inventory.total() };
    let mut text = String::new();
    report.title(&mut text);
    report.summary(&mut text);
    report.secrets(&mut text);
    report.languages(&mut text);
    report.areas(&mut text);
    report.largest(&mut text);
    report.recent(&mut text);
    report.markers(&mut text);
    report.duplicates(&mut text);
    report.licences(&mut text);
    report.apart(&mut text);
    report.troubles(&mut text);
    if text.len() > MOST {
        let end = (0..=MOST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push_str("\n\n*The report was cut off here: it is too long. Survey a part of it, or show fewer findings.*\n");
    }
    text
}

/// A survey on its way to paper.
pub(super) struct Report<'s> {
    pub(super) survey: &'s Survey,
    pub(super) total: Tally,
}

impl Report<'_> {
    fn title(&self, text: &mut String) {
        let folders: Vec<String> =
            self.survey.ground.folders().iter().map(|folder| code(folder)).collect();
        let _ = writeln!(text, "# Survey of {}\n", folders.join(", "));
        let Some(why) = self.unfinished() else { return };
        let _ = writeln!(text, "> **Partial report.** {why}");
        let missing = self.missing();
        if !missing.is_empty() {
            text.push_str(">\n> Missing:\n");
        }
        for line in missing {
            let _ = writeln!(text, "> - {line}");
        }
        text.push('\n');
    }

    fn unfinished(&self) -> Option<String> {
        match (&self.survey.ended, self.survey.stage) {
            (Some(Ended::Stopped(stop)), _) => {
                let message = prose(stop.message.trim());
                let issuer = prose(&stop.issuer);
                Some(if message.is_empty() {
                    format!("Stopped by {issuer}.")
                } else {
                    format!("Stopped by {issuer}: {message}")
                })
            }
            (Some(Ended::NoBudget(what)), _) => {
                Some(format!("It ended early, because {what} is nearly used up."))
            }
            (None, Stage::Done) if self.survey.is_whole() => None,
            (None, Stage::Done) => Some("Not everything could be read.".to_owned()),
            (None, Stage::Listing | Stage::Reading | Stage::Comparing) => {
                Some("The survey is still going on.".to_owned())
            }
        }
    }

    /// What was not done, in words.
    fn missing(&self) -> Vec<String> {
        let survey = self.survey;
        let mut missing = Vec::new();
        if survey.stage == Stage::Listing {
            missing.push(format!(
                "The folders were not listed to the end: only {} are known, and none was read.",
                count(self.total.files, "file", "files")
            ));
            return missing;
        }
        let unread: Vec<&Planned> = survey.unread().collect();
        if !unread.is_empty() {
            let files: usize = unread.iter().map(|planned| planned.part.files.len()).sum();
            let names: Vec<String> =
                unread.iter().take(SHOWN).map(|planned| code(&planned.part.name)).collect();
            let more = match unread.len().saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!(" and {} more", number(more as u64)),
            };
            missing.push(format!(
                "{} of {} were not read, or not to the end ({}): {}{more}. Languages, markers, secrets and licences in them are missing or incomplete.",
                number(unread.len() as u64),
                count(survey.parts.len() as u64, "part", "parts"),
                count(files as u64, "file", "files"),
                names.join(", "),
            ));
        }
        missing.extend(unread.into_iter().filter_map(cut_short).take(SHOWN));
        if survey.stage < Stage::Comparing {
            missing.push("Files were not compared with each other to find duplicates.".to_owned());
        } else if survey.stage == Stage::Comparing {
            missing.push(format!(
                "Only {} of {} that have the size of another one were compared.",
                number(survey.duplicates.compared),
                count(survey.duplicates.candidates, "file", "files"),
            ));
        }
        missing
    }

    fn summary(&self, text: &mut String) {
        let (inventory, findings) = (&self.survey.inventory, &self.survey.findings);
        let mut lines = Vec::new();
        let text_lines: u64 = findings.languages.values().map(|tally| tally.lines).sum();
        let mut size_line = format!(
            "{} in {}, {}",
            count(self.total.files, "file", "files"),
            count(inventory.directories, "folder", "folders"),
            size(self.total.bytes),
        );
        if text_lines > 0 {
            let _ = write!(size_line, ", {} of text", count(text_lines, "line", "lines"));
        }
        lines.push(size_line);
        if self.total.files == 0 {
            lines.push(
                "There is nothing to survey: no file was found that is not left out.".to_owned(),
            );
        }
        if let Some(line) = self.mostly() {
            lines.push(line);
        }
        let newest = inventory.files.iter().filter(|file| file.modified.is_known());
        if let Some(newest) = newest.min_by(|a, b| newest_first(a, b)) {
            lines.push(format!("Last change: {} ({})", newest.modified, self.path(&newest.path)));
        }
        if self.survey.stage > Stage::Listing {
            lines.extend(self.found());
        }
        for without in &self.survey.without {
            lines.push(format!("For want of a tool, {without}."));
        }
        if inventory.beyond {
            lines.push(format!(
                "There are more files than {}: the rest was not surveyed (option `max-files`).",
                number(self.survey.options.max_files as u64)
            ));
        }
        for line in lines {
            let _ = writeln!(text, "- {line}");
        }
        text.push('\n');
    }

    /// The lines of the summary about what was found.
    fn found(&self) -> Vec<String> {
        let findings = &self.survey.findings;
        let has =
            |without: &str| !self.survey.without.iter().any(|missing| missing.starts_with(without));
        let mut lines = Vec::new();
        if has("markers") {
            let markers: Vec<String> = Kind::ALL
                .iter()
                .filter_map(|kind| Some((kind, findings.marker_counts.get(kind)?)))
                .map(|(kind, count)| format!("{} {}", number(count.markers), kind.word()))
                .collect();
            lines.push(if markers.is_empty() {
                "Markers for later: none".to_owned()
            } else {
                format!("Markers for later: {}", markers.join(", "))
            });
        }
        if has("duplicates") && self.survey.stage >= Stage::Comparing {
            let groups = self.survey.duplicates.groups();
            let spare: u64 = groups.iter().map(Group::spare).sum();
            lines.push(if groups.is_empty() {
                "Duplicate files: none".to_owned()
            } else {
                format!(
                    "Duplicate files: {}, {} to spare",
                    count(groups.len() as u64, "group", "groups"),
                    size(spare)
                )
            });
        }
        if has("markers") {
            lines.push(format!("Licences: {}", self.licence_names()));
            lines.push(match findings.secret_count {
                0 => "Strings that look like secrets: none".to_owned(),
                found => format!("**Strings that look like secrets: {}**", number(found)),
            });
        }
        lines
    }

    fn mostly(&self) -> Option<String> {
        let known = Languages::new();
        let is_code =
            |name: &str| known.called(name).is_some_and(|language| language.used_for == Use::Code);
        let mut code: Vec<(&String, &Tally)> =
            self.survey.findings.languages.iter().filter(|(name, _)| is_code(name)).collect();
        let measure = |tally: &Tally| if tally.lines > 0 { tally.lines } else { tally.bytes };
        let all: u64 = code.iter().map(|(_, tally)| measure(tally)).sum();
        code.sort_by(|a, b| measure(b.1).cmp(&measure(a.1)).then_with(|| a.0.cmp(b.0)));
        let names: Vec<String> = code
            .iter()
            .take(3)
            .map(|(name, tally)| format!("{name} {}", percent(measure(tally), all)))
            .collect();
        (all > 0).then(|| format!("Code: {}", names.join(", ")))
    }

    /// The licences in a few words: those said nearest to the top first.
    fn licence_names(&self) -> String {
        let findings = &self.survey.findings;
        let mut names: Vec<&str> = Vec::new();
        let said =
            by_depth(&findings.licence_files).into_iter().chain(by_depth(&findings.manifests));
        for name in said.map(|(name, _)| name).chain(findings.spdx.keys().map(String::as_str)) {
            if name != licences::UNKNOWN && !names.contains(&name) {
                names.push(name);
            }
        }
        let shown: Vec<String> = names.iter().take(5).map(|name| prose(name)).collect();
        match names.len().saturating_sub(5) {
            _ if names.is_empty() => "none found".to_owned(),
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }

    /// A word about entries that are not shown, and an empty line.
    pub(super) fn more(&self, text: &mut String, all: u64, shown: usize) {
        let hidden = all.saturating_sub(shown as u64);
        if hidden > 0 {
            let _ = write!(text, "\n… and {} more.\n", number(hidden));
        }
        text.push('\n');
    }

    pub(super) fn path(&self, path: &str) -> String {
        code(self.survey.ground.show(path))
    }

    pub(super) fn place(&self, path: &str, line: u64) -> String {
        code(&format!("{}:{line}", plain(self.survey.ground.show(path))))
    }
}

/// How far a part came that was begun.
fn cut_short(Planned { part, reading }: &Planned) -> Option<String> {
    let Reading::Cut { files, why } = reading else { return None };
    let read = format!(
        "Of {}, {} of {} were read to the end",
        code(&part.name),
        number(*files as u64),
        count(part.files.len() as u64, "file", "files"),
    );
    match why {
        Some(why) => Some(format!("{read}: {}.", prose(why.trim_end_matches('.')))),
        None if *files > 0 => Some(format!("{read}.")),
        None => None,
    }
}
