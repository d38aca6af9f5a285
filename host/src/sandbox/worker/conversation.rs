//! The run of a worker, on the side of the host: what its guest asks goes through a door of this process, and what the
//! guest gets is what that lets through.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tracing::Instrument;

use super::fate::Fate;
use super::frame::{
    Answered, Ask, Asking, Beginning, Ended, Ending, Errand, FromWorker, Halt, Reply, Sayable,
    ToWorker, decode, encode, longest,
};
use super::process::{self, Line, Plan};
use super::settings::Workers;
use crate::message::{Failure, FailureCode};
use crate::model::Request;
use crate::sandbox::door::{Answer, Door, Scope};
use crate::sandbox::instance::{Output, Returned, Run, Start, Tally};
use crate::sandbox::limits::{LimitKind, Limits};
use crate::sandbox::meter::Meter;
use crate::sandbox::outcome::{Ends, Trapped};
use crate::sandbox::reach::Reach;
use crate::sandbox::sandbox::{Apart, Shared};
use crate::sandbox::upward::{Above, ForAgent, ForTool, PluginHost, Waiting};
use crate::sandbox::wasi::Places;
use crate::sandbox::weigh::{FRAME, Weigh};
use crate::work::Kind;

/// Calls that a worker may have open beside those that its limits let it have.
const SPARE_CALLS: u64 = 8;

/// Bytes of the words in which a worker says how its run ended, and frames of the guest's stack in them.
const LONGEST_WORDS: usize = 4 << 10;
const FRAMES: usize = 20;

/// Starts a run in a process of its own. `errand` comes to what it shall do, or to the failure that it ends with before
/// there is a process.
pub(in crate::sandbox) fn start<H, T>(
    shared: &Arc<Shared>,
    code: &Apart,
    start: Start<H>,
    log: Arc<dyn PluginHost>,
    errand: impl Future<Output = Result<Errand, Failure>> + Send + 'static,
) -> Run<T>
where
    H: Asked,
    T: Output + Sayable,
{
    let Start { work, limits, reach, host } = start;
    crate::sandbox::instance::set_deadline(&work, &limits);
    let meter = Arc::new(Meter::new(limits.clone()));
    let places = Places::new(&reach.share, &shared.blocking);
    let tally = Tally::new(shared, &work, &meter);
    let scope =
        Arc::new(Scope::new(work.share(), Arc::clone(&meter), log, Arc::clone(shared), places));
    let fate = Fate::default();
    let name = code.workers.next_name();
    // It counts from now on, though there is no process yet.
    let worker = work.open(Kind::Worker, Arc::clone(&name));
    let conversation = {
        let (fate, code, meter) = (fate.clone(), code.clone(), Arc::clone(&meter));
        async move {
            let errand = match errand.await {
                Ok(errand) => errand,
                Err(failure) => return Ok(Err(failure)),
            };
            let worker = worker.map_err(|refused| Ends::NotStarted(refused.to_string()))?;
            let workers = &code.workers;
            let place = Arc::clone(&workers.places).try_acquire_owned();
            let place = place.map_err(|_| Ends::NoPlace)?;
            let longest = longest(&limits);
            let beginning = beginning(&code, &limits, &reach, errand, host.plugin(), &scope)?;
            let (memory, knows_of_a_stop) = (beginning.memory, beginning.stop.is_some());
            let first = encode(&ToWorker::Start(Box::new(beginning)))
                .map_err(|error| Ends::NotStarted(error.to_string()))?;
            let plan = Plan {
                name,
                settings: workers.settings.clone(),
                first,
                knows_of_a_stop,
                memory,
                code: Arc::clone(&code.image),
                longest,
                fate: fate.clone(),
                meter,
                place,
            };
            let line = process::open(scope.control(), worker, plan);
            let door = Arc::new(Door::new(host, scope));
            Conversation { door, fate, workers: Arc::clone(workers), asked: HashMap::new() }
                .until_the_end(line)
                .await
        }
    };
    let running = shared.executor.start(
        work,
        // Nothing of a guest is on a processor of this process.
        Arc::new(|| ()),
        meter as Arc<dyn crate::work::Gauge>,
        conversation.in_current_span(),
    );
    Run::apart(running, tally, H::HEEDS, fate)
}

