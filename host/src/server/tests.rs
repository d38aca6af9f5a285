//! Tests of this room: tokens in real files, and buckets on a clock that the test drives.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use tempfile::TempDir;

use super::rate::Buckets;
use super::{
    NewToken, Peer, Profiles, RateTable, Rates, Refusal, Target, TokenId, Tokens, TokensError, Verb,
};

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new() -> Desk {
        Desk { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("tokens.toml")
    }

    fn tokens(&self) -> Tokens {
        Tokens::load(&self.file()).unwrap()
    }

    fn write(&self, text: &str, mode: u32) {
        fs::write(self.file(), text).unwrap();
        fs::set_permissions(self.file(), Permissions::from_mode(mode)).unwrap();
    }
}

fn only(names: &[&str]) -> Profiles {
    Profiles::Only(names.iter().map(|name| (*name).to_owned()).collect())
}

fn new(profiles: Profiles, verbs: &[Verb], expires: Option<Timestamp>) -> NewToken {
    NewToken { label: "ci".to_owned(), profiles, verbs: verbs.iter().copied().collect(), expires }
}

fn bearer(token: &str) -> Vec<u8> {
    format!("Bearer {token}").into_bytes()
}

fn later(seconds: i64) -> Timestamp {
    NOW.checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

#[test]
fn a_token_lets_in_whoever_has_it_for_what_it_is_good_for() {
    let desk = Desk::new();
    let mut tokens = desk.tokens();
    let new = new(only(&["home", "work"]), &[Verb::Read, Verb::Prompt], Some(later(60)));
    let (id, text) = tokens.add(new, NOW).unwrap();
    let header = bearer(text.expose());
    let check = |target, verb, now| tokens.check(Some(&header), target, verb, now);
    let home = Target::Profile("home");

    let principal = check(home, Verb::Prompt, NOW).unwrap();
    assert_eq!((&principal.token, &*principal.label), (&id, "ci"));
    assert!(check(Target::Profile("work"), Verb::Read, later(59)).is_ok());
    for (target, verb) in [
        (home, Verb::Stop),
        (home, Verb::Admin),
        (Target::Profile("other"), Verb::Read),
        (Target::Profile(""), Verb::Read),
        (Target::Host, Verb::Read),
    ] {
        assert_eq!(check(target, verb, NOW), Err(Refusal::OutOfScope), "{target:?} {verb}");
    }
    assert_eq!(check(home, Verb::Read, later(60)), Err(Refusal::Expired));
    assert_eq!(check(home, Verb::Stop, later(60)), Err(Refusal::Expired), "that goes first");
}

#[test]
fn no_verb_brings_another_along() {
    let desk = Desk::new();
    let mut tokens = desk.tokens();
    for verb in Verb::ALL {
        let (_, text) = tokens.add(new(Profiles::All, &[verb], None), NOW).unwrap();
        let header = bearer(text.expose());
        for other in Verb::ALL {
            for target in [Target::Host, Target::Profile("any")] {
                let allowed = tokens.check(Some(&header), target, other, NOW).is_ok();
                assert_eq!(allowed, verb == other);
            }
        }
    }
}

#[test]
fn whoever_has_no_token_that_is_good_is_refused_and_told_nothing_apart() {
    let desk = Desk::new();
    let mut tokens = desk.tokens();
    let (id, text) = tokens.add(new(Profiles::All, &[Verb::Read], Some(later(1))), NOW).unwrap();
    let text = text.expose();
    let other_secret = format!("checkrein_{id}_{}", "0".repeat(64));
    let other_id = text.replace(id.as_str(), "0123456789ab");
    let ask = |header: Option<&[u8]>| tokens.authenticate(header, NOW);
    assert!(ask(Some(format!("bEARER   {text}  ").as_bytes())).is_ok());
    assert_eq!(ask(None), Err(Refusal::Missing));
    for unknown in [other_secret, other_id] {
        assert_eq!(ask(Some(&bearer(&unknown))), Err(Refusal::Unknown));
    }
    for malformed in [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Basic {text}"),
        text.to_owned(),
        format!("Bearer {text}0"),
        format!("Bearer {}", &text[..text.len() - 1]),
        format!("Bearer {}", text.to_uppercase()),
        format!("Bearer {text} {text}"),
        format!("Bearer checkrein_{id}"),
    ] {
        assert_eq!(ask(Some(malformed.as_bytes())), Err(Refusal::Malformed), "{malformed}");
    }
    assert_eq!(ask(Some(b"Bearer \xff\xfe")), Err(Refusal::Malformed));

    let words = [Refusal::Malformed, Refusal::Unknown, Refusal::Expired].map(|it| it.to_string());
    assert!(words.iter().all(|other| *other == words[0]), "{words:?}");
}

#[test]
fn a_secret_is_in_the_answer_and_nowhere_else() {
    let desk = Desk::new();
    let mut tokens = desk.tokens();
    let (id, text) = tokens.add(new(Profiles::All, &[Verb::Read], None), NOW).unwrap();
    let (start, secret) = text.expose().rsplit_once('_').unwrap();
    assert_eq!((start, secret.len()), (&*format!("checkrein_{id}"), 64));
    let kept = fs::read_to_string(desk.file()).unwrap();
    let listed: Vec<_> = tokens.list().collect();
    let shown = format!(
        "{kept} {tokens:?} {listed:?} {} {text:?}",
        serde_json::to_string(&listed).unwrap()
    );
    assert!(!shown.contains(secret) && kept.contains(id.as_str()), "{kept}");
    let entry = &serde_json::to_value(&listed).unwrap()[0];
    assert!(entry.get("hash").is_none() && entry["profiles"] == "all", "{entry}");

    // What is kept lets nobody in either.
    let hash = kept.split("sha256:").nth(1).unwrap().split('"').next().unwrap();
    let header = bearer(&format!("checkrein_{id}_{hash}"));
    assert_eq!(tokens.authenticate(Some(&header), NOW), Err(Refusal::Unknown));
    let (_, again) = tokens.add(new(Profiles::All, &[Verb::Read], None), NOW).unwrap();
    assert_ne!(again.expose(), text.expose());
}

#[test]
fn a_revoked_token_is_good_for_nothing_also_after_a_restart() {
    let desk = Desk::new();
    let mut tokens = desk.tokens();
    let (id, text) = tokens.add(new(only(&["home"]), &[Verb::Read], None), NOW).unwrap();
    let (other, others) = tokens.add(new(Profiles::All, &[Verb::Stop], None), NOW).unwrap();
    let header = bearer(text.expose());
    assert!(desk.tokens().authenticate(Some(&header), NOW).is_ok(), "it outlives a restart");
    assert!(tokens.revoke(&id).unwrap());
    assert!(!tokens.revoke(&id).unwrap(), "there is none any more");
    for tokens in [&tokens, &desk.tokens()] {
        assert_eq!(tokens.authenticate(Some(&header), NOW), Err(Refusal::Unknown));
        assert!(tokens.authenticate(Some(&bearer(others.expose())), NOW).is_ok());
        assert_eq!(
            tokens.list().map(|listed| listed.id.clone()).collect::<Vec<_>>(),
            std::slice::from_ref(&other)
        );
    }
}

/// The command and the daemon have the same file.
#[test]
fn what_another_process_has_changed_is_kept_and_seen() {
    let desk = Desk::new();
    let (mut daemon, mut command) = (desk.tokens(), desk.tokens());
    let (_, text) = command.add(new(Profiles::All, &[Verb::Read], None), NOW).unwrap();
    let header = bearer(text.expose());
    assert_eq!(daemon.authenticate(Some(&header), NOW), Err(Refusal::Unknown));
    daemon.reload().unwrap();
    assert!(daemon.authenticate(Some(&header), NOW).is_ok());
    command.add(new(Profiles::All, &[Verb::Stop], None), NOW).unwrap();
    daemon.add(new(Profiles::All, &[Verb::Admin], None), NOW).unwrap();
    assert_eq!(desk.tokens().list().count(), 3);
}

#[test]
fn changes_at_the_same_time_are_all_kept() {
    let desk = Arc::new(Desk::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let desk = Arc::clone(&desk);
            scope.spawn(move || {
                let mut tokens = desk.tokens();
                for _ in 0..5 {
                    tokens.add(new(Profiles::All, &[Verb::Read], None), NOW).unwrap();
                }
            });
        }
    });
    assert_eq!(desk.tokens().list().count(), 40);
}

