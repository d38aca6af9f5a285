//! The survey: list, plan, read part by part, compare. What there is can be reported at any moment.

use checkrein_guest::prelude::*;

use crate::apart::VERSION_CONTROL;
use crate::asking::{Ask, Asker, Ended};
use crate::duplicates::{self, Duplicates};
use crate::findings::Findings;
use crate::inventory::{Ground, Inventory, Page, is_read};
use crate::options::Options;
use crate::plan::{self, Bounds, Part};
use crate::report;
use crate::words;

/// So many entries are in one page of a listing.
const PAGE: u32 = 4_000;

/// Tools that make a survey whole, and what is missing without them.
const TOOLS: &[(&str, &str)] = &[
    ("files_search", "markers, secrets and licences in files were not looked for"),
    ("text_stats", "lines were not counted"),
    ("text_hash", "duplicates were not looked for"),
    ("files_read", "the texts of licences were not looked at"),
];

/// How far the survey is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It lists the folders.
    Listing,
    /// It reads the parts.
    Reading,
    /// It compares candidates for duplicates.
    Comparing,
    /// It has done everything.
    Done,
}

/// A part of the plan.
#[derive(Debug)]
pub(crate) struct Planned {
    /// What it is.
    pub(crate) part: Part,
    /// How far it is.
    pub(crate) reading: Reading,
}

/// How far the reading of a part is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Nothing was read.
    Ahead,
    /// It was cut short.
    Cut {
        /// So many of its files are read.
        files: usize,
        /// Why, unless it is for the reason for which the whole survey ended.
        why: Option<String>,
    },
    /// Everything is read.
    Done,
}

/// A survey under way, or at its end.
#[derive(Debug)]
pub(crate) struct Survey {
    /// What is surveyed.
    pub(crate) ground: Ground,
    /// How.
    pub(crate) options: Options,
    /// What is there.
    pub(crate) inventory: Inventory,
    /// The parts of the plan, and how far each is.
    pub(crate) parts: Vec<Planned>,
    /// What was found in them.
    pub(crate) findings: Findings,
    /// Files with the same content.
    pub(crate) duplicates: Duplicates,
    /// How far it is.
    pub(crate) stage: Stage,
    /// Why it ended before it was done.
    pub(crate) ended: Option<Ended>,
    /// What was not done for want of a tool.
    pub(crate) without: Vec<&'static str>,
}

impl Survey {
    /// A survey with these options.
    pub(crate) fn new(options: Options) -> Survey {
        Survey {
            ground: Ground::new(options.folders.clone()),
            options,
            inventory: Inventory::default(),
            parts: Vec::new(),
            findings: Findings::default(),
            duplicates: Duplicates::default(),
            stage: Stage::Listing,
            ended: None,
            without: Vec::new(),
        }
    }

    /// Does the survey as far as it gets, and writes the report.
    pub(crate) fn run(mut self, run: &Run) -> Result<String, Failure> {
        let asker = Asker::new(run, self.options.batch)?;
        if !asker.has("files_list") {
            return Err(Failure::denied(
                "a survey needs the tool `files_list`, and this run was not granted it; grant at least `files_*` and `text_*`",
            ));
        }
        self.without = TOOLS
            .iter()
            .filter(|(tool, _)| !asker.has(tool))
            .map(|(_, without)| *without)
            .collect();
        match self.go(&asker) {
            Ok(()) => self.stage = Stage::Done,
            Err(Interruption::Ended(ended)) => {
                self.ended = Some(ended);
                self.inventory.sort();
            }
            Err(Interruption::Failed(failure)) => return Err(failure),
        }
        let report = report::render(&self);
        if !self.is_whole() {
            keep(run, &report);
        }
        Ok(report)
    }

