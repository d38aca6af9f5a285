//! The figures over HTTP.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use anyhow::{Context, Result, ensure};

use super::daemon::{Daemon, home, send};
use crate::metrics::samples;

fn page(daemon: &Daemon) -> Result<String> {
    let mut stream = daemon.connect()?;
    send(&mut stream, "GET", "/metrics", None)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("a head")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    let media = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    ensure!(head.to_lowercase().contains(media), "{head}");
    Ok(body.to_owned())
}

#[test]
fn the_daemon_tells_what_it_has_done() -> Result<()> {
    let home = home("")?;
    let parked = home.path().join("profiles/broken");
    fs::create_dir_all(&parked)?;
    fs::write(parked.join("profile.toml"), "nonsense = 1\n")?;
    let daemon = Daemon::on(home)?;
    let session = daemon.session()?;
    daemon.turn(&session, "say hello")?;
    daemon.turn(&session, "trap")?;
    assert_eq!(daemon.get("/v1/nothing")?.status, 404);
    let events = daemon.events(&session, 0)?;
    let first = samples(&page(&daemon)?);
    let route = "/v1/profiles/{profile}/sessions/{session}/prompts";
    let prompts = format!("{{method=\"POST\",route=\"{route}\"");
    for (name, expected) in [
        ("checkrein_profiles{state=\"served\"}", 1.0),
        ("checkrein_profiles{state=\"parked\"}", 1.0),
        ("checkrein_profiles{state=\"retiring\"}", 0.0),
        ("checkrein_runs_total{kind=\"turn\",status=\"completed\"}", 1.0),
        ("checkrein_runs_total{kind=\"turn\",status=\"trapped\"}", 1.0),
        ("checkrein_admissions_total{work=\"turn\"}", 2.0),
        ("checkrein_event_streams", 1.0),
        ("checkrein_store_failing{profile=\"main\"}", 0.0),
        ("checkrein_api_requests_total{method=\"any\",route=\"none\",status=\"404\"}", 1.0),
        (&format!("checkrein_api_requests_total{prompts},status=\"200\"}}"), 2.0),
        (&format!("checkrein_api_request_seconds_count{prompts}}}"), 2.0),
    ] {
        assert_eq!(first.get(name), Some(&expected), "{name} in {first:#?}");
    }
    let commits = "checkrein_store_commit_seconds_count{profile=\"main\"}";
    let (commits, writes) =
        (first[commits], first["checkrein_store_writes_total{profile=\"main\"}"]);
    assert!(0.0 < commits && commits <= writes, "{commits} {writes}");
    assert!(first["checkrein_store_size_bytes{profile=\"main\"}"] > 0.0);
    drop(events);
    // A stream that nobody reads any more is noticed when something is sent.
    daemon.turn(&session, "say more")?;
    let until = std::time::Instant::now() + checkrein_testkit::PATIENCE;
    while samples(&page(&daemon)?)["checkrein_event_streams"] > 0.0 {
        ensure!(std::time::Instant::now() < until, "the stream is still counted");
    }
    // Counters do not fall.
    let later = samples(&page(&daemon)?);
    for (name, value) in first.iter().filter(|(name, _)| name.contains("_total")) {
        assert!(later[name] >= *value, "{name}");
    }
    Ok(())
}

/// `docs/metrics.md` has every name that the daemon gives, with its type and its labels, and no other.
#[test]
fn the_page_about_metrics_has_each_of_them() -> Result<()> {
    let daemon = Daemon::start("")?;
    let session = daemon.session()?;
    daemon.turn(&session, "say hello")?;
    let page = page(&daemon)?;
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let given: BTreeMap<&str, &str> = types.filter_map(|line| line.split_once(' ')).collect();
    let text = include_str!("../../../docs/metrics.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `checkrein_"));
    let mut written = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [name, kind, labels, ..] = cells[..] else { continue };
        let name = format!("checkrein_{}", name.trim_end_matches('`'));
        for sample in page.lines().filter(|line| {
            line.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(['{', '_', ' ']))
                && given
                    .keys()
                    .filter(|other| line.starts_with(**other))
                    .map(|other| other.len())
                    .max()
                    == Some(name.len())
        }) {
            let Some((_, inside)) = sample.split_once('{') else { continue };
            for label in inside.split("=\"").filter_map(|part| part.rsplit(['{', ',', '"']).next())
            {
                let is_name = label.chars().all(|c| c.is_ascii_lowercase()) && !label.is_empty();
                let known = label == "le" || labels.contains(&format!("`{label}`"));
                assert!(!is_name || known, "`{label}` of {name}: {sample}");
            }
        }
        written.insert(name, kind.to_owned());
    }
    let given: BTreeMap<String, String> =
        given.into_iter().map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect();
    assert_eq!(written, given);
    Ok(())
}
