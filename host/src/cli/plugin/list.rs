//! `checkrein plugin list`.

use checkrein::plugin::{Catalogue, Plugin};
use serde_json::{Value, json};

use crate::cli::code::Code;
use crate::cli::problem::Problem;
use crate::cli::setup::{self, Options};
use crate::cli::text;

/// The arguments of `checkrein plugin list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    #[command(flatten)]
    options: Options,
    /// Print one JSON document in place of the table.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn execute(self) -> Result<Code, Problem> {
        let configuration = self.options.configuration()?;
        let builder = self.options.builder(configuration)?;
        let shown = setup::block_on(async {
            let host = builder.build()?;
            Ok(if self.json {
                format!("{:#}\n", as_json(host.catalogue()))
            } else {
                as_text(host.catalogue())
            })
        })?;
        text::print(&shown)?;
        Ok(Code::Completed)
    }
}

fn as_text(catalogue: &Catalogue) -> String {
    let row = |plugin: &Plugin| {
        let manifest = plugin.manifest();
        vec![
            manifest.name.to_string(),
            manifest.kind.to_string(),
            manifest.version.to_string(),
            text::size(plugin.size()),
            plugin.source().to_string(),
        ]
    };
    let rows: Vec<_> = catalogue.plugins().map(row).collect();
    let mut out = match rows.is_empty() {
        true => "no plugins\n".to_owned(),
        false => text::columns(&rows),
    };
    if !catalogue.broken().is_empty() {
        out.push_str("\ncannot be run:\n");
    }
    for broken in catalogue.broken() {
        let name = broken.name.as_ref().map_or("?", |name| name.as_str());
        out.push_str(&format!("  {name}  {}\n", text::shown(&broken.path.display().to_string())));
        for cause in causes(&*broken.error) {
            out.push_str(&format!("      {}\n", cause.replace('\n', "\n      ")));
        }
    }
    if !catalogue.hidden().is_empty() {
        out.push_str("\nhidden by another one of the same name:\n");
        let row = |plugin: &Plugin| {
            vec![
                format!("  {}", plugin.name()),
                plugin.manifest().version.to_string(),
                plugin.source().to_string(),
            ]
        };
        let rows: Vec<_> = catalogue.hidden().iter().map(|hidden| row(&hidden.plugin)).collect();
        out.push_str(&text::columns(&rows));
    }
    out
}

fn as_json(catalogue: &Catalogue) -> Value {
    let plugin = |plugin: &Plugin| {
        let manifest = plugin.manifest();
        json!({
            "name": manifest.name.as_str(),
            "kind": manifest.kind.as_str(),
            "version": manifest.version.as_str(),
            "description": manifest.description.as_str(),
            "size": plugin.size(),
            "source": plugin.source().to_string(),
        })
    };
    let broken = catalogue.broken().iter().map(|broken| {
        json!({
            "name": broken.name.as_ref().map(|name| name.as_str()),
            "path": broken.path.display().to_string(),
            "error": causes(&*broken.error),
        })
    });
    json!({
        "plugins": catalogue.plugins().map(plugin).collect::<Vec<_>>(),
        "broken": broken.collect::<Vec<_>>(),
        "hidden": catalogue.hidden().iter().map(|hidden| plugin(&hidden.plugin)).collect::<Vec<_>>(),
    })
}

/// The words of an error and of its causes.
fn causes(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut words: Vec<String> = causes.map(|error| text::shown(&error.to_string())).collect();
    words.dedup();
    words
}