#[test]
fn the_file_is_the_owners_alone_and_is_refused_when_it_is_not() {
    let desk = Desk::new();
    desk.tokens().add(new(Profiles::All, &[Verb::Read], None), NOW).unwrap();
    assert_eq!(fs::metadata(desk.file()).unwrap().mode() & 0o777, 0o600);
    for mode in [0o640, 0o604, 0o620, 0o602, 0o601, 0o777] {
        fs::set_permissions(desk.file(), Permissions::from_mode(mode)).unwrap();
        let error = Tokens::load(&desk.file()).unwrap_err();
        assert!(matches!(error, TokensError::Open { mode: seen, .. } if seen == mode), "{error}");
        let words = error.to_string();
        assert!(words.contains(&format!("{mode:03o}")) && words.contains("chmod 600"), "{words}");
    }
    fs::set_permissions(desk.file(), Permissions::from_mode(0o400)).unwrap();
    assert_eq!(desk.tokens().list().count(), 1);
}

#[test]
fn a_file_that_cannot_be_used_is_refused_and_changes_nothing() {
    let desk = Desk::new();
    let mut tokens = desk.tokens();
    let (_, text) = tokens.add(new(Profiles::All, &[Verb::Read], None), NOW).unwrap();
    let good = fs::read_to_string(desk.file()).unwrap();
    for (text, words) in [
        (good.replace("sha256:", "md5:"), "is not `sha256:`"),
        (good.replace("\"read\"", "\"write\""), "unknown variant `write`"),
        (good.replace("\"all\"", "\"some\""), "neither \"all\" nor a list"),
        (good.replace("label", "name"), "unknown field `name`"),
        (good.replace("[tokens.", "[tokens.zz"), "not the id of a token"),
        ("[tokens\n".to_owned(), "tokens.toml:1:"),
    ] {
        desk.write(&text, 0o600);
        let error = tokens.reload().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(tokens.add(new(Profiles::All, &[Verb::Read], None), NOW).is_err());
        assert_eq!(fs::read_to_string(desk.file()).unwrap(), text, "it is left as it was");
    }
    let header = bearer(text.expose());
    assert!(tokens.authenticate(Some(&header), NOW).is_ok(), "what was read before still counts");
    fs::remove_file(desk.file()).unwrap();
    fs::create_dir(desk.file()).unwrap();
    assert!(matches!(tokens.reload(), Err(TokensError::Read { .. })));
}

