//! A service that goes, with real parts: guests in processes, clients at a socket, tickets in somebody's hands, and a database
//! that others can lock (rules D, R1 and P8).

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use checkrein::model::{Hold, Reply, Scripted};
use checkrein::profile::{Authority, HomeLock, TICKET_LIFE};
use checkrein::sandbox::Outcome;
use checkrein::server::{App, Closing, Listener, ListenerLimits, LocalUser, router};
use checkrein::session::{Delivery, PromptError, Session, Turn};
use checkrein::store::{Retention, Sqlite, Store};
use checkrein::work::shutdown::{Bounds, Ended, Report, Request, Requested, Step, Steps};
use checkrein::work::{Kind, NodeView, Tree};
use checkrein::{Served, Service, ServiceSettings};
use checkrein_testkit::{Plugin, TestHost, TestHostBuilder, guest, within};
use futures::FutureExt;
use rusqlite::Connection;
use rustix::process::{Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::processes::{process, wedged};
use super::released;
use super::shutting_down::{REASON, bounds, reason};
use crate::api::daemon::{Answer, Client};
use crate::start::{Result, agent, host, interrupted, tool, with_agent};
use crate::workers::{folder, numbers, stops_told};

/// What a profile says in which the second agent has processes of its own.
const APART: &str = "[plugins.apart]\nisolation = \"process\"\n";

/// For a ticket that somebody was given and has not used.
const PURPOSE: &str = "attach";

/// A service with one profile, and a client at its socket.
struct Bed {
    host: TestHost,
    service: Service,
    authority: Authority<Served>,
    client: Client,
    closing: Closing,
    listening: Option<JoinHandle<usize>>,
}

/// What somebody outside found when the listeners were stopped, which is when the tickets have been revoked and no store is
/// closed yet.
#[derive(Debug, Default)]
struct Found {
    /// How often the listeners were stopped.
    times: usize,
    /// What was in the tree.
    alive: Vec<Kind>,
    /// Whether a ticket was still taken, and whether another was made.
    tickets: (bool, bool),
}

type Seen = Arc<Mutex<Found>>;

fn seen(seen: &Seen) -> std::sync::MutexGuard<'_, Found> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bed {
    /// One whose steps may take that long.
    async fn new(
        host: TestHostBuilder,
        profile: &str,
        (drain, settle): (Duration, Duration),
    ) -> Result<Bed> {
        let host = host.build()?;
        let profiles = host.home().join("profiles");
        std::fs::create_dir_all(profiles.join("main"))?;
        std::fs::write(profiles.join("main/profile.toml"), profile)?;
        let long = Duration::from_secs(30);
        let bounds = Bounds { stop_listeners: long, flush: long, ..bounds(drain, settle) };
        let settings = ServiceSettings { profiles, retire: Duration::ZERO, bounds };
        let service = Service::new(host.host(), settings);
        within("the service", service.start()).await??;
        let authority = service.profiles().get("main");
        let authority =
            authority.ok_or_else(|| anyhow::anyhow!("{:?}", service.profiles().parked()))?;
        let closing = Closing::new();
        let app = App::builder(host.host().clone(), Arc::new(service.clone()), closing.clone());
        let socket = host.home().join("api.sock");
        let listener = Listener::unix(&socket)?;
        let app = app.build();
        let router = router(app.clone(), Arc::new(LocalUser));
        let listening = tokio::spawn(async move {
            let limits = ListenerLimits::default();
            listener.serve(&app, router, &limits, Duration::from_secs(2)).await
        });
        let client = Client::of(socket);
        Ok(Bed { host, service, authority, client, closing, listening: Some(listening) })
    }

    async fn session(&self) -> Result<Session> {
        self.session_of("agent").await
    }

    async fn session_of(&self, agent: &str) -> Result<Session> {
        let profile = super::profile(&self.authority)?;
        Ok(within("a session", profile.open(agent, Delivery::Turns)).await??)
    }

    /// A connection of somebody else to the database of the profile.
    fn database(&self) -> Result<Connection> {
        Ok(Connection::open(self.authority.home().join("sessions.db"))?)
    }

    /// Stops its listeners when that step comes, and looks what a holder of a ticket meets then.
    fn looks(&mut self) -> Result<Seen> {
        let found = Seen::default();
        let (ticket, closing) =
            (self.authority.tickets().issue(PURPOSE, "giver", TICKET_LIFE)?, self.closing.clone());
        let used = self.authority.tickets().issue(PURPOSE, "giver", TICKET_LIFE)?;
        let (taker, told) = (self.authority.clone(), self.authority.clone());
        let (tree, keeps) = (self.host.host().tree().clone(), Arc::clone(&found));
        let listening = self.listening.take();
        let steps = Steps::new()
            .tell_clients(move || {
                // Until they are revoked tickets are good.
                let taken = told.tickets().redeem(used.reveal(), PURPOSE);
                ready(taken.map(drop).map_err(Into::into))
            })
            .stop_listeners(move || async move {
                {
                    let mut found = seen(&keeps);
                    found.times += 1;
                    found.alive = kinds(&alive(&tree));
                    found.tickets = (
                        taker.tickets().redeem(ticket.reveal(), PURPOSE).is_ok(),
                        taker.tickets().issue(PURPOSE, "giver", TICKET_LIFE).is_ok(),
                    );
                }
                closing.end();
                if let Some(listening) = listening {
                    listening.await?;
                }
                Ok(())
            });
        self.service.on_shutdown(steps);
        Ok(found)
    }

    fn asks(&self) {
        let request = Request::drain("operator", REASON);
        assert_eq!(self.service.request(&request), Requested::Began);
    }

    async fn ended(&self) -> Result<Arc<Report>> {
        let report = within("the shutdown", self.service.shutdown().ended()).await?;
        report.ok_or_else(|| anyhow::anyhow!("no report"))
    }

    fn is_over(&self) -> bool {
        self.service.shutdown().ended().now_or_never().is_some()
    }
}

