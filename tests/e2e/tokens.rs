//! Tokens as operators make them, and the daemon that lets them in.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use checkrein_testkit::PATIENCE;
use serde_json::Value;

fn command(desk: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_checkrein"));
    command.args(arguments).current_dir(desk).env_remove("CHECKREIN_LOG").stdin(Stdio::null());
    command
}

fn run(desk: &Path, arguments: &[&str], code: i32) -> Result<(String, String)> {
    let output = command(desk, arguments).output()?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.code() == Some(code), "{arguments:?}: {:?}\n{err}", output.status);
    Ok((out, err))
}

/// A daemon that is ended with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A daemon that is ready, and the address of its port.
fn serve(at: &Path, configuration: &str) -> Result<(Served, String)> {
    let serve = command(at, &["serve", "--config", configuration])
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut served = Served(serve);
    let mut lines = BufReader::new(served.0.stdout.take().context("a pipe")?).lines();
    let mut address = None;
    loop {
        let line = lines.next().context("more lines")??;
        address = address.or(line.strip_prefix("listening on http://").map(str::to_owned));
        if line == "ready" {
            return Ok((served, address.context("an address")?));
        }
    }
}

/// Beyond this machine an address is served where tokens say who may ask, by whatever name it is called.
#[test]
fn an_address_for_other_machines_is_served_to_those_with_tokens() -> Result<()> {
    let desk = tempfile::tempdir()?;
    fs::create_dir_all(desk.path().join("profiles/main"))?;
    fs::write(desk.path().join("profiles/main/profile.toml"), "")?;
    let table = "[serve]\nsocket = \"api.sock\"\ntcp = \"0.0.0.0:0\"\nprofiles = \"profiles\"\ntokens = \"tokens.toml\"\n";
    fs::write(desk.path().join("checkrein.toml"), table)?;
    let add = ["token", "add", "--config", "checkrein.toml", "--label", "x", "--all-profiles"];
    let (token, _) = run(desk.path(), &[&add[..], &["--verb", "read"]].concat(), 0)?;
    let (_served, address) = serve(desk.path(), "checkrein.toml")?;
    let port = address.strip_prefix("0.0.0.0:").context("all addresses")?;
    let here = format!("127.0.0.1:{port}");
    assert_eq!(called(&here, "a.name.of.ours", "/v1/tree", token.trim())?, 200);
    assert_eq!(called(&here, "a.name.of.ours", "/v1/tree", "another")?, 401);
    assert_eq!(status(&here, "/v1/tree", token.trim())?, 200);
    Ok(())
}

fn status(address: &str, path: &str, token: &str) -> Result<u16> {
    called(address, "localhost", path, token)
}

fn called(address: &str, name: &str, path: &str, token: &str) -> Result<u16> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {name}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    answer.split(' ').nth(1).context("a status")?.parse().context("a number")
}

