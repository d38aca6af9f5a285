//! How the daemon ends: what asks for it, and what is said meanwhile. The steps are the library's.

use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use checkrein::Service;
use checkrein::server::{Closing, ShutdownRequest};
use checkrein::work::shutdown::{Report, Request, Requested, Step, Steps};
use futures::future::{Fuse, FusedFuture, FutureExt};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::code::Code;
use super::problem::Problem;
use super::text;

/// What the watchdog gives beyond the bounds of all steps: for the threads of the host to end, and for what is left of the
/// spans to be sent.
const SLACK: Duration = Duration::from_secs(10);

/// How long the end of a turn may take to be recorded before streams end without it.
const RECORDED: Duration = Duration::from_secs(1);

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

    /// Serves until somebody asks for the end, and takes the steps to it. `serving` begins to serve, and ends when the
    /// listeners do, with how many connections were cut; signals are obeyed from its first moment on.
    pub(super) async fn run(
        self,
        service: &Service,
        closing: &Closing,
        serving: impl Future<Output = Result<usize, Problem>>,
    ) -> Result<Code, Problem> {
        let (ended, listeners) = watch::channel(None);
        service.on_shutdown(steps(service, closing, listeners));
        let watchdog = service.shutdown().watched(SLACK, say_apart, end).map_err(|error| {
            Problem::because(Code::Refused, "could not start the watchdog", error)
        })?;
        // Never disarmed: what comes after the last step can hang, too.
        Box::leak(Box::new(watchdog));
        let serving = async {
            let served = serving.await;
            if served.is_err() {
                service.request(&Request::at_once("host", "it could not begin to serve"));
            }
            ended.send_replace(Some(*served.as_ref().unwrap_or(&0)));
            served
        };
        let (report, served) = tokio::join!(self.obeyed(service), serving);
        served?;
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

    /// Passes on what is asked for until the shutdown is over.
    async fn obeyed(self, service: &Service) -> Option<Arc<Report>> {
        let Ending { mut interrupt, mut terminate, mut hangup, mut given, give: _give } = self;
        let (shutdown, mut again) = (service.shutdown().clone(), false);
        let mut reload = pin!(Fuse::terminated());
        loop {
            let asked = tokio::select! {
                report = shutdown.ended() => return report,
                Some(()) = interrupt.recv() => Asked::Interrupt,
                Some(()) = terminate.recv() => Asked::Terminate,
                Some(asked) = given.recv() => asked,
                // The terminal is gone, or the profiles are to be looked at again. Either way the daemon goes on. While it looks,
                // the word for another look waits, however often it comes.
                Some(()) = hangup.recv(), if reload.is_terminated() => {
                    say("reloading (SIGHUP)");
                    reload.set(service.reconcile().fuse());
                    continue;
                }
                done = &mut reload => {
                    match done {
                        Ok(_) => say("reloaded (SIGHUP)"),
                        Err(error) => say(&format!("could not reload (SIGHUP): {error}")),
                    }
                    continue;
                }
            };
            let tree = service.host().tree();
            let count = tree.count(tree.root());
            let requested = service.request(&asked.request(again));
            again = true;
            let reason = text::line(asked.reason(), 200);
            if let Requested::Joined = requested {
                say(&format!("asked again: {reason}"));
                continue;
            }
            let drain = if asked.is_urgent() { Duration::ZERO } else { service.bounds().drain };
            let time = text::time(drain);
            say(&format!("shutting down: {reason}; {count} executions, which have {time}"));
        }
    }
}

/// What is done in the steps that are not the library's.
fn steps(
    service: &Service,
    closing: &Closing,
    mut listeners: watch::Receiver<Option<usize>>,
) -> Steps {
    let (closing, recorded) = (closing.clone(), service.clone());
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
            Ok(())
        })
}

/// Says how far the end is. Where that cannot be written nobody is there to read, and no step depends on it.
fn say(words: &str) {
    text::print(&format!("{words}\n")).ok();
}

/// Says what the watchdog has to say, beside standard output: that may be what hangs.
fn say_apart(words: &str) {
    writeln!(std::io::stderr(), "{words}").ok();
}

/// What the watchdog does in the end.
#[allow(clippy::exit, reason = "everything else has had its time, and hangs")]
fn end() {
    std::process::exit(i32::from(Code::Failed as u8));
}
