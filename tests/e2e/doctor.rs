//! `checkrein doctor` on this machine, as it is and with less of everything.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use anyhow::Context;
use serde_json::Value;
use tempfile::TempDir;

use crate::api::daemon::Daemon;

type Result<T = ()> = anyhow::Result<T>;

const KEY: &str = "sk-never-to-be-shown-1234";

/// A folder with a configuration, in which the doctor is asked.
struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new(configuration: &str) -> Result<Desk> {
        let desk = Desk { folder: tempfile::tempdir()? };
        fs::write(desk.folder.path().join("checkrein.toml"), configuration)?;
        fs::write(desk.folder.path().join("demo.toml"), "[[reply]]\ntext = \"hello\"\n")?;
        Ok(desk)
    }

    /// Asks after a shell command such as `ulimit -n 100`.
    fn ask(&self, before: &str, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{before}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_checkrein")])
            .args(["doctor", "--config", "checkrein.toml"])
            .args(arguments)
            .current_dir(self.folder.path())
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .env("TEST_KEY", KEY)
            .env_remove("TEST_UNSET")
            .env_remove("CHECKREIN_LOG");
        Ok(command.output()?)
    }

    /// The exit code, and the checks of the JSON document.
    fn checks(&self, before: &str, arguments: &[&str]) -> Result<(Option<i32>, Value)> {
        let output = self.ask(before, &[&["--json"], arguments].concat())?;
        let out = String::from_utf8(output.stdout)?;
        let err = String::from_utf8(output.stderr)?;
        assert!(!out.contains(KEY) && !err.contains(KEY), "{out}{err}");
        let checks = serde_json::from_str(&out).with_context(|| format!("{out}{err}"))?;
        Ok((output.status.code(), checks))
    }
}

/// Verdict, what was seen, and advice of one check; empty where there is no such check.
fn check<'a>(checks: &'a Value, name: &str) -> [&'a str; 3] {
    let mut all = checks["checks"].as_array().into_iter().flatten();
    let check = all.find(|check| check["check"] == name);
    ["verdict", "saw", "advice"]
        .map(|key| check.and_then(|it| it[key].as_str()).unwrap_or_default())
}

const SCRIPTED: &str = "[models.demo]\nkind = \"scripted\"\nscript = \"demo.toml\"\n";

#[test]
fn what_is_well_is_said_to_be() -> Result {
    let desk = Desk::new(SCRIPTED)?;
    let home = desk.folder.path().join("home");
    fs::create_dir(&home)?;
    let (code, checks) = desk.checks("ulimit -n $(ulimit -H -n)", &["--home", "home"])?;
    for name in ["clock", "cache", "home", "model demo", "compilation"] {
        assert_eq!(check(&checks, name)[0], "ok", "{checks:#}");
    }
    for name in ["kernel", "address-space", "mappings", "open-files", "memory"] {
        assert!(!check(&checks, name)[1].is_empty());
    }
    let worst = checks["verdict"] == "problem";
    assert_eq!(code, Some(if worst { 3 } else { 0 }), "{checks:#}");
    assert_eq!(fs::read_dir(&home)?.count(), 0, "nothing is left behind");
    Ok(())
}

#[test]
fn too_few_files_are_a_problem_with_a_way_out() -> Result {
    let desk = Desk::new(SCRIPTED)?;
    let (code, checks) = desk.checks("ulimit -n 100", &[])?;
    let [verdict, saw, advice] = check(&checks, "open-files");
    assert_eq!((code, verdict, &checks["verdict"]), (Some(3), "problem", &Value::from("problem")));
    assert!(saw.starts_with("100, fewer than the 256"), "{saw}");
    assert!(advice.contains("`ulimit -n ") && advice.contains("LimitNOFILE="), "{advice}");

    let output = desk.ask("ulimit -n 100", &[])?;
    let text = String::from_utf8(output.stdout)?;
    assert_eq!(output.status.code(), Some(3));
    assert!(
        text.contains("\nopen-files ") && text.contains("\n    raise it with `ulimit -n"),
        "{text}"
    );
    assert!(text.contains("problems: 1, warnings: "), "{text}");
    Ok(())
}

#[test]
fn little_address_space_is_a_warning_and_too_little_for_what_is_configured_a_problem() -> Result {
    let (enough_files, little) = ("ulimit -n $(ulimit -H -n)", "ulimit -v 8000000");
    let desk = Desk::new(SCRIPTED)?;
    let (code, checks) = desk.checks(&format!("{enough_files}; {little}"), &[])?;
    let [verdict, saw, advice] = check(&checks, "address-space");
    assert_eq!((code, verdict), (Some(0), "warning"), "{checks:#}");
    assert!(saw.contains("a limit of 7.6 GiB, and no pool"), "{saw}");
    assert!(advice.contains("ulimit -v unlimited"), "{advice}");

    let desk = Desk::new(&format!("{SCRIPTED}[sandbox]\npool-size = 500\n"))?;
    let (code, checks) = desk.checks(little, &[])?;
    let [verdict, saw, _] = check(&checks, "address-space");
    assert_eq!((code, verdict), (Some(3), "problem"), "{checks:#}");
    assert!(saw.contains("no engine could be made: "), "{saw}");
    Ok(())
}

