//! `checkrein run`: one agent, one task.

use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Instant;

use checkrein::ids::SessionId;
use checkrein::plugin::{Configuration, DirectoryArgument, LimitsTable, Name};
use checkrein::sandbox::{Directory, Outcome};
use checkrein::session::{Delivery, Session, Turn, TurnReport};
use checkrein::work::Stop;
use checkrein::{ErrorKind, Host, SessionBuilder};

use super::code::Code;
use super::interrupt::{BOUND, Interrupts};
use super::kept::Kept;
use super::limit;
use super::log::Log;
use super::problem::Problem;
use super::progress::{Form, Progress};
use super::screen::{REDRAW, Screen};
use super::setup::{self, Named, Options};
use super::telemetry::Export;
use super::{model, status, text};

/// The longest task that is read from standard input, in bytes.
const LONGEST_TASK: u64 = 1 << 20;

/// The arguments of `checkrein run`.
#[derive(Debug, clap::Args)]
pub(super) struct Run {
    /// The agent: a plugin's name, or the path of its folder, such as ./greeter.
    #[arg(value_name = "AGENT")]
    agent: String,
    /// What it shall do; `-` reads it from standard input.
    #[arg(value_name = "TASK", default_value = "", hide_default_value = true)]
    task: String,
    /// Give a directory, for reading or with `:rw` also for writing; may be repeated.
    ///
    /// The agent and its tools find it under its name: `work` for the only one without a name, else the last part of
    /// the path.
    #[arg(long = "dir", value_name = "[NAME=]PATH[:ro|:rw]", value_parser = DirectoryArgument::parse)]
    directories: Vec<DirectoryArgument>,
    /// The model that answers: one of the configuration, or scripted:FILE, openai:MODEL or anthropic:MODEL.
    ///
    /// Keys are read from OPENAI_API_KEY and ANTHROPIC_API_KEY; a configuration can name other places.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    options: Options,
    /// Further input for the agent, as JSON.
    #[arg(long, value_name = "JSON", value_parser = json)]
    input: Option<String>,
    /// A ceiling for the run, such as wall-time=30s, fuel=1000000 or memory=64MiB; may be repeated.
    ///
    /// The names are those of `[limits]` in the configuration, and go before what it says of this agent.
    #[arg(long = "limit", value_name = "NAME=VALUE", value_parser = limit::parse)]
    limits: Vec<LimitsTable>,
    /// Write every event as a line of JSON to standard output, and nothing else.
    #[arg(long)]
    json: bool,
    /// Record the run in this home, which nobody may serve meanwhile; a folder that is not there is made.
    ///
    /// `checkrein session show --home DIR` shows it. Without --config its profile.toml is the configuration, where there
    /// is one. Directories count for this run alone.
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Go on with this session of the home.
    #[arg(long, value_name = "SESSION", requires = "home")]
    session: Option<String>,
}

impl Run {
    /// Runs the agent to its end.
    pub(super) fn execute(mut self, log: Log) -> Result<Code, Problem> {
        if let Some(home) = &self.home
            && let Some(file) = Kept::configuration(home).filter(|_| self.options.config.is_none())
        {
            self.options.config = Some(file);
        }
        let mut configuration = self.options.configuration()?;
        let named = Named::parse(&self.agent);
        self.agent = named.resolve(&mut self.options, &configuration)?;
        self.ceilings(&mut configuration);
        let directories = directories(&self.directories)?;
        if self.task == "-" {
            self.task = task_from(io::stdin().lock())?;
        }
        let form = if self.json { Form::Json } else { Form::Lines };
        // A live line below JSON on the same terminal would be in its way.
        let alone = form == Form::Lines || !io::stdout().is_terminal();
        let screen = if alone { Screen::live() } else { Screen::plain() };
        let export = Export::new(&configuration)?;
        log.start_with(screen.clone(), &export)?;

        let mut builder = self.options.builder(configuration.clone())?;
        if let Some(model) = &self.model {
            builder = model::choose(model, &configuration, builder)?;
        }
        let kept = match &self.home {
            Some(home) => Some(Kept::take(home, configuration)?),
            None => None,
        };
        let done = setup::block_on(async {
            let host = builder.build()?;
            let done = self.on(&host, &named, kept.as_ref(), directories, form, &screen).await;
            match kept {
                Some(kept) => {
                    let closed = kept.close().await;
                    done.and_then(|code| closed.map(|()| code))
                }
                None => done,
            }
        });
        screen.clear();
        export.finish();
        done
    }