#[test]
fn a_token_that_would_be_good_for_nothing_is_not_made() {
    let desk = Desk::new();
    let mut tokens = desk.tokens();
    for new in [new(Profiles::All, &[], None), new(only(&[]), &[Verb::Read], None)] {
        assert!(matches!(tokens.add(new, NOW), Err(TokensError::GoodForNothing)));
    }
    let over = new(Profiles::All, &[Verb::Read], Some(NOW));
    assert!(matches!(tokens.add(over, NOW), Err(TokensError::ExpiredAlready)));
    assert!(!desk.file().exists());
}

#[test]
fn a_bucket_holds_a_burst_and_fills_evenly() {
    let buckets = Buckets::new(60, 3, 100);
    let begin = Instant::now();
    let at = |seconds: f64| begin + Duration::from_secs_f64(seconds);
    for _ in 0..3 {
        buckets.take("a", begin).unwrap();
    }
    assert_eq!(buckets.take("a", begin).unwrap_err().retry_after, Duration::from_secs(1));
    assert_eq!(buckets.take("a", at(0.25)).unwrap_err().retry_after, Duration::from_millis(750));
    buckets.take("b", begin).unwrap();
    buckets.take("a", at(1.0)).unwrap();
    assert!(
        buckets.take("a", at(1.0)).is_err(),
        "a refusal takes nothing, and nothing was saved up"
    );
    for _ in 0..3 {
        buckets.take("a", at(100.0)).unwrap();
    }
    assert!(buckets.take("a", at(100.0)).is_err(), "it holds no more than the burst");
    assert!(buckets.take("a", at(99.0)).is_err(), "a clock that goes back gives nothing");
}

#[test]
fn what_is_kept_of_peers_is_bounded() {
    let buckets = Buckets::new(60, 2, 10);
    let begin = Instant::now();
    for key in 0..10 {
        buckets.take(key, begin).unwrap();
    }
    // There is no room for these: they share a bucket.
    buckets.take(100, begin).unwrap();
    buckets.take(101, begin).unwrap();
    assert!(buckets.take(102, begin).is_err());
    assert_eq!(buckets.len(), 10);
    buckets.take(5, begin).unwrap();
    assert!(buckets.take(5, begin).is_err(), "those who have a bucket keep it");
    // Full buckets are let go, and there is room again.
    let after = begin + Duration::from_secs(1);
    buckets.take(103, after).unwrap();
    assert_eq!(buckets.len(), 2, "5 is not full yet");
}