#[test]
fn a_pool_with_more_mappings_than_the_kernel_allows_is_a_problem() -> Result {
    let desk = Desk::new(&format!("{SCRIPTED}[sandbox]\npool-size = 100000\n"))?;
    let allowed: u64 = fs::read_to_string("/proc/sys/vm/max_map_count")?.trim().parse()?;
    let needed = 100_000 * 12 + 8_192;
    let (_, checks) = desk.checks("true", &[])?;
    let [verdict, _, advice] = check(&checks, "mappings");
    assert_eq!(verdict, if needed > allowed { "problem" } else { "ok" });
    assert!(needed <= allowed || advice.contains("sysctl -w vm.max_map_count=1208192"), "{advice}");
    Ok(())
}

#[test]
fn keys_and_secrets_are_looked_up_and_never_shown() -> Result {
    let desk = Desk::new(
        "[models.set]\nkind = \"openai\"\nmodel = \"m\"\nkey-env = \"TEST_KEY\"\n\
         [models.unset]\nkind = \"openai\"\nmodel = \"m\"\nkey-env = \"TEST_UNSET\"\n\
         [models.odd]\nkind = \"openai\"\nmodell = \"m\"\n\
         [plugins.http.grants]\nsecrets = { token = { env = \"TEST_KEY\" }, other = { env = \"TEST_UNSET\" } }\n",
    )?;
    let (code, checks) = desk.checks("true", &[])?;
    assert_eq!(code, Some(3));
    let [verdict, saw, _] = check(&checks, "model set");
    assert_eq!((verdict, saw), ("ok", "openai; its key is set in TEST_KEY"));
    let [verdict, saw, advice] = check(&checks, "model unset");
    assert!(verdict == "problem" && saw.contains("`TEST_UNSET`") && !advice.is_empty(), "{saw}");
    let [verdict, saw, _] = check(&checks, "model odd");
    assert!(verdict == "problem" && saw.contains("checkrein.toml:11"), "{saw}");
    assert_eq!(check(&checks, "secret token of http")[..2], ["ok", "it is set in TEST_KEY"]);
    assert_eq!(check(&checks, "secret other of http")[0], "problem");
    let output = desk.ask("true", &[])?;
    assert!(!String::from_utf8(output.stdout)?.contains(KEY));
    Ok(())
}

#[test]
fn folders_that_cannot_be_used_are_told_of() -> Result {
    let desk = Desk::new(&format!("cache-directory = \"demo.toml\"\n{SCRIPTED}"))?;
    let (code, checks) = desk.checks("true", &["--home", "demo.toml"])?;
    assert_eq!(code, Some(3));
    let [verdict, saw, advice] = check(&checks, "cache");
    assert!(
        verdict == "warning" && saw.contains("demo.toml") && advice.contains("cache-directory"),
        "{saw}"
    );
    let [verdict, saw, _] = check(&checks, "home");
    assert!(verdict == "problem" && saw.contains("demo.toml is no folder"), "{saw}");
    Ok(())
}

#[test]
fn a_configuration_that_cannot_be_read_is_a_wrong_argument() -> Result {
    let output = Desk::new("[sandbox]\npool-sise = 1\n")?.ask("true", &[])?;
    let err = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("checkrein.toml:2") && err.contains("pool-sise"), "{err}");
    Ok(())
}

/// The files in a folder, with their bytes.
fn all_in(
    folder: &std::path::Path,
) -> Result<std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>> {
    let mut all = std::collections::BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            all.insert(path.clone(), fs::read(&path)?);
        }
    }
    Ok(all)
}