fn beginning(
    code: &Apart,
    limits: &Limits,
    reach: &Reach,
    errand: Errand,
    plugin: &dyn PluginHost,
    scope: &Scope,
) -> Result<Beginning, Ends> {
    let settings = &code.workers.settings;
    let mut directories = reach.directories.clone();
    for directory in &mut directories {
        // The worker starts elsewhere.
        directory.path = std::path::absolute(&directory.path).map_err(|error| {
            Ends::NotStarted(format!("{} cannot be given: {error}", directory.path.display()))
        })?;
        if directory.path.to_str().is_none() {
            let path = directory.path.display();
            let words = format!("the path {path} is not UTF-8, and cannot be given to a process");
            return Err(Ends::NotStarted(words));
        }
    }
    let keys = plugin.config_keys();
    let configuration: BTreeMap<String, String> =
        keys.into_iter().filter_map(|key| Some((key.clone(), plugin.config(&key)?))).collect();
    Ok(Beginning {
        code: code.settings,
        key: code.key,
        code_bytes: code.image.len() as u64,
        errand,
        limits: limits.clone(),
        memory: settings.memory_for(limits, code.image.len(), longest(limits)),
        processor_seconds: settings.processor_seconds_for(limits),
        directories,
        network: reach.network.clone(),
        environment: reach.environment.clone(),
        configuration,
        roots: code.workers.roots.clone(),
        asks_for_names: code.workers.names.is_some(),
        stop: scope.signal.soft().as_ref().map(Halt::of),
    })
}

/// The talk with one worker.
struct Conversation<H> {
    door: Arc<Door<H>>,
    fate: Fate,
    workers: Arc<Workers>,
    /// Calls that have not been answered, and the way to give each up.
    asked: HashMap<u64, AbortHandle>,
}

type Answering = BoxFuture<'static, (u64, Answer<Reply>)>;

impl<H: Asked> Conversation<H> {
    async fn until_the_end<T: Output + Sayable>(mut self, mut line: Line) -> Returned<T> {
        let mut answers: FuturesUnordered<Answering> = FuturesUnordered::new();
        loop {
            let frame = tokio::select! {
                Some((call, answer)) = answers.next() => {
                    self.answer(&line, call, answer)?;
                    continue;
                }
                frame = line.from.recv() => frame,
            };
            let Some(frame) = frame else { return Err(self.lost().into()) };
            let said = decode(&frame).map_err(|error| nonsense(&error.to_string()))?;
            let scope = self.door.scope();
            match said {
                FromWorker::Started => scope.meter.enters_guest(),
                FromWorker::Call(asking) => answers.push(self.ask(&line, asking)?),
                FromWorker::Cancel { call } => {
                    if let Some(asked) = self.asked.get(&call) {
                        asked.abort();
                    }
                }
                FromWorker::Log { level, message } => self.door.log(&level, &message)?,
                FromWorker::Doing { what, used } => {
                    scope.meter.tell(used).map_err(Ends::Limit)?;
                    if self.asked.is_empty() {
                        scope.meter.does(&what);
                    }
                }
                FromWorker::Ended(ended) => return self.ended(*ended),
            }
        }
    }

