//! `checkrein plugin inspect`.

use checkrein::message::ToolSpec;
use checkrein::plugin::{
    Decision, DirectoryArgument, Finding, Plugin, Subject, Verdict, printable, shown_limit,
};
use checkrein::sandbox::{Directory, Interfaces, Isolation, Item, ItemKind, LimitKind, Limits};
use checkrein::{Error, ErrorKind, Host};
use serde_json::{Value, json};

use super::get;
use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::setup::{self, Named, Options};
use crate::cli::{run, text};

/// The arguments of `checkrein plugin inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    /// A plugin's name, or the path of its folder, such as ./greeter.
    #[arg(value_name = "NAME-OR-PATH")]
    plugin: String,
    /// Show the grants as they would be with this directory given; may be repeated.
    #[arg(long = "dir", value_name = "[NAME=]PATH[:ro|:rw]", value_parser = DirectoryArgument::parse)]
    directories: Vec<DirectoryArgument>,
    #[command(flatten)]
    options: Options,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(super) fn execute(mut self) -> Result<Code, Problem> {
        let configuration = self.options.configuration()?;
        let named = Named::parse(&self.plugin);
        let name = named.resolve(&mut self.options, &configuration)?;
        let directories = run::directories(&self.directories)?;
        let builder = self.options.builder(configuration)?;
        let shown = setup::block_on(async {
            let host = builder.build()?;
            let seen = Seen::look(&host, get(&host, &name, &named)?, directories).await?;
            Ok(if self.json { format!("{:#}\n", seen.as_json()) } else { seen.as_text() })
        })?;
        text::print(&shown)?;
        Ok(Code::Completed)
    }
}

/// What there is to see of one plugin.
struct Seen {
    plugin: Plugin,
    digest: String,
    /// None where the bytes are no component; then the words say why.
    interfaces: Result<Interfaces, String>,
    decision: Decision,
    isolation: Isolation,
    ceiling: Limits,
    /// None for an agent; the words say why a tool plugin does not say.
    tools: Option<Result<Vec<ToolSpec>, String>>,
}

impl Seen {
    async fn look(
        host: &Host,
        plugin: &Plugin,
        directories: Vec<Directory>,
    ) -> Result<Seen, Problem> {
        let component = plugin.load().map_err(|error| {
            Error::because(
                ErrorKind::Component,
                format!("could not read the component of `{}`", plugin.name()),
                error,
            )
        })?;
        let mut session = host.session(plugin.name().as_str());
        for directory in directories {
            session = session.directory(directory);
        }
        let tools = match plugin.manifest().kind {
            checkrein::plugin::Kind::Agent => None,
            checkrein::plugin::Kind::Tool => {
                let tools = host.tools_of(plugin).await.map(|tools| tools.specs());
                Some(tools.map_err(|error| Problem::from(error).lines().join(": ")))
            }
        };
        Ok(Seen {
            digest: component.digest.to_string(),
            interfaces: Interfaces::read(&component.bytes).map_err(|error| error.to_string()),
            decision: session.decide(plugin),
            isolation: session.isolation(plugin),
            ceiling: host.configuration().ceiling(plugin.name()),
            plugin: plugin.clone(),
            tools,
        })
    }

    fn as_text(&self) -> String {
        let manifest = self.plugin.manifest();
        let mut out = format!(
            "{} {} ({})\n{}\n\n",
            manifest.name, manifest.version, manifest.kind, manifest.description
        );
        let sdk = match &self.interfaces {
            Ok(interfaces) => interfaces.sdk.as_deref().unwrap_or("it does not say"),
            Err(_) => "unknown",
        };
        let rows = [
            ("source", self.plugin.source().to_string()),
            ("component", manifest.component.as_path().display().to_string()),
            ("size", text::size(self.plugin.size())),
            ("digest", self.digest.clone()),
            ("made with", sdk.to_owned()),
            ("isolation", self.isolation.to_string()),
        ];
        out.push_str(&text::columns(&rows.map(|(name, value)| vec![name.to_owned(), value])));
        match &self.interfaces {
            Ok(interfaces) => {
                section(
                    &mut out,
                    "imports",
                    names(&interfaces.imports).map(|name| vec![name.to_owned()]),
                );
                section(
                    &mut out,
                    "exports",
                    names(&interfaces.exports).map(|name| vec![name.to_owned()]),
                );
            }
            Err(why) => out.push_str(&format!("\ninterfaces: {why}\n")),
        }
        let requests = self.requests().map(|finding| {
            vec![finding.subject.to_string(), finding.request.clone(), finding.verdict.to_string()]
        });
        section(&mut out, "requests and what becomes of them", requests);
        let limits = LimitKind::ALL.iter().map(|kind| {
            let Limit { requested, ceiling, effective } = self.limit(*kind);
            let asked = requested.map_or_else(String::new, |asked| {
                format!("asks for {asked}, the ceiling is {ceiling}")
            });
            vec![kind.to_string(), effective, asked]
        });
        section(&mut out, "limits of a run", limits);
        section(&mut out, "configuration", self.keys().into_iter().map(|key| vec![printable(key)]));
        match &self.tools {
            None => {}
            Some(Ok(tools)) => section(
                &mut out,
                "tools",
                tools.iter().map(|tool| {
                    let hints = tool.hints.join(", ");
                    vec![
                        text::line(&tool.name, 80),
                        text::line(&hints, 60),
                        text::line(&tool.description, 300),
                    ]
                }),
            ),
            Some(Err(why)) => out.push_str(&format!("\ntools: {why}\n")),
        }
        out
    }

