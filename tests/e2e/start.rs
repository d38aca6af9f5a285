//! What most tests start with.

use std::cell::RefCell;
use std::path::PathBuf;

use checkrein::ids::WorkId;
use checkrein::sandbox::Outcome;
use checkrein::session::Turn;
use checkrein::work::{Grace, Stop};
use checkrein_testkit::{Plugin, TestHost, TestHostBuilder, guest, neighbour_answer, within};

/// What a test says.
pub(crate) type Result<T = (), E = anyhow::Error> = std::result::Result<T, E>;

/// The command.
const PROGRAM: &str = env!("CARGO_BIN_EXE_checkrein");

thread_local! {
    /// For a test of this thread that has its guests in processes of their own: the file in which each leaves its number.
    static APART: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Runs a test with its guests in processes of their own, and checks that there were some.
pub(crate) fn apart(test: impl FnOnce() -> Result) -> Result {
    let folder = tempfile::tempdir()?;
    let started = folder.path().join("started");
    APART.set(Some(started.clone()));
    let result = test();
    APART.set(None);
    result?;
    anyhow::ensure!(started.exists(), "not one guest was in a process of its own");
    Ok(())
}

/// What a configuration says first that is not the host's, for a test that has its guests in processes of their own.
pub(crate) fn isolation() -> &'static str {
    match APART.with_borrow(Option::is_some) {
        true => "isolation = \"process\"\n",
        false => "",
    }
}

/// A host without plugins.
pub(crate) fn host() -> TestHostBuilder {
    let host = TestHost::builder(PROGRAM);
    let Some(started) = APART.with_borrow(Clone::clone) else { return host };
    let script = "echo $$ >> \"$0\" && exec \"$@\"";
    host.apart().workers("/bin/sh", &["-c", script, &started.to_string_lossy(), PROGRAM, "worker"])
}

/// A host with the agent that does what its goal says, and the tools that misbehave as the plugin `tool`.
pub(crate) fn with_agent() -> TestHostBuilder {
    host().plugin(agent()).plugin(tool())
}

/// The agent that does what its goal says.
pub(crate) fn agent() -> Plugin {
    Plugin::agent("agent", guest("agent"))
}

/// The tools that misbehave.
pub(crate) fn tool() -> Plugin {
    Plugin::tool("tool", guest("tool"))
}

/// The agent that does honest work.
pub(crate) fn neighbour() -> Plugin {
    Plugin::agent("neighbour", guest("neighbour"))
}

/// A hard stop by a user.
pub(crate) fn hard(message: &str) -> Stop {
    Stop::hard("user", message)
}

/// A soft stop by a user that never becomes hard.
pub(crate) fn soft(message: &str) -> Stop {
    Stop::soft("user", message, Grace::Never)
}

/// The outcome of a run that carried that stop and gave no answer of its own.
pub(crate) fn interrupted(stop: Stop) -> Outcome<()> {
    Outcome::Interrupted { stop, said: None }
}

/// How much honest work a neighbour does.
const ROUNDS: u64 = 400;

/// A neighbour that does honest work beside what a test does: half of it before, half of it meanwhile.
pub(crate) struct Beside {
    turn: Turn,
    place: String,
}

impl Beside {
    /// Starts it, and waits until it has done its first half.
    pub(crate) async fn start(host: &TestHost) -> Result<Beside> {
        let session = host.session("neighbour").await?;
        let place = format!("half {}", session.id());
        let turn = session.prompt(ROUNDS.to_string(), "")?;
        host.reached(&place).await?;
        Ok(Beside { turn, place })
    }

    /// The name of its work.
    pub(crate) fn id(&self) -> WorkId {
        self.turn.id()
    }

    /// Lets it do its second half, and checks that its work is right.
    pub(crate) async fn finishes(self, host: &TestHost) -> Result {
        host.release(&self.place);
        let report = within("the honest neighbour", self.turn.ended()).await?;
        assert_eq!(
            (report.outcome, report.output),
            (Outcome::Completed(()), neighbour_answer(ROUNDS))
        );
        Ok(())
    }
}
