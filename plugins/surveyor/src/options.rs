//! What can be set, by the operator in the configuration and by whoever gives the task in its input.

use checkrein_guest::prelude::*;

/// How to survey.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Options {
    /// The folders to survey; empty for all directories of the task.
    pub(crate) folders: Vec<String>,
    /// Only files that match one of these globs.
    pub(crate) include: Vec<String>,
    /// Leave these out.
    pub(crate) exclude: Vec<String>,
    /// How many entries of each list of findings are shown.
    pub(crate) max_findings: usize,
    /// How many rows of each table are shown.
    pub(crate) max_rows: usize,
    /// Whether names that start with a dot are looked at.
    pub(crate) hidden: bool,
    /// Whether what git ignores is left out.
    pub(crate) gitignore: bool,
    /// How many files are surveyed.
    pub(crate) max_files: usize,
    /// How large a file may be to be read.
    pub(crate) max_file_bytes: u64,
    /// How many tool calls run at once.
    pub(crate) batch: usize,
    /// How many children read parts at once; 0 to read all of them in this run.
    pub(crate) children: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            folders: Vec::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            max_findings: 30,
            max_rows: 12,
            hidden: true,
            gitignore: true,
            max_files: 100_000,
            max_file_bytes: 32 << 20,
            batch: 8,
            children: 4,
        }
    }
}

impl Options {
    /// The options of this run: those of the task's input over those of the operator.
    pub(crate) fn of(run: &Run, task: &Task) -> Result<Options, Failure> {
        let mut table: serde_json::Map<String, Value> = run.config()?;
        let input: Option<serde_json::Map<String, Value>> = task.input_as().context(
            "the input of a survey is a JSON object of options, such as {\"max-findings\": 50}",
        )?;
        // Both spellings are in use: TOML likes dashes, JSON underscores.
        table
            .extend(input.into_iter().flatten().map(|(key, value)| (key.replace('_', "-"), value)));
        let options: Options = serde_json::from_value(Value::Object(table)).map_err(|error| {
            Failure::invalid(format!("an option of the survey does not fit: {error}"))
        })?;
        options.check(task)
    }

    fn check(mut self, task: &Task) -> Result<Options, Failure> {
        let within = |name: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Failure::invalid(format!(
                "the option `{name}` is {value}; it must be from {least} to {most}"
            )))
        };
        within("max-findings", self.max_findings as u64, 1, 1_000)?;
        within("max-rows", self.max_rows as u64, 1, 1_000)?;
        within("max-files", self.max_files as u64, 1, 200_000)?;
        within("max-file-bytes", self.max_file_bytes, 1, 1 << 40)?;
        within("batch", self.batch as u64, 1, 64)?;
        within("children", self.children as u64, 0, 16)?;
        if self.folders.is_empty() {
            self.folders.clone_from(&task.directories);
        }
        for folder in &mut self.folders {
            if folder.len() > 1 {
                folder.truncate(folder.trim_end_matches('/').len().max(1));
            }
        }
        self.folders.sort();
        self.folders.dedup();
        if self.folders.is_empty() {
            return Err(Failure::invalid(
                "there is nothing to survey: this run was given no directory; give it one, such as `--dir .`",
            ));
        }
        // A folder within another one would be counted twice.
        let all = self.folders.clone();
        self.folders.retain(|folder| !all.iter().any(|other| is_below(folder, other)));
        Ok(self)
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/'))
        .is_some_and(|rest| rest.starts_with('/') && path != folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(folders: &[&str], directories: &[&str]) -> Vec<String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let task = Task { directories: owned(directories), ..Task::default() };
        Options { folders: owned(folders), ..Options::default() }
            .check(&task)
            .map_or(Vec::new(), |o| o.folders)
    }

    #[test]
    fn folders_are_those_of_the_task_unless_it_says_otherwise() {
        assert_eq!(check(&[], &["/work", "/data"]), ["/data", "/work"]);
        assert_eq!(check(&["/work/src/"], &["/work"]), ["/work/src"]);
        assert_eq!(check(&[], &[]), [""; 0]);
    }

    #[test]
    fn no_folder_is_surveyed_twice() {
        assert_eq!(
            check(&["/work/src", "/work", "/workshop", "/work"], &[]),
            ["/work", "/workshop"]
        );
        assert_eq!(check(&["/", "/work"], &[]), ["/"]);
    }
}
