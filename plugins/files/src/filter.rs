//! Which entries of a directory tree an agent wants to see: globs, hidden names, ignore files.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::rc::Rc;

use checkrein_guest::prelude::*;
use checkrein_reading::{Kind, paths};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Ignore files longer than this are cut: nobody writes such a file by hand.
const MAX_RULES: u64 = 1 << 20;

/// What the arguments of a tool say about entries.
#[derive(Debug)]
pub(crate) struct Filter {
    include: Globs,
    exclude: Globs,
    hidden: Hidden,
    ignored: Ignored,
}

/// What to do with names that start with a dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// As with all others.
    Show,
    /// Leave them out, and all below them.
    Skip,
}

/// What to do with what `.gitignore` files name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ignored {
    /// As with all others; ignore files are not even read.
    Show,
    /// Leave it out, and all below it; likewise the folder `.git`.
    Skip,
}

/// What becomes of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is shown; a directory is entered.
    Keep,
    /// It is not shown, but a directory is entered, for there may be something in it.
    Pass,
    /// Left out as hidden.
    Hidden,
    /// Left out as ignored.
    Ignored,
    /// Left out as excluded.
    Excluded,
}

impl Filter {
    /// The filter for a walk from `start`.
    pub(crate) fn new(
        start: &Path,
        include: &[String],
        exclude: &[String],
        hidden: Hidden,
        ignored: Ignored,
    ) -> Result<Filter, Failure> {
        Ok(Filter {
            include: Globs::new("include", start, include)?,
            exclude: Globs::new("exclude", start, exclude)?,
            hidden,
            ignored,
        })
    }

    /// What becomes of the entry `name` at `relative` below the start.
    pub(crate) fn verdict(
        &self,
        rules: Option<&Rules>,
        path: &Path,
        relative: &str,
        name: &str,
        kind: Kind,
    ) -> Verdict {
        if self.hidden == Hidden::Skip && name.starts_with('.') {
            return Verdict::Hidden;
        }
        if self.ignored == Ignored::Skip {
            let directory = kind == Kind::Dir;
            if name == ".git" || rules.is_some_and(|rules| rules.ignore(path, directory)) {
                return Verdict::Ignored;
            }
        }
        if self.exclude.matches(relative, name) {
            return Verdict::Excluded;
        }
        if self.include.is_empty() || self.include.matches(relative, name) {
            Verdict::Keep
        } else {
            Verdict::Pass
        }
    }

    /// The ignore rules in force in `directory`, below which `above` are.
    pub(crate) fn rules(
        &self,
        directory: &Path,
        above: Option<Rc<Rules>>,
        repository: bool,
    ) -> Option<Rc<Rules>> {
        if self.ignored == Ignored::Show {
            return None;
        }
        // A repository within another has rules of its own.
        let above = if repository {
            Rules::read(directory, &directory.join(".git/info/exclude"), None)
        } else {
            above
        };
        Rules::read(directory, &directory.join(".gitignore"), above)
    }

    /// The ignore rules that directories above the start lay down.
    pub(crate) fn rules_above(&self, start: &Path) -> Option<Rc<Rules>> {
        if self.ignored == Ignored::Show {
            return None;
        }
        let is_repository = |directory: &Path| directory.join(".git").symlink_metadata().is_ok();
        if is_repository(start) {
            return None;
        }
        let roots = paths::roots();
        let granted = |directory: &&Path| {
            roots.is_empty() || roots.iter().any(|root| directory.starts_with(root))
        };
        let above: Vec<&Path> = start.ancestors().skip(1).take_while(granted).collect();
        // Without a repository around it, an ignore file above the start says nothing about it.
        let top = above.iter().position(|directory| is_repository(directory))?;
        let mut rules = None;
        for (place, directory) in above.iter().enumerate().take(top + 1).rev() {
            rules = self.rules(directory, rules, place == top);
        }
        rules
    }
}

/// Ignore rules of one file, on top of those above it.
#[derive(Debug)]
pub(crate) struct Rules {
    rules: Gitignore,
    above: Option<Rc<Rules>>,
}

