//! How often may be asked, by the bounds of `[serve.rates]` and through the address that they are for.

use std::fs;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use checkrein_testkit::PATIENCE;

use super::daemon::{Answer, Daemon, command, home};

/// A daemon at an address too, with these rates. What is used up does not come back in a test.
fn at_an_address(rates: &str) -> Result<(Daemon, String)> {
    let home = home(&format!("tcp = \"127.0.0.1:0\"\n[serve.rates]\n{rates}"))?;
    serving(home)
}

fn serving(home: tempfile::TempDir) -> Result<(Daemon, String)> {
    let daemon = Daemon::on(home)?;
    let listens = |line: &String| Some(line.strip_prefix("listening on http://")?.to_owned());
    let address = daemon.printed.iter().find_map(listens).context("an address")?;
    Ok((daemon, address))
}

fn get(address: &str, path: &str, token: Option<&str>) -> Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    let token = token.unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n{token}connection: close\r\n\r\n")?;
    Answer::read(&mut BufReader::new(stream))
}

/// Too many: said so, and when it is worth while to ask again.
fn is_too_many(answer: &Answer, within: Duration) {
    assert_eq!((answer.status, answer.kind()), (429, "too-many"), "{answer:?}");
    let again = answer.header("retry-after").and_then(|seconds| seconds.parse().ok());
    assert!(again.is_some_and(|again| (1..=within.as_secs()).contains(&again)), "{answer:?}");
}

/// Without tokens a peer has its rate, and another one for the health of the host: neither takes from the other. The socket has
/// none.
#[test]
fn a_peer_has_its_rate_and_health_is_no_way_round_it() -> Result<()> {
    let rates = "peer-requests-per-minute = 1\npeer-burst = 3";
    let (daemon, address) = at_an_address(rates)?;
    let minute = Duration::from_secs(60);
    for _ in 0..3 {
        assert_eq!(get(&address, "/v1/tree", None)?.status, 200);
    }
    is_too_many(&get(&address, "/v1/tree", None)?, minute);
    for path in ["/livez", "/livez", "/readyz"] {
        assert_eq!(get(&address, path, None)?.status, 200, "{path}");
    }
    for path in ["/livez", "/readyz"] {
        is_too_many(&get(&address, path, None)?, minute);
        assert_eq!(daemon.get(path)?.status, 200, "{path}");
    }
    is_too_many(&get(&address, "/v1/tree", None)?, minute);
    assert_eq!(daemon.get("/v1/tree")?.status, 200);
    Ok(())
}

/// A home with two tokens that may read everything.
fn with_tokens(rates: &str) -> Result<(Daemon, String, [String; 2])> {
    let home =
        home(&format!("tcp = \"127.0.0.1:0\"\ntokens = \"tokens.toml\"\n[serve.rates]\n{rates}"))?;
    let add = |label: &str| -> Result<String> {
        let file = ["--file", "tokens.toml", "--label", label, "--all-profiles", "--verb", "read"];
        let added = command(home.path(), &[&["token", "add"][..], &file].concat()).output()?;
        ensure!(added.status.success(), "{added:?}");
        Ok(String::from_utf8(added.stdout)?.trim().to_owned())
    };
    let tokens = [add("one")?, add("two")?];
    ensure!(fs::exists(home.path().join("tokens.toml"))?, "no tokens");
    let (daemon, address) = serving(home)?;
    Ok((daemon, address, tokens))
}

/// A token has its rate, wherever its requests come from, and takes nothing from another one.
#[test]
fn a_token_has_its_rate() -> Result<()> {
    let rates = "requests-per-minute = 2\nburst = 2\npeer-burst = 100";
    let (_daemon, address, [one, two]) = with_tokens(rates)?;
    for _ in 0..2 {
        assert_eq!(get(&address, "/v1/tree", Some(&one))?.status, 200);
    }
    is_too_many(&get(&address, "/v1/tree", Some(&one))?, Duration::from_secs(30));
    assert_eq!(get(&address, "/v1/tree", Some(&two))?.status, 200);
    Ok(())
}

/// Whoever guesses tokens has the rate of a peer, and what they get then is the same for a right one.
#[test]
fn guessing_is_bounded_before_a_token_is_looked_at() -> Result<()> {
    let rates = "burst = 100\npeer-requests-per-minute = 1\npeer-burst = 3";
    let (_daemon, address, [one, _]) = with_tokens(rates)?;
    for guess in [Some("checkrein_guess"), None, Some("another")] {
        assert_eq!(get(&address, "/v1/tree", guess)?.status, 401);
    }
    is_too_many(&get(&address, "/v1/tree", Some(&one))?, Duration::from_secs(60));
    assert_eq!(get(&address, "/livez", None)?.status, 200);
    Ok(())
}