    async fn on(
        &self,
        host: &Host,
        named: &Named,
        kept: Option<&Kept>,
        directories: Vec<Directory>,
        form: Form,
        screen: &Screen,
    ) -> Result<Code, Problem> {
        let interrupts = Interrupts::listen(host.tree().clone(), host.grace())?;
        let session = {
            let mut opening = pin!(self.open(host, named, kept, directories));
            let (began, mut redraw) = (Instant::now(), tokio::time::interval(REDRAW));
            loop {
                tokio::select! {
                    biased;
                    opened = &mut opening => break opened?,
                    () = interrupts.given_up() => return Ok(given_up(screen)),
                    _ = redraw.tick() => {
                        screen.status(format!("{} · loading components · {}", self.agent, text::time(began.elapsed())));
                    }
                }
            }
        };
        let refused = |error| {
            Problem::because(Code::Refused, format!("could not start `{}`", self.agent), error)
        };
        // What happened in earlier turns is not shown again.
        let before = session.newest();
        let turn = session
            .prompt(self.task.as_str(), self.input.as_deref().unwrap_or_default())
            .map_err(refused)?;
        interrupts.running(session.clone());
        let mut progress = Progress::new(form, screen.clone(), host.grace());
        let ended = self.watch(host, &session, (turn, before), &mut progress, screen).await;
        // Nothing may be left of the run when this returns; what is left is said.
        let left = host.shutdown("the command ends", BOUND).await;
        interrupts.over();
        let report = ended?;
        progress.close(&report);
        self.mention_models(host, &report, screen);
        if kept.is_some() {
            screen.line(&match &report.unrecorded {
                None => format!("recorded as {0}; --session {0} goes on with it", session.id()),
                Some(error) => format!("the end of the run is not recorded: {error}"),
            });
        }
        if let Err(left) = left {
            screen.line(&format!(
                "still alive at the end:\n{}",
                status::left(&left.nodes).join("\n")
            ));
        }
        if form == Form::Lines && !report.output.is_empty() {
            let newline = if report.output.ends_with('\n') { "" } else { "\n" };
            text::print(&format!("{}{newline}", report.output))?;
        }
        Ok(Code::from(&report.outcome))
    }

    /// The session of the run. It is over when its run is: nobody would read what comes later (A11).
    async fn open(
        &self,
        host: &Host,
        named: &Named,
        kept: Option<&Kept>,
        directories: Vec<Directory>,
    ) -> Result<Session, Problem> {
        let give = |opening: SessionBuilder| {
            let opening = opening.delivery(Delivery::Never);
            directories.into_iter().fold(opening, SessionBuilder::directory)
        };
        let opened = match (kept, &self.session) {
            (None, _) => give(host.session(&self.agent)).open().await,
            (Some(kept), None) => kept.profile(host).await?.open_with(&self.agent, give).await,
            (Some(kept), Some(session)) => {
                let (profile, id) = (kept.profile(host).await?, SessionId::new(session.as_str()));
                let agent = profile.row(&id).await?.agent;
                if agent != self.agent {
                    let words = format!(
                        "the session {id} is one of the agent `{agent}`, and not of `{}`",
                        self.agent
                    );
                    return Err(Problem::new(Code::Usage, words));
                }
                profile.session_with(&id, give).await
            }
        };
        opened.map_err(|error| self.explain(named, error))
    }

