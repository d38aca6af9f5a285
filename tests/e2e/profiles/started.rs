//! A service as an embedder has it: what it does by itself when it is shut down.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;
use std::time::Duration;

use checkrein::work::shutdown::{Bounds, Report, Request, Requested, Step, Steps};
use checkrein::{ErrorKind, Service, ServiceSettings};
use checkrein_testkit::{PATIENCE, within};

use super::Bed;
use crate::start::{Result, with_agent};

fn service(bed: &Bed) -> Service {
    let settings = ServiceSettings {
        profiles: bed.host.home().join("profiles"),
        retire: Duration::from_secs(5),
        bounds: Bounds::default(),
    };
    Service::new(bed.host.host(), settings)
}

/// Rules D5 and D7: the report is kept beside the profiles, whatever becomes of the embedder's own step with it.
#[tokio::test(flavor = "multi_thread")]
async fn the_report_of_a_shutdown_is_kept_by_the_service() -> Result {
    let bed = Bed::new(with_agent().build()?)?;
    bed.write("main", "")?;
    let service = service(&bed);
    service.on_shutdown(Steps::new().report(|_| async { panic!("the embedder's own") }));
    assert_eq!(within("the start", service.start()).await??.added, ["main"]);
    let request = Request::drain("operator", "the machine goes down");
    assert_eq!(service.request(&request), Requested::Began);
    let report = within("the shutdown", service.shutdown().ended()).await?;
    let report = report.ok_or_else(|| anyhow::anyhow!("no report"))?;
    assert!(!report.step(Step::Report).is_some_and(|step| step.is_fine()), "{report}");
    let path = service.directory().join("shutdown.json");
    assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
    let kept: Report = serde_json::from_slice(&fs::read(path)?)?;
    assert_eq!((kept.issuer.as_str(), kept.is_clean()), ("operator", true));
    assert!(kept.step(Step::Flush).is_some() && kept.step(Step::Report).is_none());
    Ok(())
}

/// Rule D2: a service that was asked to end opens nothing, neither first nor again.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_was_asked_to_end_opens_nothing() -> Result {
    let bed = Bed::new(with_agent().build()?)?;
    bed.write("main", "")?;
    let service = service(&bed);
    service.request(&Request::drain("operator", "the machine goes down"));
    let refused = within("the start", service.start()).await?;
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::Refused));
    let refused = within("a reload", service.reconcile()).await?;
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::Refused));
    within("the shutdown", service.shutdown().ended()).await?;
    assert!(service.profiles().served().is_empty());
    assert!(!bed.home("main").join("lock").exists());
    Ok(())
}

/// Rule D6: the watchdog watches from the first request on, also when all steps are taken, until it is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_covers_what_comes_after_the_steps() -> Result {
    let bed = Bed::new(with_agent().build()?)?;
    let zero = Duration::ZERO;
    let bounds = Bounds { drain: zero, settle: zero, ..Bounds::default() };
    let bounds = Bounds { tell_clients: zero, hard_stop: zero, revoke_tickets: zero, ..bounds };
    let bounds = Bounds { stop_listeners: zero, flush: zero, report: zero, exit: zero, ..bounds };
    let shutdown = bed.host.host().shutdown_in_steps(bounds, Steps::new());
    let (tell, told) = mpsc::channel();
    let ended = tell.clone();
    let watch = |name: &'static str| {
        let (said, ended) = (tell.clone(), ended.clone());
        let say = move |words: &str| said.send(format!("{name}: {words}")).unwrap();
        shutdown.watched(zero, say, move || ended.send(format!("{name} ends it")).unwrap())
    };
    let (_kept, dropped) = (watch("one")?, watch("another")?);
    shutdown.request(&Request::drain("operator", "the machine goes down"));
    drop(dropped);
    within("the shutdown", shutdown.ended()).await?;
    let late = watch("a late one")?;
    let mut words: Vec<String> = Vec::new();
    for _ in 0..4 {
        words.push(told.recv_timeout(PATIENCE)?);
    }
    drop(late);
    words.sort();
    assert!(words[0].starts_with("a late one ends it"), "{words:?}");
    assert!(
        words[1].starts_with("a late one: the shutdown has not ended after 2.0 s"),
        "{words:?}"
    );
    assert!(words[2].starts_with("one ends it"), "{words:?}");
    assert!(words[3].starts_with("one: the shutdown has not ended after 2.0 s"), "{words:?}");
    Ok(())
}