    fn as_json(&self) -> Value {
        let manifest = self.plugin.manifest();
        let interfaces = self.interfaces.as_ref().ok();
        let limits = LimitKind::ALL.iter().map(|kind| {
            let Limit { requested, ceiling, effective } = self.limit(*kind);
            (
                kind.to_string(),
                json!({ "requested": requested, "ceiling": ceiling, "effective": effective }),
            )
        });
        json!({
            "name": manifest.name.as_str(),
            "version": manifest.version.as_str(),
            "kind": manifest.kind.as_str(),
            "description": manifest.description.as_str(),
            "source": self.plugin.source().to_string(),
            "component": manifest.component.as_path().display().to_string(),
            "size": self.plugin.size(),
            "digest": self.digest,
            "sdk": interfaces.and_then(|interfaces| interfaces.sdk.as_deref()),
            "isolation": self.isolation.as_str(),
            "imports": interfaces.map(|interfaces| names(&interfaces.imports).collect::<Vec<_>>()),
            "exports": interfaces.map(|interfaces| names(&interfaces.exports).collect::<Vec<_>>()),
            "requests": self.requests().map(finding).collect::<Vec<_>>(),
            "limits": limits.collect::<serde_json::Map<_, _>>(),
            "configuration": self.keys(),
            "tools": self.tools.as_ref().map(|tools| match tools {
                Ok(tools) => json!(tools),
                Err(why) => json!({ "error": why }),
            }),
        })
    }

    /// Limits stand in a table of their own.
    fn requests(&self) -> impl Iterator<Item = &Finding> {
        self.decision.findings.iter().filter(|finding| finding.subject != Subject::Limit)
    }

    fn limit(&self, kind: LimitKind) -> Limit {
        let asked = &self.plugin.manifest().limits;
        Limit {
            requested: asked
                .kinds()
                .contains(&kind)
                .then(|| shown_limit(&asked.over(&self.ceiling), kind)),
            ceiling: shown_limit(&self.ceiling, kind),
            effective: shown_limit(&self.decision.effective.limits, kind),
        }
    }

    fn keys(&self) -> Vec<&str> {
        self.decision.effective.configuration.iter().map(|(key, _)| key).collect()
    }
}

/// One limit as people read it: what the manifest asks for, if it does, what the operator allows, and what holds.
struct Limit {
    requested: Option<String>,
    ceiling: String,
    effective: String,
}

/// The names of interfaces and functions. Types that are imported belong to an interface that is named as well.
fn names(items: &[Item]) -> impl Iterator<Item = &str> {
    items.iter().filter(|item| item.kind != ItemKind::Other).map(|item| item.name.as_str())
}

fn section(out: &mut String, title: &str, rows: impl Iterator<Item = Vec<String>>) {
    let rows: Vec<Vec<String>> = rows
        .map(|mut row| {
            if let Some(first) = row.first_mut() {
                first.insert_str(0, "  ");
            }
            row
        })
        .collect();
    if !rows.is_empty() {
        out.push_str(&format!("\n{title}\n{}", text::columns(&rows)));
    }
}

fn finding(finding: &Finding) -> Value {
    let (verdict, why) = match &finding.verdict {
        Verdict::Granted => ("granted", None),
        Verdict::Narrowed(why) => ("narrowed", Some(why)),
        Verdict::Denied(why) => ("denied", Some(why)),
        Verdict::Unasked => ("unasked", None),
    };
    json!({ "subject": finding.subject.to_string(), "request": finding.request, "verdict": verdict, "why": why })
}
