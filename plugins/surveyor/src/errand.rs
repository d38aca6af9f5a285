//! A part of a survey on its way to another run, and what that run brings back.

use checkrein_guest::prelude::*;

use crate::asking::{Asker, Ended};
use crate::findings::Findings;
use crate::inventory::{File, Ground};
use crate::options::Options;
use crate::reading::Reader;
use crate::survey::{keep, say};
use crate::words;

/// So many files are read in one go, for each call that goes out at once.
const SLICE: usize = 200;

/// What the name of a file takes beside its letters.
const NAMING: usize = 32;

/// A part of a survey, as a child gets it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Errand {
    ground: Ground,
    options: Options,
    /// The path of each file, and its size.
    files: Vec<(String, u64)>,
    /// How many bytes may be brought back beside the names of the files.
    most: usize,
}

/// The input of a run that is sent on an errand.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Input {
    part: Errand,
}

impl Input {
    /// Asks for the reading of these files.
    pub(crate) fn new(ground: &Ground, options: Options, files: &[File], most: usize) -> Input {
        let files = files.iter().map(|file| (file.path.clone(), file.size)).collect();
        Input { part: Errand { ground: ground.clone(), options, files, most } }
    }
}

impl Errand {
    /// The errand that a run is sent on; none when it is to survey for itself.
    pub(crate) fn of(task: &Task) -> Option<Errand> {
        serde_json::from_str(&task.input).ok().map(|input: Input| input.part)
    }

    /// Reads the files, and brings back what was found, also when it has to end early.
    pub(crate) fn run(self, run: &Run) -> Result<String, Failure> {
        let Errand { ground, options, files, most } = self;
        let asker = Asker::new(run, options.batch)?;
        let most = most + files.iter().map(|(path, _)| path.len() + NAMING).sum::<usize>();
        let file = |(path, size)| File { path, size, ..File::default() };
        let files: Vec<File> = files.into_iter().map(file).collect();
        let all = words::count(files.len() as u64, "file", "files");
        let finds = options.max_findings;
        let reader = Reader::new(ground, options);
        let mut gathered = Gathered::default();
        let ended = gathered.read(&reader, &asker, &files, finds, |gathered| {
            // Here a stop finds the run between two slices.
            if let Err(Failure { stop: Some(stop), .. }) = run.checkpoint("slice") {
                return Err(Ended::Stopped(stop));
            }
            if gathered.files > 0 {
                keep(run, &gathered.to_text(most));
            }
            say(run, &format!("{} of {all} read", words::number(gathered.files as u64)));
            Ok(())
        });
        gathered.ended = ended.err().map(|ended| ended.to_string());
        Ok(gathered.to_text(most))
    }
}

/// What came of reading files.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gathered {
    /// What was found.
    pub(crate) findings: Findings,
    /// How many of the files are read, counted from the first.
    pub(crate) files: usize,
    /// Why not all of them.
    pub(crate) ended: Option<String>,
}

impl Gathered {
    /// Reads files, slice by slice, and asks `before` each slice. At most `finds` of each list are kept.
    pub(crate) fn read(
        &mut self,
        reader: &Reader,
        asker: &Asker<'_>,
        files: &[File],
        finds: usize,
        before: impl Fn(&Gathered) -> Result<(), Ended>,
    ) -> Result<(), Ended> {
        for slice in files.chunks(SLICE * asker.batch().max(1)) {
            before(self)?;
            let mut findings = Findings::default();
            let result = reader.read(asker, slice, &mut findings);
            self.findings.merge(findings, finds);
            result?;
            self.files += slice.len();
        }
        Ok(())
    }

    /// All of it as JSON of about `most` bytes. Where there is more, lists are cut that only show the first ones.
    fn to_text(&self, most: usize) -> String {
        let text = |gathered: &Gathered| serde_json::to_string(gathered).unwrap_or_default();
        let whole = text(self);
        if whole.len() <= most {
            return whole;
        }
        let (mut findings, mut finds) = (self.findings.clone(), usize::MAX);
        loop {
            finds = findings.longest().min(finds) / 2;
            findings.cut(finds);
            let cut = Gathered { findings, files: self.files, ended: self.ended.clone() };
            let short = text(&cut);
            if short.len() <= most || finds == 0 {
                return short;
            }
            findings = cut.findings;
        }
    }

    /// Reads what a child brought back.
    pub(crate) fn from_text(text: &str) -> Option<Gathered> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Marker;
    use crate::markers::Kind;
    use crate::secrets::Secret;

    fn gathered(finds: u64) -> Gathered {
        let mut gathered = Gathered { files: 7, ..Gathered::default() };
        for line in 0..finds {
            let path = format!("/work/{}", "p".repeat(100));
            gathered.findings.markers.push(Marker {
                kind: Kind::Todo,
                path: path.clone(),
                line,
                text: "t".repeat(100),
            });
            gathered.findings.secrets.push(Secret {
                in_tests: false,
                path: path.clone(),
                line,
                name: "value of a key".to_owned(),
                masked: "K = …".to_owned(),
            });
            gathered.findings.troubles.add(format!("{path}{line}"), "not read");
        }
        gathered.findings.secret_count = finds;
        gathered
    }

    #[test]
    fn what_is_brought_back_has_a_bound_and_the_first_finds_stay() {
        for finds in [0, 1, 100, 5_000] {
            for most in [100_000, 10_000, 2_000] {
                let whole = gathered(finds);
                let text = whole.to_text(most);
                assert!(text.len() <= most, "{finds}: {} of {most}", text.len());
                let back = Gathered::from_text(&text).unwrap();
                assert_eq!((back.files, back.findings.secret_count), (7, finds));
                assert_eq!(back.findings.troubles.count(), whole.findings.troubles.count());
                let kept = back.findings.markers.len();
                assert_eq!(back.findings.markers, whole.findings.markers[..kept]);
                assert!(most < 100_000 || kept as u64 >= finds.min(100), "{kept} of {finds}");
            }
        }
    }

    #[test]
    fn an_errand_is_told_apart_from_options() {
        let ground = Ground::new(vec!["/work".to_owned()]);
        let files = [File { path: "/work/a".to_owned(), size: 3, ..File::default() }];
        let input = Input::new(&ground, Options::default(), &files, 10);
        let task = |input: String| Task { input, ..Task::default() };
        let errand = Errand::of(&task(serde_json::to_string(&input).unwrap()));
        assert_eq!(errand, Some(input.part));
        for other in ["", "{}", "[]", "{\"max-findings\": 3}", "{\"part\": 1}"] {
            assert_eq!(Errand::of(&task(other.to_owned())), None, "{other}");
        }
    }
}
