//! How the daemon ends: what asks for it, and what is said meanwhile. The steps are the library's.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use checkrein::Service;
use checkrein::server::{Closing, ShutdownRequest};
use checkrein::work::shutdown::{Report, Request, Requested, Step, StepError, Steps, Watchdog};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::code::Code;
use super::problem::Problem;
use super::text;

/// What the watchdog gives beyond the bounds of all steps.
const SLACK: Duration = Duration::from_secs(5);

/// How long the end of a turn may take to be recorded before streams end without it.
const RECORDED: Duration = Duration::from_secs(1);

/// The report of the last shutdown, in the directory of the profiles.
const REPORT: &str = "shutdown.json";

/// Who asks for the end.
pub(super) enum Asked {
    Interrupt,
    Terminate,
    Api(ShutdownRequest),
}

impl Asked {
    fn request(&self, again: bool) -> Request {
        match self {
            Asked::Interrupt if again => Request::at_once("user", "Ctrl-C was pressed again"),
            Asked::Interrupt => Request::drain("user", "Ctrl-C was pressed"),
            // A supervisor that asks twice wants the same as before.
            Asked::Terminate => Request::drain("the system", "the host was asked to end (SIGTERM)"),
            Asked::Api(asked) if asked.at_once => {
                Request::at_once(Arc::clone(&asked.issuer), asked.reason.as_str())
            }
            Asked::Api(asked) => Request::drain(Arc::clone(&asked.issuer), asked.reason.as_str()),
        }
    }

    fn reason(&self) -> &str {
        match self {
            Asked::Interrupt => "Ctrl-C was pressed",
            Asked::Terminate => "the host was asked to end (SIGTERM)",
            Asked::Api(asked) => &asked.reason,
        }
    }

    fn is_urgent(&self) -> bool {
        matches!(self, Asked::Api(asked) if asked.at_once)
    }
}

/// Hears who asks for the end.
pub(super) struct Ending {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    given: mpsc::UnboundedReceiver<Asked>,
    give: mpsc::UnboundedSender<Asked>,
}

/// Where the API asks for the end.
pub(super) struct Orders {
    give: mpsc::UnboundedSender<Asked>,
}

impl Orders {
    pub(super) fn give(&self, asked: Asked) {
        // Nobody hears it where the end has come.
        self.give.send(asked).ok();
    }
}

impl Ending {
    /// Hears signals from now on.
    pub(super) fn listen() -> Result<Ending, Problem> {
        let heard = |kind| {
            signal(kind).map_err(|error| {
                Problem::because(Code::Refused, "could not begin to listen for signals", error)
            })
        };
        let (give, given) = mpsc::unbounded_channel();
        let (interrupt, terminate, hangup) = (
            heard(SignalKind::interrupt())?,
            heard(SignalKind::terminate())?,
            heard(SignalKind::hangup())?,
        );
        Ok(Ending { interrupt, terminate, hangup, given, give })
    }

    pub(super) fn orders(&self) -> Orders {
        Orders { give: self.give.clone() }
    }

    /// None for the word that the terminal is gone, or that the profiles are to be looked at again.
    async fn asked(&mut self) -> Option<Asked> {
        let asked = tokio::select! {
            Some(()) = self.hangup.recv() => return None,
            Some(()) = self.interrupt.recv() => Asked::Interrupt,
            Some(()) = self.terminate.recv() => Asked::Terminate,
            Some(asked) = self.given.recv() => asked,
        };
        Some(asked)
    }

