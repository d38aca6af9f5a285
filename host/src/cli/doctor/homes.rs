//! Homes: whether each is free, its database whole, and what its configuration names there. All of it is only read.

use std::path::Path;
use std::time::Duration;

use checkrein::DATABASE;
use checkrein::plugin::Configuration;
use checkrein::profile::{HomeLock, Wanted, listing};
use checkrein::store::{Checked, Look, Store};

use super::check::{Check, words};
use super::{parts, places};
use crate::cli::text;

/// How long one database is read.
const READING: Duration = Duration::from_secs(10);

/// A home with its lock and its database.
pub(super) async fn home(home: &Path) -> Vec<Check> {
    vec![places::home(home), lock(home), database(home).await]
}

/// All profiles of a directory.
pub(super) async fn profiles(directory: &Path) -> Vec<Check> {
    let name = "profiles";
    let advice = "make it, or name another directory with `profiles` in [serve]";
    let listed = match listing(directory) {
        Ok(listed) => listed,
        Err(error) => {
            let saw = format!("{} cannot be read: {error}", directory.display());
            return vec![Check::problem(name, saw, advice)];
        }
    };
    let saw = format!("{} in {}", listed.len(), directory.display());
    let mut checks = vec![match listed.is_empty() {
        true => {
            Check::warning(name, saw, "make a folder with a `profile.toml` in it for each profile")
        }
        false => Check::ok(name, saw),
    }];
    for wanted in &listed {
        let mut of_it = home(&wanted.home).await;
        of_it.extend(configured(wanted));
        checks.extend(of_it.into_iter().map(|check| Check {
            name: format!("profile {} {}", wanted.name, check.name),
            ..check
        }));
    }
    checks
}

/// What the configuration of a profile says, and names.
fn configured(wanted: &Wanted) -> Vec<Check> {
    let name = "configuration";
    let shown = wanted.configuration.display();
    let advice = "mend it; until then the profile is not served, or as it was before";
    let configuration = match Configuration::load(&wanted.configuration) {
        Ok(configuration) => configuration,
        Err(error) => return vec![Check::problem(name, words(&error), advice)],
    };
    let first = match configuration.host_wide() {
        Some(key) => {
            let saw = format!("{shown}: `{key}` is set for the whole host, in its configuration");
            Check::problem(name, saw, advice)
        }
        None => Check::ok(name, format!("{shown} can be used")),
    };
    let named = parts::models(&configuration).into_iter().chain(parts::secrets(&configuration));
    [first].into_iter().chain(named).collect()
}

/// Who has the home.
fn lock(home: &Path) -> Check {
    let name = "lock";
    match HomeLock::holder_of(home) {
        Ok(Some(holder)) => Check::ok(name, format!("the home is served by {holder}")),
        Ok(None) => Check::ok(name, "nobody serves the home"),
        Err(error) => {
            let saw = format!("the lock of {} cannot be read: {error}", home.display());
            Check::problem(name, saw, "give the home to the user that runs this")
        }
    }
}

async fn database(home: &Path) -> Check {
    let name = "database";
    let path = home.join(DATABASE);
    let shown = path.display();
    if std::fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() == 0)
        || matches!(std::fs::metadata(&path), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
    {
        return Check::ok(name, format!("{shown}: nothing was recorded yet"));
    }
    let advice = "put a backup in its place, or move it away: sessions that can be read can be carried over with `checkrein session export`";
    let look = match Look::open(&path) {
        Ok(look) => look,
        Err(error) => {
            let words = words(&error);
            let place = format!("{shown}: ");
            let place = if words.starts_with(&place) { String::new() } else { place };
            return Check::problem(name, format!("{place}{words}"), advice);
        }
    };
    let seen = format!("{shown}: schema {}, {}", look.version(), text::size(look.health().bytes));
    match look.check(READING).await {
        Ok(Checked::Whole) => Check::ok(name, format!("{seen}, whole")),
        Ok(Checked::Unfinished) => {
            let saw = format!("{seen}, whole as far as it was read in {}", text::time(READING));
            Check::warning(name, saw, "read all of it with `sqlite3 FILE 'PRAGMA quick_check'`")
        }
        Ok(Checked::Damaged(damage)) => {
            Check::problem(name, format!("{seen}, damaged: {damage}"), advice)
        }
        Err(error) => {
            let saw = format!("{seen}, not read to its end: {}", words(&error));
            Check::warning(name, saw, "ask again; somebody may have begun to write it meanwhile")
        }
    }
}
