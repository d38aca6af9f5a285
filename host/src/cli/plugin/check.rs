//! `checkrein plugin check`: would it load here, and if not, which step fails and why.

use std::sync::Arc;
use std::time::Instant;

use checkrein::Host;
use checkrein::plugin::{Kind, Plugin};
use checkrein::sandbox::{CodeError, Interfaces, World};
use serde_json::{Value, json};

use super::get;
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::setup::{self, Named, Options};
use crate::cli::text;

/// The arguments of `checkrein plugin check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// A plugin's name, or the path of its folder, such as ./greeter.
    #[arg(value_name = "NAME-OR-PATH")]
    plugin: String,
    #[command(flatten)]
    options: Options,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn execute(mut self) -> Result<Code, Problem> {
        let configuration = self.options.configuration()?;
        let named = Named::parse(&self.plugin);
        let mut checked = Checked::new(text::shown(&self.plugin));
        // A manifest that cannot be used is an answer here, and not a wrong argument.
        match named.resolve(&mut self.options, &configuration) {
            Err(problem) => checked.fails("manifest", problem.lines()),
            Ok(name) => {
                let builder = self.options.builder(configuration)?;
                setup::block_on(async {
                    let host = builder.build()?;
                    checked.check(&host, get(&host, &name, &named)?).await;
                    Ok(())
                })?;
            }
        }
        text::print(&if self.json {
            format!("{:#}\n", checked.as_json())
        } else {
            checked.as_text()
        })?;
        Ok(if checked.loads() { Code::Completed } else { Code::Refused })
    }
}

/// The steps that were gone, in order. The last one may have failed; there is none after that.
struct Checked {
    what: String,
    steps: Vec<Step>,
}

struct Step {
    name: &'static str,
    /// How it went, or all reasons why it did not.
    went: Result<String, Vec<String>>,
}

impl Checked {
    fn new(what: String) -> Checked {
        Checked { what, steps: Vec::new() }
    }

    fn loads(&self) -> bool {
        self.steps.iter().all(|step| step.went.is_ok())
    }

    fn passes(&mut self, name: &'static str, words: String) {
        self.steps.push(Step { name, went: Ok(words) });
    }

    fn fails(&mut self, name: &'static str, reasons: Vec<String>) {
        self.steps.push(Step { name, went: Err(reasons) });
    }

    async fn check(&mut self, host: &Host, plugin: &Plugin) {
        let manifest = plugin.manifest();
        self.what = format!("{} {} ({})", manifest.name, manifest.version, manifest.kind);
        self.passes("manifest", plugin.source().to_string());
        let component = match plugin.load() {
            Ok(component) => component,
            Err(error) => return self.fails("component", chain(&error)),
        };
        self.passes(
            "component",
            format!("{}, {}", text::size(component.bytes.len() as u64), component.digest),
        );
        let bytes = || Arc::from(&component.bytes[..]);
        let interfaces = match Interfaces::read(&component.bytes) {
            Ok(interfaces) => interfaces,
            // The compiler knows more about what it may be in place of a component.
            Err(error) => match host.try_component(plugin, bytes()).await {
                Err(CodeError::Load(why)) => return self.fails("contents", chain(&why)),
                Err(_) | Ok(()) => return self.fails("contents", chain(&error)),
            },
        };
        let began = Instant::now();
        match host.try_component(plugin, bytes()).await {
            Ok(()) => {
                self.passes("compiled", format!("ready after {}", text::time(began.elapsed())))
            }
            Err(CodeError::World { reason, .. }) => {
                self.passes("compiled", format!("after {}", text::time(began.elapsed())));
                return self.fails("interfaces", misfits(&interfaces, plugin, &reason));
            }
            Err(error) => return self.fails("compiled", chain(&error)),
        }
        let sdk =
            interfaces.sdk.as_deref().map_or_else(String::new, |sdk| format!(", made with {sdk}"));
        self.passes("interfaces", format!("all imports are served{sdk}"));
        if manifest.kind == Kind::Tool {
            match host.tools_of(plugin).await {
                Ok(tools) => {
                    let tools = tools.specs();
                    let names: Vec<String> =
                        tools.iter().map(|tool| text::line(&tool.name, 80)).collect();
                    self.passes("tools", names.join(", "));
                }
                Err(error) => self.fails("tools", chain(&error)),
            }
        }
    }

    fn as_text(&self) -> String {
        let verdict = if self.loads() { "would load here" } else { "would not load here" };
        let mut out = format!("{}: {verdict}\n", self.what);
        let rows = self.steps.iter().flat_map(|step| match &step.went {
            Ok(words) => vec![vec![format!("  {}", step.name), "ok".to_owned(), words.clone()]],
            Err(reasons) => {
                let mut rows =
                    vec![vec![format!("  {}", step.name), "NO".to_owned(), String::new()]];
                rows.extend(
                    reasons
                        .iter()
                        .map(|reason| vec![format!("    {}", reason.replace('\n', "\n    "))]),
                );
                rows
            }
        });
        // Reasons are sentences and take no part in the columns.
        let rows: Vec<Vec<String>> = rows.collect();
        let steps: Vec<Vec<String>> = rows.iter().filter(|row| row.len() > 1).cloned().collect();
        out.push_str(&text::columns(&steps));
        for reason in rows.into_iter().filter(|row| row.len() == 1).flatten() {
            out.push_str(&format!("{reason}\n"));
        }
        out
    }

    fn as_json(&self) -> Value {
        let step = |step: &Step| match &step.went {
            Ok(words) => json!({ "step": step.name, "ok": true, "detail": words }),
            Err(reasons) => json!({ "step": step.name, "ok": false, "reasons": reasons }),
        };
        json!({
            "plugin": self.what,
            "loads": self.loads(),
            "steps": self.steps.iter().map(step).collect::<Vec<_>>(),
        })
    }
}

/// Which imports or exports are the reason; in the engine's words where their names are not.
fn misfits(interfaces: &Interfaces, plugin: &Plugin, reason: &str) -> Vec<String> {
    let world = match plugin.manifest().kind {
        Kind::Agent => World::Agent,
        Kind::Tool => World::Tool,
    };
    let mut reasons: Vec<String> =
        interfaces.misfits(world).iter().map(ToString::to_string).collect();
    if reasons.is_empty() {
        reasons.push(text::shown(reason));
        reasons.extend(interfaces.sdk.as_deref().map(|sdk| format!("it was made with {sdk}")));
    }
    reasons
}

/// The words of an error and of its causes, each once.
fn chain(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for cause in std::iter::successors(Some(error), |error| error.source()) {
        let cause = text::shown(&cause.to_string());
        if !words.iter().any(|word| word.contains(&cause)) {
            words.push(cause);
        }
    }
    words
}