    /// Shows what happens until the turn has ended. When nobody takes the output any more, the run has no purpose
    /// and is ended.
    async fn watch(
        &self,
        host: &Host,
        session: &Session,
        (turn, before): (Turn, u64),
        progress: &mut Progress,
        screen: &Screen,
    ) -> Result<TurnReport, Problem> {
        let run = turn.id();
        let mut events = session.events(before);
        let mut ended = pin!(turn.ended());
        let mut redraw = tokio::time::interval(REDRAW);
        redraw.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut output = Output::Taken;
        let mut show = |event: &_, output: &mut Output| {
            if let Output::Taken = output
                && let Err(error) = progress.show(event)
            {
                session
                    .stop_turn(
                        None,
                        &Stop::hard("host", format!("the events could not be written: {error}")),
                    )
                    .ok();
                *output = Output::Lost(error);
            }
        };
        let mut missed = Vec::new();
        let report = loop {
            tokio::select! {
                biased;
                report = &mut ended => break report,
                event = events.next() => match event {
                    Ok(Some(event)) => show(&event, &mut output),
                    Ok(None) => {}
                    Err(error) => missed.push(error),
                },
                _ = redraw.tick() => {
                    let nodes = if screen.is_live() { host.tree().snapshot(run) } else { Vec::new() };
                    screen.status(status::line(&self.agent, &nodes));
                }
            }
        };
        loop {
            match events.try_next() {
                Ok(Some(event)) => show(&event, &mut output),
                Ok(None) => break,
                // What comes after the gap is still shown: the end of the run among it.
                Err(error) => missed.push(error),
            }
        }
        missed.iter().for_each(|error| progress.missed(error));
        match output {
            Output::Lost(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Problem::because(Code::Failed, "could not write to standard output", error))
            }
            Output::Taken | Output::Lost(_) => Ok(report),
        }
    }

    /// The ceilings of the command line go before those of the configuration.
    fn ceilings(&self, configuration: &mut Configuration) {
        let Ok(name) = Name::parse(&self.agent) else { return };
        for limits in &self.limits {
            let table = configuration.plugins.entry(name.clone()).or_default();
            table.limits = limit::over(limits, &table.limits);
        }
    }

    /// Says what a failed agent most likely lacked, when it asks models and there are none.
    fn mention_models(&self, host: &Host, report: &TurnReport, screen: &Screen) {
        let asks = host
            .catalogue()
            .get(&self.agent)
            .is_ok_and(|agent| !agent.manifest().grants.models.is_empty());
        if asks && host.models().is_empty() && matches!(report.outcome, Outcome::Failed(_)) {
            screen.line(
                "  no model is configured: give one with --model, such as --model anthropic:MODEL",
            );
        }
    }

    fn explain(&self, named: &Named, error: checkrein::Error) -> Problem {
        let check = || {
            format!(
                "`checkrein plugin check` with the same arguments says more about `{}`",
                self.agent
            )
        };
        let advice = match named.advice() {
            advice if error.kind() == ErrorKind::NotFound => advice,
            _ if error.kind() == ErrorKind::Component => Some(check()),
            _ => None,
        };
        let problem = Problem::from(error);
        match advice {
            Some(advice) => problem.advise(advice),
            None => problem,
        }
    }
}

/// Whether standard output still takes what is written.
enum Output {
    Taken,
    Lost(io::Error),
}

fn given_up(screen: &Screen) -> Code {
    screen.clear();
    screen.line("interrupted before the run had started");
    Code::Interrupted
}