/// A home that was served: its database is read, whoever has the home is named, and nothing of it is changed.
#[test]
fn the_database_of_a_home_is_read_and_its_holder_named() -> Result {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    daemon.turn(&session, "say something")?;
    let home = daemon.home().join("profiles/main");
    let shown = home.display().to_string();
    let desk = Desk::new(SCRIPTED)?;
    let look = || desk.checks("true", &["--home", &shown]);
    let (_, checks) = look()?;
    let pid = daemon.pid().as_raw_nonzero();
    let [verdict, saw, _] = check(&checks, "lock");
    let named = saw.starts_with(&format!("the home is served by process {pid}, since "));
    assert!(verdict == "ok" && named, "{saw}");
    let [verdict, saw, _] = check(&checks, "database");
    assert!(verdict == "ok" && saw.contains("schema ") && saw.ends_with(", whole"), "{saw}");

    let _folder = daemon.leaves()?;
    let before = all_in(&home)?;
    let (_, checks) = look()?;
    assert_eq!(check(&checks, "lock")[..2], ["ok", "nobody serves the home"]);
    assert_eq!(check(&checks, "database")[0], "ok", "{checks:#}");
    assert!(all_in(&home)? == before, "nothing is changed");

    // A page of it is torn that is not looked at when it is opened.
    let file = home.join("sessions.db");
    let whole = fs::read(&file)?;
    let last = whole.len() / 4096 - 1;
    let mut told = 0;
    for page in last - 3..=last {
        let mut bytes = whole.clone();
        bytes[page * 4096..page * 4096 + 64].fill(0xa5);
        fs::write(&file, &bytes)?;
        let (code, checks) = look()?;
        let [verdict, saw, _] = check(&checks, "database");
        told += usize::from(code == Some(3) && verdict == "problem" && saw.contains(", damaged: "));
    }
    assert!(told > 0, "no torn page was found");

    // All of them are.
    let mut bytes = whole.clone();
    for page in 2..=last {
        bytes[page * 4096..page * 4096 + 64].fill(0xa5);
    }
    fs::write(&file, &bytes)?;
    let (code, checks) = look()?;
    let [verdict, saw, advice] = check(&checks, "database");
    assert_eq!((code, verdict), (Some(3), "problem"), "{checks:#}");
    assert!(saw.contains("sessions.db") && advice.contains("backup"), "{saw}");
    fs::write(&file, "no database at all, and long enough to be looked at".repeat(10))?;
    assert_eq!(check(&look()?.1, "database")[0], "problem");
    fs::remove_file(&file)?;
    assert_eq!(check(&look()?.1, "database")[0], "ok");
    Ok(())
}

/// What a daemon would serve: each profile with what its own configuration names, the tokens, and the socket.
#[test]
fn every_profile_of_a_daemon_is_looked_at() -> Result {
    let desk = Desk::new(
        "[serve]\nprofiles = \"profiles\"\nsocket = \"run/api.sock\"\ntokens = \"tokens.toml\"\n",
    )?;
    let folder = desk.folder.path();
    let profile = |name: &str, text: &str| -> Result {
        fs::create_dir_all(folder.join("profiles").join(name))?;
        Ok(fs::write(folder.join("profiles").join(name).join("profile.toml"), text)?)
    };
    let file = |path: &str, text: &str, mode: u32| -> Result {
        fs::write(folder.join(path), text)?;
        Ok(fs::set_permissions(folder.join(path), fs::Permissions::from_mode(mode))?)
    };
    profile(
        "good",
        "[models.m]\nkind = \"openai\"\nmodel = \"m\"\nkey-file = \"key\"\n\
         [plugins.http.grants]\nsecrets = { token = { file = \"token\" } }\n",
    )?;
    profile("lacks", "[models.m]\nkind = \"openai\"\nmodel = \"m\"\nkey-file = \"nowhere\"\n")?;
    profile("odd", "plugin-directories = 7\n")?;
    profile("wide", "[serve]\nprofiles = \"x\"\n")?;
    file("profiles/good/key", KEY, 0o600)?;
    file("profiles/good/token", KEY, 0o644)?;
    file("tokens.toml", "", 0o644)?;
    let (code, checks) = desk.checks("true", &[])?;
    assert_eq!(code, Some(3), "{checks:#}");
    for (name, verdict, words) in [
        ("profiles", "ok", "4 in "),
        ("profile good configuration", "ok", "can be used"),
        ("profile good home", "ok", "can be written"),
        ("profile good lock", "ok", "nobody serves"),
        ("profile good database", "ok", "nothing was recorded yet"),
        ("profile good model m", "ok", "its key is in key"),
        ("profile good secret token of http", "warning", "(mode 644)"),
        ("profile lacks model m", "problem", "nowhere"),
        ("profile odd configuration", "problem", "profile.toml:1"),
        ("profile wide configuration", "problem", "`serve`"),
        ("tokens", "problem", "644"),
        ("socket", "ok", "will be made"),
    ] {
        let [seen, saw, _] = check(&checks, name);
        assert!(seen == verdict && saw.contains(words), "{name}: {seen}: {saw}");
    }
    file("tokens.toml", "", 0o600)?;
    fs::create_dir(folder.join("run"))?;
    fs::set_permissions(folder.join("run"), fs::Permissions::from_mode(0o777))?;
    let (_, checks) = desk.checks("true", &[])?;
    assert_eq!(check(&checks, "tokens")[0], "warning", "{checks:#}");
    let [verdict, saw, _] = check(&checks, "socket");
    assert!(verdict == "problem" && saw.contains("(mode 777)"), "{saw}");
    Ok(())
}