    /// Whether nothing is missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.stage == Stage::Done && self.unread().next().is_none()
    }

    /// The parts that are not read, or not to the end.
    pub(crate) fn unread(&self) -> impl Iterator<Item = &Planned> {
        self.parts.iter().filter(|planned| planned.reading != Reading::Done)
    }

    /// Takes in what was found in a part.
    pub(crate) fn take(&mut self, mut findings: Findings) {
        for (path, size) in std::mem::take(&mut findings.binary) {
            self.inventory.count_binary(&path, size);
        }
        self.findings.merge(findings, self.options.max_findings);
    }

    fn go(&mut self, asker: &Asker<'_>) -> Result<(), Interruption> {
        for folder in self.ground.folders().to_owned() {
            self.list(asker, &folder)?;
        }
        self.inventory.sort();
        self.stage = Stage::Reading;
        let (ground, options) = (&self.ground, &self.options);
        let weight = |file: &crate::inventory::File| {
            if is_read(file, ground, options) { file.size } else { 0 }
        };
        let parts = plan::plan(&self.inventory.files, ground, Bounds::default(), weight);
        self.parts =
            parts.into_iter().map(|part| Planned { part, reading: Reading::Ahead }).collect();
        self.read(asker)?;
        self.stage = Stage::Comparing;
        if asker.has("text_hash") {
            let candidates = duplicates::candidates(&self.inventory.files);
            if !candidates.is_empty() {
                say(
                    asker.run(),
                    &format!(
                        "comparing {} of equal size",
                        words::count(candidates.len() as u64, "file", "files")
                    ),
                );
                duplicates::compare(asker, &candidates, &mut self.duplicates)?;
            }
        }
        Ok(())
    }

    fn list(&mut self, asker: &Asker<'_>, folder: &str) -> Result<(), Interruption> {
        let mut exclude: Vec<String> =
            VERSION_CONTROL.iter().map(|name| (*name).to_owned()).collect();
        exclude.extend(self.options.exclude.iter().cloned());
        let mut arguments = json!({
            "path": folder,
            "depth": 0,
            "hidden": self.options.hidden,
            "gitignore": self.options.gitignore,
            "include": self.options.include,
            "exclude": exclude,
            "limit": PAGE,
        });
        let mut limit = PAGE;
        loop {
            let answer = asker.one(Ask { tool: "files_list", arguments: arguments.clone() })?;
            let page = answer.and_then(|text| {
                serde_json::from_str::<Page>(&text).map_err(|error| {
                    Failure::failed(format!(
                        "the answer of `files_list` is not what was expected: {error}"
                    ))
                })
            });
            let page = match page {
                Ok(page) => page,
                Err(failure) if failure.code == Failure::TOO_LARGE && limit > 100 => {
                    limit /= 4;
                    arguments["limit"] = json!(limit);
                    continue;
                }
                // With one folder there is nothing to report; with several, the others go on.
                Err(failure) if self.ground.folders().len() == 1 => {
                    let message = format!("{folder} cannot be surveyed: {}", failure.message);
                    return Err(Interruption::Failed(Failure { message, ..failure }));
                }
                Err(failure) => {
                    self.inventory
                        .troubles
                        .add(folder, format!("not surveyed: {}", failure.message));
                    return Ok(());
                }
            };
            let next = page.next.clone();
            self.inventory.take(page, &self.ground, &self.options);
            let known = self.inventory.files.len() as u64;
            say(asker.run(), &format!("listed {}", words::count(known, "file", "files")));
            match next {
                Some(next) if !self.inventory.beyond && arguments["cursor"] != json!(next) => {
                    arguments["cursor"] = json!(next);
                }
                Some(_) | None => return Ok(()),
            }
        }
    }
}

/// Why the stages were left before their end.
enum Interruption {
    /// There is something to report.
    Ended(Ended),
    /// There is not.
    Failed(Failure),
}

impl From<Ended> for Interruption {
    fn from(ended: Ended) -> Interruption {
        Interruption::Ended(ended)
    }
}

/// Tells people what goes on. It is no reason to fail when nobody can be told.
pub(crate) fn say(run: &Run, text: &str) {
    if let Err(failure) = run.progress(text) {
        run.debug(&format!("progress could not be shown: {failure}"));
    }
}

/// Leaves what there is so far with the host, in case that the run is ended by force.
pub(crate) fn keep(run: &Run, text: &str) {
    if let Err(failure) = run.partial(text) {
        run.warn(&format!("what there is so far could not be kept: {failure}"));
    }
}