/// The agent that does what its goal says, once more.
fn apart() -> Plugin {
    Plugin::agent("apart", guest("agent"))
}

fn alive(tree: &Tree) -> Vec<NodeView> {
    tree.executions(tree.root())
}

fn kinds(nodes: &[NodeView]) -> Vec<Kind> {
    nodes.iter().map(|node| node.kind).collect()
}

/// Asks the API to run something, and gives what it answers in the end.
fn asks(client: &Client, session: &Session, queue: bool) -> Result<JoinHandle<Result<Answer>>> {
    let path = format!("/v1/profiles/main/sessions/{}/prompts", session.id());
    let body = json!({ "goal": "checkpoint api\nsay done", "wait": true, "queue": queue });
    let asked = client.begin("POST", &path, Some(&body))?;
    Ok(tokio::task::spawn_blocking(move || asked.answer()))
}

/// Rules D1, D2, R1: the drain waits for a guest in a process of its own, a tool call that waits for a server, a model request of a
/// turn and a run of the API, and cuts none; whoever stands in line behind that run is refused. A write that the database has not
/// taken yet when the last of them ends is waited for before the store is closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_drains_every_real_kind_of_work() -> Result {
    let server = TcpListener::bind("127.0.0.1:0").await?;
    let address = server.local_addr()?;
    let network = format!(
        "network = [{{ host = \"127.0.0.1\", port = {}, private = true }}]",
        address.port()
    );
    let hold = Hold::new();
    let model = Scripted::new("model", [Reply::new().text("half").hold(&hold).text("whole")]);
    let host = host().plugin(agent()).plugin(apart()).plugin(tool().grants(&network)).model(model);
    let profile = format!("{APART}[plugins.tool.grants]\n{network}\n");
    let long = Duration::from_secs(60);
    let mut bed = Bed::new(host, &profile, (long, long)).await?;
    let worker = bed.session_of("apart").await?.prompt("checkpoint worker\nsay done", "")?;
    let goal = format!("call tool_connect {{\"host\":\"127.0.0.1\",\"port\":{}}}", address.port());
    let tool = bed.session().await?.prompt(goal, "")?;
    let (mut served, _) = within("the tool", server.accept()).await??;
    let model = bed.session().await?.prompt("ask why", "")?;
    let session = bed.session().await?;
    let run = asks(&bed.client, &session, false)?;
    let writer = bed.session().await?;
    let last = writer.prompt("checkpoint last\nsay done", "")?;
    for place in ["worker", "api", "last"] {
        bed.host.reached(place).await?;
    }
    bed.host.doing("model.complete").await?;
    let queued = asks(&bed.client, &session, true)?;
    let mut in_line = Box::pin(session.prompt_in_turn("say never", ""));
    assert!((&mut in_line).now_or_never().is_none(), "it stands in line");
    let there: BTreeSet<Kind> = kinds(&bed.host.executions()).into_iter().collect();
    let expected = [Kind::Turn, Kind::ToolCall, Kind::ModelRequest, Kind::Worker];
    assert_eq!(there, BTreeSet::from(expected));

    let found = bed.looks()?;
    bed.asks();
    let refused = bed.session().await;
    assert!(refused.is_err(), "new work is refused before the first wait");

    assert!(!bed.is_over(), "a run of the API is there");
    bed.host.release("api");
    let answer = within("the API's run", run).await???;
    assert_eq!((answer.status, &answer.body["output"]), (200, &json!("done")), "{answer:?}");
    let line = async { tokio::join!(queued, in_line) };
    let (queued, refused) = within("the end of the line", line).await?;
    let answer = queued??;
    assert_eq!((answer.status, answer.kind()), (503, "refused"), "{answer:?}");
    assert!(matches!(refused, Err(PromptError::Refused(_))), "{refused:?}");

    assert!(!bed.is_over(), "a tool is called");
    let mut hello = [0; 6];
    served.read_exact(&mut hello).await?;
    served.write_all(b"late").await?;
    drop(served);
    completes(tool, "ok: late").await?;
    assert!(!bed.is_over(), "a model is asked");
    hold.open();
    completes(model, "halfwhole").await?;
    assert!(!bed.is_over(), "a guest is in a process");
    bed.host.release("worker");
    completes(worker, "done").await?;

    // The end of the last turn is not written before somebody lets go of the database.
    let database = bed.database()?;
    database.execute_batch("BEGIN IMMEDIATE")?;
    assert!(!bed.is_over() && seen(&found).times == 0, "a turn goes on");
    bed.host.release("last");
    crate::workers::until("the listeners are stopped", || seen(&found).times > 0).await?;
    assert!(!bed.is_over(), "its end is not written");
    database.execute_batch("COMMIT")?;
    drop(database);
    completes(last, "done").await?;
    let report = bed.ended().await?;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.step(Step::HardStop), Some(&Ended::NotNeeded));
    {
        let found = seen(&found);
        assert_eq!((found.times, found.tickets), (1, (false, false)));
        assert!(found.alive.is_empty(), "the drain had waited for everything: {:?}", found.alive);
    }
    assert!(bed.authority.is_released() && bed.client.connect().is_err());
    let store = Sqlite::open(bed.authority.home().join("sessions.db"), Retention::default())?;
    for id in [session.id(), writer.id()] {
        let row = within("a session", store.session(id)).await??;
        assert_eq!((row.running, row.generation), (None, 1), "its end is recorded");
    }
    bed.host.is_idle()
}

