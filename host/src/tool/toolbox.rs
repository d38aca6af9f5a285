//! The tools of a run, and one call of one of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::arguments::{Arguments, SchemaError};
use super::name::{NameError, full_name};
use super::plugin_host::Plugged;
use crate::message::{Failure, FailureCode, ToolCall, ToolResult, ToolSpec};
use crate::sandbox::{
    LimitKind, Outcome, PluginHost as _, Reach, Report, Run, RunFigures, Sandbox, Share, Start,
    ToolCode, ToolHost,
};
use crate::work::{Kind, Refused, Work, blocking};

/// How long a tool component may take to say what it is.
const DESCRIBE_TIME: Duration = Duration::from_secs(10);

/// Bytes that a tool component may say of itself, whatever its limits let it say later.
const DESCRIBE_BYTES: u64 = 1 << 20;

/// How many tools one component may have.
const MOST_TOOLS: usize = 128;

/// How many values and patterns the schemas of one component may have together, with every reference followed.
const MOST_VALUES: usize = 20_000;
const MOST_PATTERNS: usize = 256;

/// How many long checks of one component's arguments run at once. The others of it wait, and nobody else does.
const CHECKS: usize = 2;

/// A tool component that is ready to be called, with what it may touch.
#[derive(Debug, Clone)]
pub struct ToolPlugin {
    /// The plugin's side of its guests.
    pub plugged: Arc<Plugged>,
    /// The code.
    pub code: ToolCode,
    /// What each call can reach.
    pub reach: Arc<Reach>,
}

/// What one run may call. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Toolbox {
    routes: BTreeMap<String, Arc<Route>>,
}

/// From one name to one tool of one component.
#[derive(Debug, Clone)]
struct Route {
    spec: ToolSpec,
    /// What its calls are called in the tree of work.
    label: Arc<str>,
    /// The tool's name inside its component.
    inner: Arc<str>,
    arguments: Arc<Arguments>,
    /// Lets so many long checks in, for all tools of the component.
    checks: Arc<Semaphore>,
    plugin: ToolPlugin,
}

impl Toolbox {
    /// Asks a component for its tools and adds them. It is asked in a run that can reach nothing.
    ///
    /// # Errors
    ///
    /// [`ToolError`] when it cannot say, or says something that no model could use. Nothing is added then.
    pub async fn add(
        &mut self,
        sandbox: &Sandbox,
        owner: &Work,
        plugin: ToolPlugin,
    ) -> Result<(), ToolError> {
        let name = Arc::clone(&plugin.plugged.name);
        let work = owner.open(Kind::ToolCall, format!("{name} describes itself"))?;
        let mut limits = plugin.plugged.effective.limits.clone();
        limits.wall_time =
            Some(limits.wall_time.map_or(DESCRIBE_TIME, |wall| wall.min(DESCRIBE_TIME)));
        // What it says of itself is no result of it.
        limits.output_bytes = DESCRIBE_BYTES;
        limits.call_bytes = limits.call_bytes.max(DESCRIBE_BYTES);
        let host = Arc::clone(&plugin.plugged) as Arc<dyn ToolHost>;
        let start = Start { work, limits, reach: Arc::new(Reach::default()), host };
        let report = sandbox.describe_tools(&plugin.code, start).ended().await;
        let specs = match report.outcome {
            Outcome::Completed(specs) => specs,
            other @ (Outcome::Failed(_)
            | Outcome::Interrupted { .. }
            | Outcome::Limit(_)
            | Outcome::Trapped(_)
            | Outcome::NoPlace
            | Outcome::NotStarted(_)
            | Outcome::HostPanicked(_)
            | Outcome::Unknown(_)) => {
                let detail = other.detail().unwrap_or_default();
                return Err(ToolError::Silent { plugin: name.to_string(), detail });
            }
        };
        if specs.is_empty() || specs.len() > MOST_TOOLS {
            return Err(ToolError::Count { plugin: name.to_string(), count: specs.len() });
        }
        let checks = Arc::new(Semaphore::new(CHECKS));
        let reader = Arc::clone(&name);
        let read =
            apart(sandbox.control(), owner, &checks, "reads schemas", move || read(&reader, specs))
                .await?;
        let detail = || "its schemas could not be read".to_owned();
        let read =
            read.ok_or_else(|| ToolError::Silent { plugin: name.to_string(), detail: detail() })?;
        let mut added = BTreeMap::new();
        for (spec, arguments) in read? {
            let full = full_name(&name, &spec.name)?;
            let route = Route {
                label: full.as_str().into(),
                inner: spec.name.as_str().into(),
                spec: ToolSpec { name: full.clone(), ..spec },
                arguments: Arc::new(arguments),
                checks: Arc::clone(&checks),
                plugin: plugin.clone(),
            };
            if self.routes.contains_key(&full)
                || added.insert(full.clone(), Arc::new(route)).is_some()
            {
                return Err(ToolError::Twice { tool: full });
            }
        }
        self.routes.append(&mut added);
        Ok(())
    }