    /// Takes a call to the side above. The future is ready when its answer is.
    fn ask(&mut self, line: &Line, asking: Asking) -> Result<Answering, Ends> {
        let Asking { call, ask, used, stopped } = asking;
        let scope = self.door.scope();
        let limits = scope.meter.limits();
        scope.meter.tell(used).map_err(Ends::Limit)?;
        let most =
            limits.calls_in_flight.saturating_add(limits.open_files).saturating_add(SPARE_CALLS);
        let open = self.asked.len() as u64;
        if open >= most {
            return Err(nonsense("more calls at one time than it may have"));
        }
        // A call is open until its answer was taken: for as long as that the host has it in memory.
        let unread = line.waiting();
        if open.saturating_add(unread) >= most {
            return Err(Ends::Lost(format!(
                "its process was killed, because it does not read: {unread} answers wait for it"
            )));
        }
        if self.asked.contains_key(&call) {
            return Err(nonsense("two calls with one number"));
        }
        let (abort, registration) = AbortHandle::new_pair();
        self.asked.insert(call, abort);
        let waits = matches!(
            ask,
            Ask::Checkpoint { .. }
                | Ask::Complete(_)
                | Ask::CallTool(_)
                | Ask::DelegationEnded { .. }
        );
        let stop = if stopped { None } else { scope.signal.stop() };
        let answering: BoxFuture<'static, Answer<Reply>> = match (stop, ask) {
            // A stop is on its way to the guest, whose own door will leave this call for it. Nothing is begun.
            (Some(_), _) if waits => std::future::pending().boxed(),
            // This one it would see through; it is told here.
            (Some(stop), Ask::Delegate(_)) => {
                let words = format!("stopped by {}: {}", stop.issuer(), stop.message());
                let failure = Failure::new(FailureCode::Interrupted, words);
                std::future::ready(Ok(Err(failure))).boxed()
            }
            (_, Ask::LookUp { host }) => self.look_up(&host)?,
            (_, ask) => {
                H::ask(&self.door, ask).ok_or_else(|| nonsense("a call that is not its own"))?
            }
        };
        let door = Arc::clone(&self.door);
        let answering = Abortable::new(answering, registration);
        Ok(async move {
            let answer = match answering.await {
                Ok(answer) => answer,
                Err(_given_up) => {
                    // What the call was doing ends before the guest goes on.
                    door.scope().work.alone().await;
                    Ok(Err(Failure::new(FailureCode::Interrupted, "given up")))
                }
            };
            (call, answer)
        }
        .boxed())
    }

    fn look_up(&self, host: &str) -> Result<BoxFuture<'static, Answer<Reply>>, Ends> {
        let names = self.workers.names.as_ref();
        let names = names.ok_or_else(|| nonsense("a name to look up, which it does itself"))?;
        let found = names.look_up(host);
        Ok(async move {
            let failed =
                |error: std::io::Error| Failure::new(FailureCode::Failed, error.to_string());
            Ok(found.await.map(Reply::Addresses).map_err(failed))
        }
        .boxed())
    }

    fn answer(&mut self, line: &Line, call: u64, answer: Answer<Reply>) -> wasmtime::Result<()> {
        self.asked.remove(&call);
        let meter = &self.door.scope().meter;
        if self.asked.is_empty() {
            meter.enters_guest();
        }
        let answered = Answered {
            call,
            answer: answer?,
            tokens: meter.tokens(),
            fuel: meter.fuel_that_changed_hands().unwrap_or_default(),
        };
        let frame = encode(&ToWorker::Answer(Box::new(answered)))
            .map_err(|error| Ends::Lost(format!("it could not be answered: {error}")))?;
        line.tell(frame);
        Ok(())
    }

    fn ended<T: Output + Sayable>(&self, ended: Ended) -> Returned<T> {
        let Ended { ending, used, reached } = ended;
        let scope = self.door.scope();
        let over = scope.meter.tell(used);
        reached.into_iter().for_each(|kind| scope.meter.reach(kind));
        let said = |said| {
            let said = T::from_said(said).ok_or_else(|| nonsense("an answer of another sort"))?;
            if said.bytes() as u64 > scope.meter.limits().output_bytes {
                return Err(Ends::Limit(LimitKind::OutputBytes));
            }
            Ok(said)
        };
        match ending {
            Ending::Completed(value) => {
                over.map_err(Ends::Limit)?;
                Ok(Ok(said(value)?))
            }
            Ending::Failed(failure) => {
                if failure.message.len() as u64 > scope.meter.limits().output_bytes {
                    return Err(Ends::Limit(LimitKind::OutputBytes).into());
                }
                Ok(Err(failure))
            }
            Ending::Interrupted(_)
                if scope.signal.stop().is_none_or(|stop| stop.kind() < H::HEEDS) =>
            {
                Err(Ends::Lost("it was stopped in its process alone".to_owned()).into())
            }
            Ending::Interrupted(Some(value)) => Ok(Ok(said(value)?)),
            Ending::Interrupted(None) => Err(Ends::Stopped.into()),
            Ending::Limit(kind) => Err(Ends::Limit(kind).into()),
            Ending::Trapped(Trapped { cause, backtrace }) => {
                let backtrace = backtrace.into_iter().take(FRAMES).map(shortened).collect();
                Err(Ends::Trapped(Trapped { cause: shortened(cause), backtrace }).into())
            }
            Ending::NoPlace => Err(Ends::NoPlace.into()),
            Ending::NotStarted(words) => Err(Ends::NotStarted(shortened(words)).into()),
            Ending::Panicked(words) => Err(Ends::Failed(shortened(words)).into()),
        }
    }

    /// The process is gone without a word.
    fn lost(&self) -> Ends {
        let words = self.fate.words();
        if self.fate.has_begun() { Ends::Lost(words) } else { Ends::NotStarted(words) }
    }
}

/// What a worker says of an end is held to a length.
fn shortened(mut words: String) -> String {
    words.truncate(words.floor_char_boundary(LONGEST_WORDS));
    words
}

/// The worker says what no worker says: the run ends, and with it the process.
fn nonsense(what: &str) -> Ends {
    Ends::Lost(format!("its process said nonsense, and was killed: {what}"))
}

/// The side above a guest in a worker, as its calls find it.
pub(in crate::sandbox) trait Asked: Above {
    /// Takes a call through the door; none when a guest of this sort has no such call.
    fn ask(door: &Arc<Door<Self>>, ask: Ask) -> Option<BoxFuture<'static, Answer<Reply>>>
    where
        Self: Sized;
}

impl Asked for ForTool {
    fn ask(door: &Arc<Door<ForTool>>, ask: Ask) -> Option<BoxFuture<'static, Answer<Reply>>> {
        let Ask::Secret { name } = ask else { return None };
        Some(now(door, "secrets.get", name.len(), |host| host.0.secret(&name)))
    }
}

