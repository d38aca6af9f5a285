//! How the daemon ends: what asks for it, the steps, and what they come to.

use std::time::Duration;

use checkrein::Host;
use checkrein::server::{Closing, Folder, ShutdownRequest};
use checkrein::work::NodeView;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::code::Code;
use super::problem::Problem;
use super::{status, text};

/// How long each step may take.
pub(super) struct Bounds {
    /// For work to come to its own end.
    pub(super) drain: Duration,
    /// For what was stopped hard to end.
    pub(super) settle: Duration,
}

/// Who asks for the end.
pub(super) enum Asked {
    Interrupt,
    Terminate,
    Api(ShutdownRequest),
}

impl Asked {
    fn reason(&self) -> String {
        match self {
            Asked::Interrupt => "Ctrl-C was pressed".to_owned(),
            Asked::Terminate => "the host was asked to end (SIGTERM)".to_owned(),
            Asked::Api(request) => request.reason.clone(),
        }
    }

    fn is_urgent(&self) -> bool {
        matches!(self, Asked::Api(request) if request.at_once)
    }
}

/// Hears who asks for the end.
pub(super) struct Ending {
    interrupt: Signal,
    terminate: Signal,
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
        let (interrupt, terminate) =
            (heard(SignalKind::interrupt())?, heard(SignalKind::terminate())?);
        Ok(Ending { interrupt, terminate, given, give })
    }

    pub(super) fn orders(&self) -> Orders {
        Orders { give: self.give.clone() }
    }

    async fn asked(&mut self) -> Asked {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Asked::Interrupt,
            Some(()) = self.terminate.recv() => Asked::Terminate,
            Some(asked) = self.given.recv() => asked,
        }
    }

    /// Waits until somebody asks for the end, and takes the steps to it. `serving` ends when the listeners do, with how
    /// many connections were cut.
    pub(super) async fn run(
        mut self,
        host: &Host,
        folder: &Folder,
        closing: &Closing,
        bounds: &Bounds,
        serving: impl Future<Output = usize>,
    ) -> Result<Code, Problem> {
        let steps = async {
            let asked = self.asked().await;
            let cut = self.drained(host, &asked, bounds).await?;
            let left = match cut.is_empty() {
                true => Vec::new(),
                false => {
                    let words = format!("stopping hard:\n{}\n", status::left(&cut).join("\n"));
                    text::print(&words)?;
                    let ended = host.shutdown(&asked.reason(), bounds.settle).await;
                    ended.err().map_or_else(Vec::new, |left| left.nodes)
                }
            };
            // Streams have told the ends of the turns by now.
            closing.end();
            Ok::<_, Problem>((cut, left))
        };
        let (steps, connections) = tokio::join!(steps, serving);
        let (cut, left) = steps?;
        text::print("listeners stopped\n")?;
        if connections > 0 {
            text::print(&format!("connections cut: {connections}\n"))?;
        }
        if !left.is_empty() {
            let lines = status::left(&left).join("\n");
            text::print(&format!("still alive, and the stores stay open for it:\n{lines}\n"))?;
            return Ok(Code::Failed);
        }
        let failed = folder.close().await;
        for (profile, why) in &failed {
            text::print(&format!("the store of {profile} could not write all: {why}\n"))?;
        }
        text::print("stores closed\n")?;
        let clean = cut.is_empty() && failed.is_empty();
        text::print(if clean { "ended\n" } else { "ended, and not cleanly\n" })?;
        Ok(if clean { Code::Completed } else { Code::Failed })
    }

    /// Takes no new work and waits. Returns what is left when the time is over, or when somebody asks again.
    async fn drained(
        &mut self,
        host: &Host,
        asked: &Asked,
        bounds: &Bounds,
    ) -> Result<Vec<NodeView>, Problem> {
        let reason = asked.reason();
        let count = host.tree().count(host.tree().root());
        let bound = if asked.is_urgent() { Duration::ZERO } else { bounds.drain };
        text::print(&format!(
            "shutting down: {}; {count} executions, which have {}\n",
            text::line(&reason, 200),
            text::time(bound)
        ))?;
        let drain = host.drain(&reason, bound);
        tokio::select! {
            drained = drain => Ok(drained.err().map_or_else(Vec::new, |left| left.nodes)),
            _ = self.asked() => Ok(host.tree().executions(host.tree().root())),
        }
    }
}
