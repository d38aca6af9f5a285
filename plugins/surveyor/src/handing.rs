//! Handing parts to children, a few at a time, and taking in what they bring back.
//!
//! Children read what this run would read, with the same tools and within its limits. Where the host does not let it
//! hand out, or a child could not be started, this run reads by itself.

use std::ops::Range;

use checkrein_guest::prelude::*;

use crate::asking::{Asker, Ended, reserve};
use crate::errand::{Gathered, Input};
use crate::options::Options;
use crate::reading::Reader;
use crate::report;
use crate::survey::{Reading, Survey, keep, say};
use crate::words;

/// Bytes of the errands of one call, and about as many of what they bring back beside names.
const CALL: usize = 1 << 20;

/// Bytes of one errand.
const ERRAND: usize = 512 << 10;

/// How many children may be started now, of so many that are wanted; or why none.
fn at_once(run: &Run, wanted: usize) -> Result<usize, String> {
    let capacity = run.delegation_capacity().map_err(|failure| failure.message)?;
    if !capacity.same_agent {
        return Err("tasks may be handed to other agents only".to_owned());
    }
    match wanted.min(usize::try_from(capacity.tasks()).unwrap_or(usize::MAX)) {
        0 => Err("the host lets this run start no more of them".to_owned()),
        children => Ok(children),
    }
}

impl Survey {
    /// Reads all parts.
    pub(crate) fn read(&mut self, asker: &Asker<'_>) -> Result<(), Ended> {
        let reader = Reader::new(self.ground.clone(), self.options.clone());
        let mut children = if self.parts.len() < 2 { 0 } else { self.options.children };
        let mut next = 0;
        while next < self.parts.len() {
            let handed = match children {
                0 => 0,
                most => match self.hand_out(asker, next, most)? {
                    Some(handed) => handed,
                    None => {
                        children = 0;
                        0
                    }
                },
            };
            let end = next + handed.max(1);
            for place in next..end {
                if let Reading::Ahead = self.parts[place].reading {
                    // What did not work once would cost time again.
                    children = if handed > 0 { 0 } else { children };
                    self.read_here(asker, &reader, place)?;
                }
            }
            next = end;
            if next < self.parts.len() {
                keep(asker.run(), &report::render(self));
            }
        }
        Ok(())
    }

    /// Hands out parts from `next` on and says how many; none when the host does not let it. A part that is still
    /// ahead afterwards is to be read here.
    fn hand_out(
        &mut self,
        asker: &Asker<'_>,
        next: usize,
        children: usize,
    ) -> Result<Option<usize>, Ended> {
        asker.check()?;
        let run = asker.run();
        let children = match at_once(run, children) {
            Ok(children) => children,
            Err(why) => {
                say(run, &format!("no children, because {}", words::plain(&why)));
                return Ok(None);
            }
        };
        let left = self.parts.len() - next;
        // No call has one part where another has many.
        let most = left.div_ceil(left.div_ceil(children));
        let tasks = self.tasks(asker, next..next + most);
        let handed = next..next + tasks.len();
        if tasks.is_empty() {
            return Ok(Some(0));
        }
        say(run, &self.announcement(&handed));
        let outcome = match run.delegate(DelegateRequest::new(tasks)) {
            Ok(outcome) => outcome,
            Err(Failure { stop: Some(stop), .. }) => return Err(Ended::Stopped(stop)),
            Err(failure) => {
                say(run, &format!("no children, because {}", words::plain(&failure.message)));
                return Ok(None);
            }
        };
        let mut results = outcome.results;
        results.sort_by_key(|result| result.task);
        for (place, result) in handed.clone().zip(results) {
            self.take_back(run, place, &result);
        }
        // Also children that could do nothing about it were stopped together with this run.
        asker.check()?;
        Ok(Some(handed.len()))
    }

    /// One task for each part, as far as they can go out together.
    fn tasks(&self, asker: &Asker<'_>, places: Range<usize>) -> Vec<ChildTask> {
        let batch = (asker.batch() / places.len().max(1)).max(1);
        let most = CALL / places.len().max(1);
        let time = asker.run().budget("wall-time");
        let mut bytes = 0;
        let mut tasks = Vec::with_capacity(places.len());
        for place in places {
            let options = Options { batch, ..self.options.clone() };
            let files = &self.inventory.files[self.parts[place].part.files.clone()];
            let input = Input::new(&self.ground, options, files, most);
            let Ok(mut task) = ChildTask::new(format!("read {}", self.called(place))).input(&input)
            else {
                break;
            };
            bytes += task.input.len();
            if task.input.len() > ERRAND || bytes > CALL {
                break;
            }
            if let Some(time) = &time {
                // What a child cannot use up is there for the report.
                let left = time.left.saturating_sub(reserve(time));
                task = task.limit("wall-time", left);
            }
            tasks.push(task);
        }
        tasks
    }

    /// Takes in what became of a part.
    fn take_back(&mut self, run: &Run, place: usize, result: &TaskResult) {
        let why = || {
            let detail = words::first(&words::plain(&result.detail), 200);
            if detail.is_empty() { result.status.clone() } else { detail }
        };
        // The report says by itself what stopped the whole survey.
        let told = result.status == "interrupted" && run.stop_requested().is_some();
        let cut = |files, why| Reading::Cut { files, why: (!told).then_some(why) };
        self.parts[place].reading = match Gathered::from_text(&result.output) {
            Some(gathered) => {
                self.take(gathered.findings);
                match gathered.ended {
                    None if result.is_completed() => Reading::Done,
                    Some(ended) if result.is_completed() => cut(gathered.files, ended),
                    None | Some(_) => cut(gathered.files, why()),
                }
            }
            // It could not be started, or what it brought back did not pass.
            None if result.is_completed() || result.status == "failed" => {
                run.warn(&format!("{} is read here: {}", self.called(place), why()));
                Reading::Ahead
            }
            None => cut(0, why()),
        };
    }

    /// Reads a part in this run.
    fn read_here(&mut self, asker: &Asker<'_>, reader: &Reader, place: usize) -> Result<(), Ended> {
        say(asker.run(), &self.called(place));
        let mut gathered = Gathered::default();
        let files = &self.inventory.files[self.parts[place].part.files.clone()];
        let finds = self.options.max_findings;
        let result = gathered.read(reader, asker, files, finds, |_| Ok(()));
        self.take(gathered.findings);
        self.parts[place].reading = match result {
            Ok(()) => Reading::Done,
            Err(_) => Reading::Cut { files: gathered.files, why: None },
        };
        result
    }

    fn called(&self, place: usize) -> String {
        let part = &self.parts[place].part;
        format!(
            "part {} of {}: {} ({}, {})",
            place + 1,
            self.parts.len(),
            words::plain(&part.name),
            words::count(part.files.len() as u64, "file", "files"),
            words::size(part.bytes),
        )
    }

    fn announcement(&self, handed: &Range<usize>) -> String {
        let all = self.parts.len();
        match handed.len() {
            1 => format!("part {} of {all} goes to a child", handed.end),
            children => {
                format!(
                    "parts {} to {} of {all} go to {children} children",
                    handed.start + 1,
                    handed.end
                )
            }
        }
    }
}