impl Asked for ForAgent {
    fn ask(door: &Arc<Door<ForAgent>>, ask: Ask) -> Option<BoxFuture<'static, Answer<Reply>>> {
        let detail = |text: &str| Some(Arc::from(text));
        Some(match ask {
            Ask::Checkpoint { name } => {
                let (seen, bytes) = (detail(&name), name.len());
                later(door, "run.checkpoint", seen, bytes, |host| host.0.checkpoint(name))
            }
            Ask::Complete(asked) => complete(door, asked.into()),
            Ask::Tools => now(door, "tools.list-tools", 0, |host| host.0.tools()),
            Ask::CallTool(call) => {
                let (seen, bytes) = (detail(&call.name), FRAME + call.weight());
                later(door, "tools.call", seen, bytes, |host| host.0.call_tool(call))
            }
            Ask::History { limit } => now(door, "session.history", 0, |host| host.0.history(limit)),
            Ask::Emit { kind, payload } => {
                let bytes = kind.len() + payload.len();
                now(door, "session.emit", bytes, |host| host.0.emit(&kind, &payload))
            }
            Ask::MemoryGet { key } => {
                now(door, "session.get", key.len(), |host| host.0.memory_get(&key))
            }
            Ask::MemorySet { key, value } => {
                let bytes = key.len() + value.len();
                now(door, "session.set", bytes, |host| host.0.memory_set(&key, value))
            }
            Ask::MemoryDelete { key } => {
                now(door, "session.delete", key.len(), |host| host.0.memory_delete(&key))
            }
            Ask::MemoryKeys { prefix } => {
                now(door, "session.keys", prefix.len(), |host| host.0.memory_keys(&prefix))
            }
            Ask::Capacity => now(door, "delegate.capacity", 0, |host| host.0.delegation_capacity()),
            Ask::Delegate(request) => {
                let (seen, bytes) = (request.counted(), request.weight());
                let purse = door.purse();
                later(door, "delegate.run", Some(seen.into()), bytes, |host| {
                    host.0.delegate(request, purse)
                })
            }
            Ask::Delegations { ids } => {
                now(door, "delegate.status", ids.weight(), |host| host.0.delegations(ids))
            }
            Ask::DelegationEnded { ids } => {
                let (seen, bytes) = (detail(&ids.join(", ")), ids.weight());
                later(door, "delegate.wait", seen, bytes, |host| host.0.delegation_ended(ids))
            }
            Ask::StopDelegations { ids, message } => {
                let bytes = ids.weight() + message.len();
                now(door, "delegate.stop", bytes, |host| host.0.stop_delegations(ids, &message))
            }
            Ask::Secret { .. } | Ask::LookUp { .. } => return None,
        })
    }
}

/// A call that is answered at once.
fn now<H: Asked, T: Weigh + Into<Reply>>(
    door: &Door<H>,
    call: &'static str,
    bytes: usize,
    ask: impl FnOnce(&H) -> Result<T, Failure>,
) -> BoxFuture<'static, Answer<Reply>> {
    let answer = door.pass(call, bytes, ask).map(|answer| answer.map(Into::into));
    std::future::ready(answer).boxed()
}

/// A call that may wait.
fn later<H: Asked, T: Weigh + Into<Reply> + 'static>(
    door: &Arc<Door<H>>,
    call: &'static str,
    detail: Option<Arc<str>>,
    bytes: usize,
    ask: impl FnOnce(&H) -> Waiting<T> + Send + 'static,
) -> BoxFuture<'static, Answer<Reply>> {
    let door = Arc::clone(door);
    async move { Ok(door.relay(call, detail, bytes, ask).await?.map(Into::into)) }.boxed()
}

/// A model request, with a bill of its own: what it costs is known here and told there.
fn complete(door: &Arc<Door<ForAgent>>, mut request: Request) -> BoxFuture<'static, Answer<Reply>> {
    if let Err(ends) = door.check_tokens() {
        return std::future::ready(Err(ends)).boxed();
    }
    if let Some(left) = door.tokens_left() {
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        request.max_output_tokens =
            Some(request.max_output_tokens.map_or(left, |most| most.min(left)));
    }
    let detail: Option<Arc<str>> = request.model.as_deref().map(Into::into);
    let bytes = request.messages.weight() + request.tools.weight();
    let biller = Arc::clone(door);
    later(door, "model.complete", detail, bytes, move |host| {
        // Opened where the request is made: one that a stop keeps from being made costs nothing.
        let bill = biller.bill(bytes);
        let waiting = host.0.complete(request, bill.spent.clone());
        async move {
            let answer = waiting.await;
            if let Ok(response) = &answer {
                bill.settle(response.usage, response.weight());
            }
            answer
        }
        .boxed()
    })
}