    /// The same tools, whose calls take their places for calls that wait for a disk from another share.
    #[must_use]
    pub fn shared_by(&self, share: &Share) -> Toolbox {
        let shared = |route: &Arc<Route>| {
            let reach = Reach { share: share.clone(), ..Reach::clone(&route.plugin.reach) };
            let plugin = ToolPlugin { reach: Arc::new(reach), ..route.plugin.clone() };
            Arc::new(Route { plugin, ..Route::clone(route) })
        };
        let routes = self.routes.iter();
        Toolbox { routes: routes.map(|(name, route)| (name.clone(), shared(route))).collect() }
    }

    /// The same tools as far as `allows` says so.
    #[must_use]
    pub fn narrowed(&self, allows: impl Fn(&str) -> bool) -> Toolbox {
        let routes = self.routes.iter().filter(|(name, _)| allows(name));
        Toolbox { routes: routes.map(|(name, route)| (name.clone(), Arc::clone(route))).collect() }
    }

    /// Whether there is a tool of that name.
    pub fn has(&self, name: &str) -> bool {
        self.routes.contains_key(name)
    }

    /// The tools, sorted by name.
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.routes.values().map(|route| route.spec.clone()).collect()
    }

    /// Calls a tool, as work below `caller`. The answer is a result in every case. `hears` is told of its status and
    /// content once it is there, also when the caller is taken away before it has come for it; it is dropped when the
    /// call is stopped before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the call hard.
    pub fn call(
        &self,
        sandbox: &Sandbox,
        caller: &Work,
        call: ToolCall,
        hears: impl FnOnce(&'static str, &str) + Send + 'static,
    ) -> impl Future<Output = ToolResult> + Send + 'static {
        let ToolCall { id, name, arguments } = call;
        let figures = Arc::clone(sandbox.figures());
        let hears = move |status: &'static str, content: &str| {
            figures.tool_calls.of(status).one();
            hears(status, content);
        };
        let figures = Arc::clone(sandbox.figures());
        let started = match self.routes.get(&name) {
            Some(route) => match start(sandbox, caller, route, arguments) {
                Ok(run) => {
                    Ok(Hearing { run, route: Arc::clone(route), hears: Some(hears), figures })
                }
                Err((status, words)) => {
                    hears(status, &words);
                    Err((status, words))
                }
            },
            None => {
                let words = format!("there is no tool `{}`", name.escape_debug());
                hears("not-found", &words);
                Err(("not-found", words))
            }
        };
        async move {
            let (status, content) = match started {
                Ok(mut hearing) => hearing.ended().await,
                Err(refused) => refused,
            };
            ToolResult { id, status: status.to_owned(), content }
        }
    }
}