/// The directories of the command line: absolute, there, and each with a name.
pub(super) fn directories(arguments: &[DirectoryArgument]) -> Result<Vec<Directory>, Problem> {
    let mut found = Vec::new();
    for argument in arguments {
        let shown = argument.path.display();
        let missing =
            |error| Problem::because(Code::Usage, format!("could not use --dir {shown}"), error);
        let look = std::fs::metadata(&argument.path).map_err(missing)?;
        if !look.is_dir() {
            return Err(Problem::new(
                Code::Usage,
                format!("could not use --dir {shown}: it is not a directory"),
            ));
        }
        // Only a path that ends in a name gives one to the directory; `..` does not.
        let path = match argument.path.file_name() {
            Some(_) => std::path::absolute(&argument.path),
            None => argument.path.canonicalize(),
        };
        found.push(DirectoryArgument { path: path.map_err(missing)?, ..argument.clone() });
    }
    DirectoryArgument::name_all(&found)
        .map_err(|error| Problem::because(Code::Usage, "could not use --dir", error))
}

fn task_from(input: impl Read) -> Result<String, Problem> {
    let failed =
        |error| Problem::because(Code::Usage, "could not read the task from standard input", error);
    let mut task = String::new();
    let read = input.take(LONGEST_TASK + 1).read_to_string(&mut task).map_err(failed)?;
    if read as u64 > LONGEST_TASK {
        let words =
            format!("the task on standard input is longer than {}", text::size(LONGEST_TASK));
        return Err(Problem::new(Code::Usage, words)
            .advise("give it as a file in a directory, and name the file in the task"));
    }
    Ok(task.trim_end().to_owned())
}

fn json(text: &str) -> Result<String, String> {
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("it is not JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        run: Run,
    }

    fn parse(arguments: &[&str]) -> Result<Run, String> {
        let all = std::iter::once("run").chain(arguments.iter().copied());
        Alone::try_parse_from(all).map(|alone| alone.run).map_err(|error| error.to_string())
    }

    #[test]
    fn a_task_may_be_missing_and_no_mistyped_option_is_one() {
        assert_eq!(parse(&["surveyor", "--dir", "."]).unwrap().task, "");
        assert_eq!(parse(&["assistant", "-"]).unwrap().task, "-");
        assert_eq!(parse(&["assistant", "--json", "--", "--help me"]).unwrap().task, "--help me");
        assert!(parse(&["surveyor", "--jsno"]).unwrap_err().contains("--json"));
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused_with_the_reason() {
        for (arguments, reason) in [
            (vec![], "AGENT"),
            (vec!["a", "--dir", "src:wr"], "write `:ro` or `:rw`"),
            (vec!["a", "--limit", "feul=3"], "feul"),
            (vec!["a", "--limit", "wall-time=30"], "wall-time"),
            (vec!["a", "--input", "{"], "not JSON"),
        ] {
            let error = parse(&arguments).unwrap_err();
            assert!(error.contains(reason), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn directories_become_absolute_and_get_their_names() {
        let arguments: Vec<_> =
            ["src", "cli=.", ".."].map(|text| DirectoryArgument::parse(text).unwrap()).into();
        let found = directories(&arguments[..2]).unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!((found[0].mount.as_str(), &found[0].path), ("/work", &here.join("src")));
        assert_eq!((found[1].mount.as_str(), &found[1].path), ("/cli", &here));
        let both = directories(&[arguments[0].clone(), arguments[2].clone()]).unwrap();
        assert_eq!(both[1].path, here.parent().unwrap());
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let missing = DirectoryArgument::parse("no/such/place").unwrap();
        let lines = directories(&[missing]).unwrap_err().lines();
        assert_eq!(lines[0], "could not use --dir no/such/place");
        assert!(lines[1].contains("No such file"), "{lines:?}");
        let file = DirectoryArgument::parse("Cargo.toml").unwrap();
        assert!(directories(&[file]).unwrap_err().lines()[0].contains("it is not a directory"));
    }

    #[test]
    fn a_task_from_standard_input_is_text_of_bounded_length() {
        assert_eq!(task_from(&b"do it\n"[..]).unwrap(), "do it");
        assert!(task_from(&b"\xff"[..]).is_err());
        assert!(task_from(std::io::repeat(b'x')).is_err());
    }
}