async fn completes(turn: Turn, output: &str) -> Result {
    let report = within(output, turn.ended()).await?;
    assert_eq!((report.outcome, report.output.as_str()), (Outcome::Completed(()), output));
    Ok(())
}

/// Rule D4: a worker that obeys nothing and a run whose end hangs keep no step of a service from being taken: tickets are not good
/// any more, nobody can connect, and the home stays locked with its store open. Both are named, left alone, and end when they can.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_wedged_keeps_no_step_of_a_service_from_being_taken() -> Result {
    let folder = folder()?;
    let host = with_agent().plugin(apart()).configuration("[workers]\nstop-bound = \"10m\"");
    let host = wedged(host, folder.path());
    let short = Duration::from_millis(50);
    let mut bed = Bed::new(host, APART, (short, short)).await?;
    let session = bed.session_of("apart").await?;
    let mut wedged = Box::pin(session.prompt("say never", "")?.ended());
    bed.host.doing("computing").await?;
    let number = numbers(folder.path(), 1).await?[0];
    bed.host.places().linger("endless");
    let other = bed.session().await?;
    let side = other.side_run("partial half\ncheckpoint endless", "")?;
    bed.host.reached("endless").await?;
    let mut endless = Box::pin(side.ended());

    let found = bed.looks()?;
    let began = Instant::now();
    bed.asks();
    let report = bed.ended().await?;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let left: Vec<&str> = report.left.iter().map(|piece| piece.kind.as_str()).collect();
    assert_eq!(BTreeSet::from_iter(left), BTreeSet::from(["side run", "turn", "worker"]));
    for step in [Step::RevokeTickets, Step::StopListeners, Step::Flush] {
        assert_eq!(report.step(step), Some(&Ended::Done), "{step}: {report:?}");
    }
    {
        let found = seen(&found);
        assert_eq!((found.times, found.tickets), (1, (false, false)), "revoked, stopped once");
    }
    assert!(bed.client.connect().is_err(), "nobody can connect");
    assert!(!bed.authority.is_released() && HomeLock::take(bed.authority.home()).is_err());
    assert!((&mut wedged).now_or_never().is_none() && (&mut endless).now_or_never().is_none());
    assert!(bed.host.executions().iter().all(|node| node.stop == Some(reason())), "not cut anew");

    kill_process(process(number)?, Signal::KILL)?;
    bed.host.release("endless");
    let wedged = within("the wedged", wedged).await?;
    assert!(matches!(wedged.outcome, Outcome::Unknown(_)), "{wedged:?}");
    assert!(wedged.unrecorded.is_none(), "its store was open: {wedged:?}");
    assert_eq!(stops_told(&folder.path().join("told"))?, ["hard"], "told once");
    let side = within("the endless", endless).await?;
    assert_eq!((side.outcome, side.output.as_str()), (interrupted(reason()), "half"));
    let retired = bed.authority.retire(Duration::from_secs(30));
    assert!(released(&within("the profile", retired).await?));
    bed.host.is_idle()
}

/// Rule D7: a service that could not write all that it owed says so. What it had to write is unknown to the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_could_not_write_its_last_words_has_not_ended_cleanly() -> Result {
    let long = Duration::from_secs(60);
    let bed = Bed::new(with_agent(), "", (long, long)).await?;
    let session = bed.session().await?;
    let turn = session.prompt("checkpoint held\nsay done", "")?;
    bed.host.reached("held").await?;
    let database = bed.database()?;
    database.execute_batch("BEGIN IMMEDIATE")?;
    bed.asks();
    bed.host.release("held");
    let report = bed.ended().await?;
    assert!(!report.is_clean(), "{report:?}");
    let Some(Ended::Failed(words)) = report.step(Step::Flush) else { panic!("{report:?}") };
    assert!(words.contains("main") && words.contains("locked"), "{words}");
    assert!(bed.authority.is_released(), "it stays so, and the home can be served again");
    database.execute_batch("COMMIT")?;
    let turn = within("the turn", turn.ended()).await?;
    assert_eq!(turn.outcome, Outcome::Completed(()));
    assert!(turn.unrecorded.is_some());
    Ok(())
}