type Answer = (&'static str, String);

/// Reads the schemas of a component's tools.
fn read(plugin: &str, specs: Vec<ToolSpec>) -> Result<Vec<(ToolSpec, Arguments)>, ToolError> {
    let (mut values, mut patterns) = (0, 0);
    let mut read = Vec::with_capacity(specs.len());
    for spec in specs {
        let at =
            |error| ToolError::Schema { plugin: plugin.to_owned(), tool: spec.name.clone(), error };
        let arguments = Arguments::new(&spec.parameters).map_err(at)?;
        values += arguments.size().values;
        patterns += arguments.size().patterns;
        if values > MOST_VALUES || patterns > MOST_PATTERNS {
            return Err(ToolError::Excess { plugin: plugin.to_owned() });
        }
        read.push((spec, arguments));
    }
    Ok(read)
}

/// Does what may take long on a thread that nothing else needs. None when it panicked.
async fn apart<T: Send + 'static>(
    control: &Handle,
    work: &Work,
    checks: &Arc<Semaphore>,
    what: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>, Refused> {
    let Ok(permit) = Arc::clone(checks).acquire_owned().await else { return Ok(None) };
    Ok(blocking(control, work, what, permit, call)?.await.ok())
}

/// Checks arguments; those that take long apart, with a hold on the call and the runtime that has threads for it.
async fn check(
    long: Option<(Work, Handle)>,
    route: Arc<Route>,
    arguments: String,
) -> Result<String, Failure> {
    let invalid = |words| Failure::new(FailureCode::Invalid, words);
    let Some((work, control)) = long else {
        return route.arguments.check(&arguments).map_err(invalid);
    };
    let checks = Arc::clone(&route.checks);
    let check = move || route.arguments.check(&arguments);
    // In a box, so that the calls without a long check are not made larger by it.
    match Box::pin(apart(&control, &work, &checks, "checks arguments", check)).await {
        Ok(Some(checked)) => checked.map_err(invalid),
        Ok(None) => Err(unchecked("the check panicked")),
        Err(refused) => Err(unchecked(&refused.to_string())),
    }
}

fn unchecked(why: &str) -> Failure {
    Failure::new(FailureCode::Failed, format!("the arguments could not be checked: {why}"))
}

/// Starts the call. Its arguments are checked in its own run, where a stop reaches it as ever: reading JSON is not for
/// the small stack on which the caller's guest is, and a check needs no hand-over to another runtime and back.
fn start(
    sandbox: &Sandbox,
    caller: &Work,
    route: &Arc<Route>,
    arguments: String,
) -> Result<Run<String>, Answer> {
    let work = caller
        .open(Kind::ToolCall, Arc::clone(&route.label))
        .map_err(|refused| ("interrupted", format!("the call was not started: {refused}")))?;
    let long = !route.arguments.is_quick(&arguments);
    let long = long.then(|| (work.share(), sandbox.control().clone()));
    let arguments = check(long, Arc::clone(route), arguments);
    let plugin = &route.plugin;
    let host = Arc::clone(&plugin.plugged) as Arc<dyn ToolHost>;
    let limits = plugin.plugged.effective.limits.clone();
    let start = Start { work, limits, reach: Arc::clone(&plugin.reach), host };
    Ok(sandbox.call_tool(&plugin.code, start, Arc::clone(&route.inner), arguments))
}

/// A call whose answer somebody hears of, whatever becomes of the caller.
struct Hearing<F: FnOnce(&'static str, &str)> {
    run: Run<String>,
    route: Arc<Route>,
    /// None once it has been told.
    hears: Option<F>,
    figures: Arc<RunFigures>,
}

impl<F: FnOnce(&'static str, &str)> Hearing<F> {
    async fn ended(&mut self) -> Answer {
        let report = self.run.wait().await;
        self.told(report)
    }

    fn told(&mut self, report: Report<String>) -> Answer {
        if !report.reached.is_empty() {
            let (plugin, inner) = (&self.route.plugin, &self.route.inner);
            let words = format!("`{inner}` came up against its limits: {}", report.reached);
            plugin.plugged.log("warn", &words);
        }
        let answer = answer(report);
        if let Some(hears) = self.hears.take() {
            hears(answer.0, &answer.1);
        }
        answer
    }
}

impl<F: FnOnce(&'static str, &str)> Drop for Hearing<F> {
    /// The caller is stopped: an answer that had come by then is still heard (S12).
    fn drop(&mut self) {
        if self.hears.is_none() {
            return;
        }
        match self.run.try_ended() {
            Some(report) if !matches!(report.outcome, Outcome::Interrupted { .. }) => {
                self.told(report);
            }
            _ => self.figures.tool_calls.of("interrupted").one(),
        }
    }
}

fn answer(report: Report<String>) -> Answer {
    let detail = report.outcome.detail();
    match report.outcome {
        Outcome::Completed(content) => ("ok", content),
        Outcome::Failed(failure) => {
            let status = match failure.code {
                FailureCode::Denied => "denied",
                FailureCode::NotFound => "not-found",
                FailureCode::Invalid => "invalid",
                FailureCode::Limit => "limit",
                FailureCode::Interrupted
                | FailureCode::TooLarge
                | FailureCode::Busy
                | FailureCode::Unavailable
                | FailureCode::Failed => "error",
            };
            (status, failure.message)
        }
        Outcome::Limit(kind) => ("limit", limit_words(kind)),
        Outcome::Interrupted { .. } => ("interrupted", detail.unwrap_or_default()),
        Outcome::NoPlace => ("error", detail.unwrap_or_default()),
        Outcome::NotStarted(reason) => {
            tracing::warn!(reason, "a tool was not started");
            ("error", "the tool could not be started; the operator's log says why".to_owned())
        }
        Outcome::Trapped(_) | Outcome::HostPanicked(_) | Outcome::Unknown(_) => {
            ("trapped", detail.unwrap_or_default())
        }
    }
}

fn limit_words(kind: LimitKind) -> String {
    format!("the tool used up its limit `{kind}`: ask for less at once")
}

/// A tool component cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// No work is opened any more.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It did not say which tools it has.
    #[error("the tool plugin `{plugin}` did not describe itself: {detail}")]
    Silent {
        /// The plugin.
        plugin: String,
        /// What happened in place of it.
        detail: String,
    },
    /// It has no tools, or too many.
    #[error(
        "the tool plugin `{plugin}` describes {count} tools; it must have from 1 to {MOST_TOOLS}"
    )]
    Count {
        /// The plugin.
        plugin: String,
        /// How many.
        count: usize,
    },
    /// A tool has a name that no model could call.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A tool's schema cannot be used.
    #[error("the tool `{tool}` of the plugin `{plugin}` cannot be used: {error}")]
    Schema {
        /// The plugin.
        plugin: String,
        /// The tool.
        tool: String,
        /// Why.
        error: SchemaError,
    },
    /// Its schemas are too much together.
    #[error(
        "the schemas of the tool plugin `{plugin}` have more than {MOST_VALUES} values or {MOST_PATTERNS} patterns together"
    )]
    Excess {
        /// The plugin.
        plugin: String,
    },
    /// Two tools have one name.
    #[error("two tools are called `{tool}`; rename one of them or leave one plugin out")]
    Twice {
        /// The name.
        tool: String,
    },
}