#[test]
fn a_token_lets_in_until_it_is_revoked_and_is_shown_once() -> Result<()> {
    let desk = tempfile::tempdir()?;
    fs::create_dir_all(desk.path().join("profiles/main"))?;
    fs::write(desk.path().join("profiles/main/profile.toml"), "")?;
    let table = "[serve]\nsocket = \"api.sock\"\ntcp = \"127.0.0.1:0\"\nprofiles = \"profiles\"\ntokens = \"tokens.toml\"\n";
    fs::write(desk.path().join("checkrein.toml"), table)?;
    let from = ["--config", "checkrein.toml"];
    let (listed, _) = run(desk.path(), &[&["token", "list"][..], &from].concat(), 0)?;
    assert_eq!(listed, "no tokens\n");
    let add = |more: &[&str]| -> Result<(String, String)> {
        run(desk.path(), &[&["token", "add"][..], &from, more].concat(), 0)
    };
    let (narrow, err) =
        add(&["--label", "ci", "--profile", "main", "--verb", "read", "--expires", "30d"])?;
    let narrow = narrow.trim();
    assert!(narrow.starts_with("checkrein_") && err.contains("shown this once"), "{err}");
    let (wide, _) =
        add(&["--label", "ops", "--all-profiles", "--verb", "read", "--verb", "admin", "--json"])?;
    let wide: Value = serde_json::from_str(&wide)?;
    let id = wide["id"].as_str().context("an id")?;
    let wide = wide["token"].as_str().context("a token")?;

    let file = desk.path().join("tokens.toml");
    assert_eq!(fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
    let (listed, _) = run(desk.path(), &["token", "list", "--file", "tokens.toml"], 0)?;
    let (json, _) = run(desk.path(), &["token", "list", "--file", "tokens.toml", "--json"], 0)?;
    for kept in [&fs::read_to_string(&file)?, &listed, &json] {
        for token in [narrow, wide] {
            let secret = token.rsplit('_').next().context("a secret")?;
            assert!(!kept.contains(secret), "no secret is kept or listed: {kept}");
        }
    }
    assert!(
        listed.contains("ci") && listed.contains("main") && listed.contains("until 20"),
        "{listed}"
    );
    assert!(listed.contains("all profiles  read,admin  until it is revoked"), "{listed}");
    assert_eq!(serde_json::from_str::<Value>(&json)?["tokens"].as_array().map(Vec::len), Some(2));

    let (_served, address) = serve(desk.path(), "checkrein.toml")?;
    assert_eq!(status(&address, "/v1/profiles/main", narrow)?, 200);
    assert_eq!(status(&address, "/v1/tree", narrow)?, 403, "it is for its profile alone");
    assert_eq!(status(&address, "/v1/tree", wide)?, 200);
    let (out, _) = run(desk.path(), &[&["token", "revoke", id][..], &from].concat(), 0)?;
    assert_eq!(out, format!("{id} is revoked\n"));
    assert_eq!(status(&address, "/v1/tree", wide)?, 401);
    assert_eq!(status(&address, "/v1/profiles/main", narrow)?, 200);
    run(desk.path(), &[&["token", "revoke", id][..], &from].concat(), 2)?;
    Ok(())
}

/// The file of the tokens lies beside the configuration that names it, wherever a command is called.
#[test]
fn the_tokens_are_found_from_any_directory() -> Result<()> {
    let (desk, elsewhere) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let home = desk.path().join("profiles/main");
    fs::create_dir_all(&home)?;
    fs::write(home.join("profile.toml"), "")?;
    let table = "[serve]\nsocket = \"api.sock\"\ntcp = \"127.0.0.1:0\"\nprofiles = \"profiles\"\ntokens = \"tokens.toml\"\n";
    let config = desk.path().join("checkrein.toml");
    fs::write(&config, table)?;
    let config = config.to_str().context("a path of text")?;
    let add = ["token", "add", "--config", config, "--label", "ci", "--all-profiles"];
    let (token, _) = run(elsewhere.path(), &[&add[..], &["--verb", "read"]].concat(), 0)?;
    assert!(desk.path().join("tokens.toml").is_file());
    assert_eq!(fs::read_dir(elsewhere.path())?.count(), 0);
    let (_served, address) = serve(elsewhere.path(), config)?;
    assert_eq!(status(&address, "/v1/tree", token.trim())?, 200);
    Ok(())
}

#[test]
fn tokens_that_make_no_sense_are_not_made() -> Result<()> {
    let desk = tempfile::tempdir()?;
    let file = ["--file", "tokens.toml", "--label", "x"];
    for (more, words) in [
        (&["--all-profiles"][..], "--verb"),
        (&["--verb", "read"], "--all-profiles"),
        (&["--all-profiles", "--profile", "main", "--verb", "read"], "cannot be used with"),
        (&["--all-profiles", "--verb", "raed"], "read, prompt, stop and admin"),
        (&["--all-profiles", "--verb", "read", "--expires", "0d"], "such as 30d"),
    ] {
        let (_, err) = run(desk.path(), &[&["token", "add"][..], &file, more].concat(), 2)?;
        assert!(err.contains(words), "{more:?}: {err}");
    }
    assert!(!desk.path().join("tokens.toml").exists());
    fs::write(desk.path().join("open.toml"), "")?;
    fs::set_permissions(desk.path().join("open.toml"), fs::Permissions::from_mode(0o644))?;
    let (_, err) = run(desk.path(), &["token", "list", "--file", "open.toml"], 2)?;
    assert!(err.contains("chmod 600"), "{err}");
    fs::write(desk.path().join("checkrein.toml"), "")?;
    let (_, err) = run(desk.path(), &["token", "list", "--config", "checkrein.toml"], 2)?;
    assert!(err.contains("checkrein.toml names no file of tokens"), "{err}");
    Ok(())
}