    /// Serves until somebody asks for the end, and takes the steps to it. `serving` ends when the listeners do, with how
    /// many connections were cut.
    pub(super) async fn run(
        self,
        service: &Service,
        closing: &Closing,
        serving: impl Future<Output = usize>,
    ) -> Result<Code, Problem> {
        let (ended, listeners) = watch::channel(None);
        service.on_shutdown(steps(service, closing, listeners));
        let serving = async {
            ended.send_replace(Some(serving.await));
        };
        let (report, ()) = tokio::join!(self.obeyed(service), serving);
        let (report, _watchdog) = report?;
        let Some(report) = report else {
            let words = "the shutdown was lost: its runtime went before it";
            return Err(Problem::new(Code::Failed, words));
        };
        let flushed = report.step(Step::Flush).is_some_and(|step| step.is_fine());
        if flushed && report.left.is_empty() {
            say("stores closed");
        }
        say(if report.is_clean() { "ended" } else { "ended, and not cleanly" });
        Ok(if report.is_clean() { Code::Completed } else { Code::Failed })
    }

    /// Passes on what is asked for until the shutdown is over. The watchdog watches from the first request on.
    async fn obeyed(
        mut self,
        service: &Service,
    ) -> Result<(Option<Arc<Report>>, Option<Watchdog>), Problem> {
        let (shutdown, mut again, mut watchdog) = (service.shutdown().clone(), false, None);
        loop {
            let asked = tokio::select! {
                report = shutdown.ended() => return Ok((report, watchdog)),
                asked = self.asked() => asked,
            };
            let Some(asked) = asked else {
                // Either way the daemon goes on.
                match service.reconcile().await {
                    Ok(_) => say("reloaded (SIGHUP)"),
                    Err(error) => say(&format!("could not reload (SIGHUP): {error}")),
                }
                continue;
            };
            let tree = service.host().tree();
            let count = tree.count(tree.root());
            let requested = service.request(&asked.request(again));
            again = true;
            if let Requested::Joined = requested {
                continue;
            }
            let bounds = service.bounds();
            let drain = if asked.is_urgent() { Duration::ZERO } else { bounds.drain };
            say(&format!(
                "shutting down: {}; {count} executions, which have {}",
                text::line(asked.reason(), 200),
                text::time(drain)
            ));
            let bound = bounds.total().saturating_add(SLACK);
            let armed = Watchdog::arm(tree.clone(), bound, say, end);
            watchdog = Some(armed.map_err(|error| {
                Problem::because(Code::Failed, "could not start the watchdog", error)
            })?);
        }
    }
}

/// What is done in the steps that are not the library's.
fn steps(
    service: &Service,
    closing: &Closing,
    mut listeners: watch::Receiver<Option<usize>>,
) -> Steps {
    let (closing, directory) = (closing.clone(), service.directory().to_owned());
    let recorded = service.clone();
    let leaving = closing.clone();
    Steps::new()
        .tell_clients(move || async move {
            leaving.leave();
            Ok(())
        })
        .stop_listeners(move || async move {
            // Those who follow hear of the ends of their turns first.
            tokio::time::timeout(RECORDED, recorded.recorded()).await.ok();
            closing.end();
            let cut = listeners.wait_for(Option::is_some).await.map(|cut| cut.unwrap_or(0))?;
            say("listeners stopped");
            if cut > 0 {
                say(&format!("connections cut: {cut}"));
            }
            Ok(())
        })
        .report(move |report| async move {
            say(&report.to_string());
            keep(&directory, &report)
        })
}

/// Keeps the report beside the profiles, in the place of the one before.
fn keep(directory: &Path, report: &Report) -> Result<(), StepError> {
    let (path, new): (PathBuf, PathBuf) =
        (directory.join(REPORT), directory.join(format!(".{REPORT}.new")));
    // One that was left half written, or a link that somebody put there.
    fs::remove_file(&new).ok();
    let mut options = fs::File::options();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&new)?;
    file.write_all(&serde_json::to_vec_pretty(report)?)?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    Ok(())
}

/// Says how far the end is. Where that cannot be written nobody is there to read, and no step depends on it.
fn say(words: &str) {
    text::print(&format!("{words}\n")).ok();
}

/// What the watchdog does in the end.
#[allow(clippy::exit, reason = "everything else has had its time, and hangs")]
fn end() {
    std::process::exit(i32::from(Code::Failed as u8));
}