#[test]
fn peers_of_one_network_share_a_bucket() {
    let table = RateTable { peer_burst: 1, ..RateTable::default() };
    let address = |text: &str| Peer::Address(text.parse().unwrap());
    let now = Instant::now();
    for (one, other, shared) in [
        (address("2001:db8::1"), address("2001:db8::ffff:2"), true),
        (address("2001:db8::1"), address("2001:db8:0:1::1"), false),
        (address("::ffff:10.0.0.1"), address("10.0.0.1"), true),
        (address("10.0.0.1"), address("10.0.0.2"), false),
        (Peer::User(0), Peer::User(1000), false),
    ] {
        let rates = Rates::new(&table);
        rates.peer(one, now).unwrap();
        assert_eq!(rates.peer(other, now).is_err(), shared, "{one:?} {other:?}");
    }
    let rates = Rates::new(&RateTable { burst: 1, ..RateTable::default() });
    let id: TokenId = "0123456789ab".parse().unwrap();
    rates.principal(&id, now).unwrap();
    assert_eq!(
        rates.principal(&id, now).unwrap_err().to_string(),
        "too many requests; try again in 1 s"
    );
}

#[test]
fn rates_are_read_from_a_table() {
    assert_eq!(toml::from_str::<RateTable>("").unwrap(), RateTable::default());
    let read: RateTable = toml::from_str("requests-per-minute = 5\npeer-burst = 7").unwrap();
    assert_eq!((read.requests_per_minute, read.peer_burst, read.burst), (5, 7, 100));
    for text in ["burst = 0", "burst = -1", "burst = 99999999", "brust = 1"] {
        let error = toml::from_str::<RateTable>(text).unwrap_err().to_string();
        assert!(error.contains("write 1 to 10000000") || error.contains("`burst`"), "{error}");
    }
}

proptest! {
    /// Whatever is sent is refused, and breaks nothing.
    #[test]
    fn garbage_lets_nobody_in(header in prop::collection::vec(any::<u8>(), 0..200), text in "(Bearer )?(checkrein)?[ _a-f0-9]{0,100}") {
        let desk = Desk::new();
        let tokens = desk.tokens();
        for header in [&header[..], text.as_bytes()] {
            let refused = tokens.authenticate(Some(header), NOW).unwrap_err();
            prop_assert!(matches!(refused, Refusal::Malformed | Refusal::Unknown));
        }
    }

    /// A token with anything changed in it is another.
    #[test]
    fn a_changed_token_lets_nobody_in(place in 0..87_usize, byte in any::<u8>()) {
        let desk = Desk::new();
        let mut tokens = desk.tokens();
        let (_, text) = tokens.add(new(Profiles::All, &[Verb::Read], None), NOW).unwrap();
        let mut changed = text.expose().as_bytes().to_vec();
        prop_assert_eq!(changed.len(), 87);
        prop_assume!(changed[place] != byte);
        changed[place] = byte;
        let header = [b"Bearer ", &changed[..]].concat();
        prop_assert!(tokens.authenticate(Some(&header), NOW).is_err());
    }

    /// Whatever stands in the file is read or refused.
    #[test]
    fn a_file_of_garbage_is_refused(text in "(\\[tokens\\.[0-9a-f]{12}\\]\n)?[ -~\n]{0,80}") {
        let desk = Desk::new();
        desk.write(&text, 0o600);
        if let Ok(tokens) = Tokens::load(&desk.file()) {
            prop_assert_eq!(tokens.list().count(), 0);
        }
    }

    /// In no stretch of time does a bucket give more than its burst and what came in meanwhile.
    #[test]
    fn a_bucket_never_gives_too_much(burst in 1..20_u32, waits in prop::collection::vec(0..3_000_u64, 1..200)) {
        let buckets = Buckets::new(60, burst, 10);
        let begin = Instant::now();
        let (mut passed, mut given) = (0, 0_u64);
        for wait in waits {
            passed += wait;
            given += u64::from(buckets.take(0, begin + Duration::from_millis(passed)).is_ok());
            prop_assert!(given * 1000 <= u64::from(burst) * 1000 + passed);
        }
    }
}
