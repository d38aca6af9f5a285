//! `checkrein doctor` on this machine, as it is and with less of everything.

use std::fs;
use std::process::{Command, Output};

use anyhow::Context;
use serde_json::Value;
use tempfile::TempDir;

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