impl Rules {
    fn read(directory: &Path, file: &Path, above: Option<Rc<Rules>>) -> Option<Rc<Rules>> {
        let Ok(file) = fs::File::open(file) else { return above };
        let mut bytes = Vec::new();
        // What cannot be read whole is used as far as it goes.
        drop(file.take(MAX_RULES).read_to_end(&mut bytes));
        let mut builder = GitignoreBuilder::new(directory);
        for line in String::from_utf8_lossy(&bytes).lines() {
            // Git ignores a line that is no pattern, and so do we.
            drop(builder.add_line(None, line));
        }
        match builder.build() {
            Ok(rules) if !rules.is_empty() => Some(Rc::new(Rules { rules, above })),
            _ => above,
        }
    }

    /// The deepest file that says anything about the path decides.
    fn ignore(&self, path: &Path, directory: bool) -> bool {
        let mut layer = Some(self);
        while let Some(rules) = layer {
            match rules.rules.matched(path, directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => layer = rules.above.as_deref(),
            }
        }
        false
    }
}

/// Patterns of one argument: those with a slash go with the path, the others with the name.
#[derive(Debug)]
struct Globs {
    names: GlobSet,
    paths: GlobSet,
}

impl Globs {
    fn new(argument: &str, start: &Path, patterns: &[String]) -> Result<Globs, Failure> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for given in patterns {
            let wrong = |error: globset::Error| {
                Failure::invalid(format!(
                    "`{argument}` has a pattern that is no glob: `{given}`: {}",
                    error.kind()
                ))
            };
            let glob = |pattern: &str| {
                GlobBuilder::new(pattern).literal_separator(true).build().map_err(wrong)
            };
            let below =
                given.strip_prefix(&paths::show(start)).filter(|rest| rest.starts_with('/'));
            let pattern = below.unwrap_or(given).trim_start_matches("./").trim_start_matches('/');
            match pattern.strip_suffix('/') {
                // A directory: itself, and everything below it.
                Some(directory) => {
                    let prefix = if directory.contains('/') { "" } else { "**/" };
                    paths.add(glob(&format!("{prefix}{directory}"))?);
                    paths.add(glob(&format!("{prefix}{directory}/**"))?);
                }
                None if pattern.contains('/') || below.is_some() => {
                    paths.add(glob(pattern)?);
                }
                None => {
                    names.add(glob(pattern)?);
                }
            }
        }
        let build = |builder: &GlobSetBuilder| {
            builder
                .build()
                .map_err(|error| Failure::invalid(format!("`{argument}` is too much: {error}")))
        };
        Ok(Globs { names: build(&names)?, paths: build(&paths)? })
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }

    fn matches(&self, relative: &str, name: &str) -> bool {
        self.names.is_match(name) || self.paths.is_match(relative)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(patterns: &[&str], relative: &str) -> bool {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let globs = Globs::new("include", Path::new("/work"), &patterns).expect("globs");
        globs.matches(relative, relative.rsplit('/').next().unwrap_or(relative))
    }

    #[test]
    fn a_pattern_without_a_slash_is_about_names() {
        assert!(matches(&["*.rs"], "main.rs"));
        assert!(matches(&["*.rs"], "src/deep/main.rs"));
        assert!(matches(&["*.{rs,toml}"], "a/Cargo.toml"));
        assert!(!matches(&["*.rs"], "src/main.rst"));
    }

    #[test]
    fn a_pattern_with_a_slash_is_about_paths() {
        assert!(matches(&["src/*.rs"], "src/main.rs"));
        assert!(!matches(&["src/*.rs"], "src/deep/main.rs"));
        assert!(matches(&["src/**/*.rs"], "src/deep/main.rs"));
        assert!(matches(&["./src/*"], "src/main.rs"));
        assert!(matches(&["/work/src/*"], "src/main.rs"));
        assert!(matches(&["/work/*.rs"], "main.rs"));
        assert!(!matches(&["/work/*.rs"], "src/main.rs"));
    }

    #[test]
    fn a_pattern_that_ends_in_a_slash_is_a_directory_with_all_below() {
        assert!(matches(&["target/"], "target"));
        assert!(matches(&["target/"], "a/target/x/y"));
        assert!(matches(&["a/target/"], "a/target/x"));
        assert!(!matches(&["a/target/"], "b/a/target/x"));
        assert!(!matches(&["target/"], "targets"));
    }

    #[test]
    fn a_wrong_pattern_is_named() {
        let failure = Globs::new("exclude", Path::new("/"), &["a[".to_owned()]).expect_err("wrong");
        assert!(
            failure.message.contains("`exclude`") && failure.message.contains("`a[`"),
            "{failure}"
        );
    }
}
