//! What all commands take, and the host that is made of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use checkrein::plugin::{Configuration, Name, Plugin};
use checkrein::{Compilation, HostBuilder};
use etcetera::BaseStrategy;
use tokio::runtime::Runtime;

use super::code::Code;
use super::problem::Problem;
use super::text;
use super::{COMPILE_CHILD, WORKER};

/// Threads for timers, sockets, models and files. Guests have threads of their own.
const THREADS: usize = 2;

/// How long the end of the command waits for a thread that does not come back.
const PATIENCE: Duration = Duration::from_millis(500);

/// What all commands take.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// The operator's configuration: grants, limits, models, plugin directories.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The folder of a plugin, besides those of the configuration and those built in; may be repeated.
    #[arg(long = "plugin", value_name = "DIR")]
    pub(super) plugins: Vec<PathBuf>,
}

impl Options {
    /// Reads the configuration, if one was named.
    pub(super) fn configuration(&self) -> Result<Configuration, Problem> {
        let Some(file) = &self.config else { return Ok(Configuration::default()) };
        Configuration::load(file).map_err(|error| {
            Problem::because(
                Code::Usage,
                format!("could not use the configuration {}", file.display()),
                error,
            )
        })
    }

    /// Begins to make a host.
    pub(super) fn builder(&self, configuration: Configuration) -> Result<HostBuilder, Problem> {
        let program = std::env::current_exe().map_err(|error| {
            Problem::because(Code::Refused, "could not find this program itself", error)
        })?;
        let workers = (program.clone(), vec![WORKER.into()]);
        let compilation = Compilation::Child { program, arguments: vec![COMPILE_CHILD.into()] };
        let mut builder = checkrein::Host::builder(compilation)
            .workers(workers.0, workers.1)
            .environment(variable);
        // Without a home there is no cache: components are compiled anew, and everything works.
        if configuration.cache_directory.is_none()
            && let Ok(folders) = etcetera::choose_base_strategy()
        {
            builder = builder.cache(folders.cache_dir().join("checkrein"));
        }
        if let Some(file) = &self.config {
            builder = builder.guard("the configuration", file);
        }
        for folder in &self.plugins {
            builder = builder.plugin(folder);
        }
        Ok(builder.configuration(configuration))
    }
}

/// A variable of the environment, for those parts of the host that an operator pointed at one.
#[allow(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The variable that names the socket of the daemon.
pub(super) const SOCKET: &str = "CHECKREIN_SOCKET";

/// Where the socket of the daemon is, where nobody says it: `CHECKREIN_SOCKET`, else in the folder for such files.
pub(super) fn usual_socket() -> Result<PathBuf, Problem> {
    let named = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(socket) = named(SOCKET) {
        return Ok(socket);
    }
    if let Some(folder) = named("XDG_RUNTIME_DIR") {
        return Ok(folder.join("checkrein/api.sock"));
    }
    match etcetera::choose_base_strategy() {
        Ok(folders) => Ok(folders.data_dir().join("checkrein/api.sock")),
        Err(error) => {
            Err(Problem::because(Code::Usage, "there is no folder for the socket", error)
                .advise(format!("give --socket PATH, or set {SOCKET}")))
        }
    }
}

/// Makes the folder of the socket, for this user alone.
pub(super) fn folder_of(socket: &Path) -> Result<(), Problem> {
    let Some(folder) = socket.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| {
        let attempt = format!("could not make the folder of the socket, {}", folder.display());
        Problem::because(Code::Refused, attempt, error)
    })
}

/// A plugin as the command line names it: one that the host knows, or a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    /// By its name.
    Name(String),
    /// By its folder, or its `plugin.toml`.
    Path(PathBuf),
}

impl Named {
    /// What has the form of a path is one: `./greeter` is a folder, `greeter` a name.
    pub(super) fn parse(text: &str) -> Named {
        let is_path =
            text.contains(std::path::MAIN_SEPARATOR) || matches!(text, "." | ".." | "plugin.toml");
        if is_path { Named::Path(PathBuf::from(text)) } else { Named::Name(text.to_owned()) }
    }

    /// Adds the folder to those that the operator named, and says the plugin's name.
    pub(super) fn resolve(
        &self,
        options: &mut Options,
        configuration: &Configuration,
    ) -> Result<String, Problem> {
        match self {
            Named::Name(name) => Ok(name.clone()),
            Named::Path(path) => {
                let name = name_at(path, configuration)?;
                options.plugins.insert(0, path.clone());
                Ok(name.to_string())
            }
        }
    }

    /// What may help whoever gave a name that means nothing.
    pub(super) fn advice(&self) -> Option<String> {
        match self {
            Named::Name(name) if Path::new(name).join("plugin.toml").is_file() => Some(format!(
                "there is a folder of that name; write ./{} for the plugin in it",
                text::shown(name)
            )),
            Named::Name(_) => {
                Some("`checkrein plugin list` shows the plugins that there are".to_owned())
            }
            Named::Path(_) => None,
        }
    }
}

fn name_at(path: &Path, configuration: &Configuration) -> Result<Name, Problem> {
    let plugin =
        Plugin::open(path, configuration.compile.most_component_bytes()).map_err(|error| {
            Problem::because(
                Code::Usage,
                format!("could not open the plugin in {}", path.display()),
                error,
            )
        })?;
    Ok(plugin.name().clone())
}

/// Runs the asynchronous part of a command to its end, and leaves behind what does not come back.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    let runtime = runtime()?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(PATIENCE);
    done
}

fn runtime() -> Result<Runtime, Problem> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("control")
        .enable_all()
        .build()
        .map_err(|error| {
            Problem::because(Code::Refused, "could not start the threads of the host", error)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_the_form_of_a_path_is_a_folder() {
        for path in ["./greeter", "/plugins/greeter", ".", "..", "a/plugin.toml", "plugin.toml"] {
            assert_eq!(Named::parse(path), Named::Path(path.into()));
        }
        for name in ["greeter", "greeter.wasm", "a-b"] {
            assert_eq!(Named::parse(name), Named::Name(name.to_owned()));
        }
    }
}
