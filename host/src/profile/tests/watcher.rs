//! Noticing that a directory of profiles has changed.

use std::fs;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use super::super::{Places, Wanted, Watcher};
use super::{poll, runtime, soon};

fn write(directory: &Path, name: &str, text: &str) {
    fs::create_dir_all(directory.join(name)).unwrap();
    fs::write(directory.join(name).join("profile.toml"), text).unwrap();
}

fn names(wanted: &[Wanted]) -> Vec<&str> {
    wanted.iter().map(|wanted| &*wanted.name).collect()
}

/// Both ways of noticing see profiles come, change and go, and one change each.
fn notices(watch: impl Fn(&Path) -> Watcher) {
    let (runtime, directory) = (runtime(), tempfile::tempdir().unwrap());
    let _in = runtime.enter();
    write(directory.path(), "a", "");
    let mut watcher = watch(directory.path());
    assert!(poll(pin!(watcher.changed())).is_pending(), "what was there is no change");
    write(directory.path(), "b", "");
    write(directory.path(), "c", "");
    assert_eq!(names(&soon(&runtime, watcher.changed()).unwrap()), ["a", "b", "c"]);
    write(directory.path(), "b", "changed");
    assert_eq!(soon(&runtime, watcher.changed()).unwrap().len(), 3);
    fs::remove_dir_all(directory.path().join("a")).unwrap();
    fs::write(directory.path().join("b").join("next"), "again").unwrap();
    fs::rename(directory.path().join("b").join("next"), directory.path().join("b/profile.toml"))
        .unwrap();
    assert_eq!(names(&soon(&runtime, watcher.changed()).unwrap()), ["b", "c"]);
    fs::remove_dir_all(directory.path()).unwrap();
    assert!(soon(&runtime, watcher.changed()).is_err());
    assert!(poll(pin!(watcher.changed())).is_pending(), "it is told once");
}

#[test]
fn a_watched_directory_tells_of_its_changes() {
    let begun = Instant::now();
    notices(Watcher::new);
    assert!(begun.elapsed() < Duration::from_secs(25), "it was polled, and not told by the system");
}

#[test]
fn a_polled_directory_tells_of_its_changes() {
    notices(Watcher::polling);
}

/// Whoever waits for a change may have something else to do meanwhile.
#[test]
fn a_change_is_told_by_the_next_call_when_one_was_given_up() {
    let (runtime, directory) = (runtime(), tempfile::tempdir().unwrap());
    let _in = runtime.enter();
    let mut watcher = Watcher::new(directory.path());
    let begun = Instant::now();
    write(directory.path(), "a", "");
    // It has heard of it, and waits for more of the kind.
    let short = Duration::from_millis(50);
    let given_up = async { tokio::time::timeout(short, watcher.changed()).await.is_err() };
    assert!(soon(&runtime, given_up));
    assert_eq!(names(&soon(&runtime, watcher.changed()).unwrap()), ["a"]);
    assert!(begun.elapsed() < Duration::from_secs(25), "it was polled, and not told by the system");
}

/// What was there, was acted on by somebody else when it was not there, and is there again, is a change.
#[test]
fn what_comes_back_is_a_change_for_whoever_has_acted_meanwhile() {
    let (runtime, directory) = (runtime(), tempfile::tempdir().unwrap());
    let _in = runtime.enter();
    write(directory.path(), "a", "");
    let mut watcher = Watcher::new(directory.path());
    let begun = Instant::now();
    watcher.saw(&[]);
    assert_eq!(names(&soon(&runtime, watcher.changed()).unwrap()), ["a"]);
    assert!(begun.elapsed() < Duration::from_secs(25), "it was polled, and not told at once");
}

/// A store that is written all the time is no change of the configuration.
#[tokio::test(start_paused = true)]
async fn what_else_goes_on_in_a_home_is_no_change() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a", "same");
    let mut watcher = Watcher::new(directory.path());
    fs::write(directory.path().join("a").join("work.json"), "{}").unwrap();
    write(directory.path(), "a", "same");
    let long = Duration::from_secs(300);
    assert!(tokio::time::timeout(long, watcher.changed()).await.is_err());
}

/// Files and directories beside the profiles are watched, too, and nothing else of the folders in which they are.
#[test]
fn places_beside_the_directory_are_told_of() {
    let (runtime, directory) = (runtime(), tempfile::tempdir().unwrap());
    let beside = tempfile::tempdir().unwrap();
    let _in = runtime.enter();
    write(directory.path(), "a", "");
    let (key, plugins) = (beside.path().join("key"), beside.path().join("plugins"));
    fs::create_dir(&plugins).unwrap();
    let mut watcher = Watcher::new(directory.path());
    let begun = Instant::now();
    let told = |watcher: &mut Watcher| {
        assert_eq!(names(&soon(&runtime, watcher.changed()).unwrap()), ["a"]);
    };
    let places = Places { files: [key.clone()].into(), directories: [plugins.clone()].into() };
    watcher.attend_to(places.clone());
    told(&mut watcher);
    watcher.attend_to(places);
    assert!(poll(pin!(watcher.changed())).is_pending(), "it is told once");
    fs::write(&key, "secret").unwrap();
    told(&mut watcher);
    fs::create_dir(plugins.join("one")).unwrap();
    told(&mut watcher);
    fs::write(plugins.join("one").join("plugin.toml"), "").unwrap();
    told(&mut watcher);
    assert!(begun.elapsed() < Duration::from_secs(25), "it was polled, and not told by the system");
    fs::write(beside.path().join("other"), "").unwrap();
    let short = Duration::from_secs(1);
    let silent = async { tokio::time::timeout(short, watcher.changed()).await.is_err() };
    assert!(soon(&runtime, silent));
    watcher.attend_to(Places::default());
    fs::write(&key, "another").unwrap();
    let silent = async { tokio::time::timeout(short, watcher.changed()).await.is_err() };
    assert!(soon(&runtime, silent), "it is not watched any more");
}

/// Whoever writes again and again does not keep a change back for ever. The clock is driven: each write comes before it has been
/// quiet for long enough.
#[tokio::test(start_paused = true)]
async fn a_change_is_told_in_the_end_though_others_follow_without_a_pause() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a", "");
    let mut watcher = Watcher::new(directory.path());
    let begun = tokio::time::Instant::now();
    let writes = async {
        for round in 0..500 {
            write(directory.path(), "a", &round.to_string());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let told = tokio::select! {
        told = watcher.changed() => told.unwrap(),
        () = writes => panic!("nothing was told in {:?}", begun.elapsed()),
    };
    assert_eq!(names(&told), ["a"]);
    let (least, most) = (Duration::from_millis(1_900), Duration::from_millis(2_200));
    assert!((least..=most).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}
