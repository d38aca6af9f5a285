//! `checkrein serve`: the daemon. It wires what the library has, and prints.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use checkrein::plugin::{Configuration, Count, Place, ServeTable};
use checkrein::server::{
    App, Closing, Gate, Listener, ListenerLimits, LocalUser, RateTable, RatedUser, Reconciled,
    TokenGate, router,
};
use checkrein::work::shutdown::Bounds;
use checkrein::{Host, Service, ServiceSettings};

use super::code::Code;
use super::ending::{Asked, Ending};
use super::log::Log;
use super::problem::Problem;
use super::screen::Screen;
use super::setup::{self, Options};
use super::telemetry::Export;
use super::text;

/// How long a look at the profiles waits for those that are to be released.
const RETIRE: Duration = Duration::from_secs(5);

/// How long connections may take to end after that.
const CONNECTIONS: Duration = Duration::from_secs(2);

/// The arguments of `checkrein serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Serve {
    #[command(flatten)]
    options: Options,
    /// The Unix socket, in place of the configuration's.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen on this address too, such as 127.0.0.1:7711, in place of the configuration's.
    #[arg(long, value_name = "ADDRESS")]
    tcp: Option<SocketAddr>,
    /// The directory of the profiles, in place of the configuration's: each folder in it with a `profile.toml` is one.
    #[arg(long, value_name = "DIR")]
    profiles: Option<PathBuf>,
}

impl Serve {
    /// Serves until it is asked to end.
    pub(super) fn execute(self, log: Log) -> Result<Code, Problem> {
        let configuration = self.options.configuration()?;
        if let Some((_, place)) = configuration.for_profiles() {
            let words = format!("{place}: it counts for nothing here");
            return Err(Problem::new(Code::Usage, words).advise(
                "write it into the `profile.toml` of each profile that it is for; a daemon hands nothing of it down",
            ));
        }
        let export = Export::new(&configuration)?;
        log.start_with(Screen::plain(), &export)?;
        let table = configuration.serve.clone();
        let profiles = self.directory(&configuration)?;
        let socket = match self.socket.or_else(|| table.socket.clone()) {
            Some(socket) => socket,
            None => setup::usual_socket()?,
        };
        let tcp = match self.tcp {
            Some(address) => Some((address, None)),
            None => table.tcp.map(|address| (address, configuration.place(&["serve", "tcp"]))),
        };
        let tokens = configuration.place(&["serve", "tokens"]);
        let builder = self.options.builder(configuration)?;
        let done = setup::block_on(async {
            let mut builder = builder.guard("the profiles", &profiles).guard("the socket", &socket);
            if let Some(tokens) = &table.tokens {
                builder = builder.guard("the tokens", tokens);
            }
            let host = builder.build()?;
            serve(&host, profiles, &socket, tcp, (&table, tokens)).await
        });
        export.finish();
        done
    }

    fn directory(&self, configuration: &Configuration) -> Result<PathBuf, Problem> {
        let named = self.profiles.clone().or_else(|| configuration.serve.profiles.clone());
        let Some(directory) = named else {
            let words = "no directory of profiles is named";
            return Err(Problem::new(Code::Usage, words).advise(
                "write `profiles = \"DIR\"` into [serve] of the configuration, or give --profiles DIR",
            ));
        };
        let place = match self.profiles {
            Some(_) => None,
            None => configuration.place(&["serve", "profiles"]),
        };
        let shown = directory.display();
        match std::fs::metadata(&directory) {
            Ok(found) if found.is_dir() => Ok(directory),
            Ok(_) => {
                let words = at(place.as_ref(), &format!("{shown} is no directory"));
                Err(Problem::new(Code::Usage, words))
            }
            Err(error) => {
                let attempt = format!("could not look into the profiles in {shown}");
                Err(Problem::because(Code::Usage, at(place.as_ref(), &attempt), error))
            }
        }
    }
}

async fn serve(
    host: &Host,
    profiles: PathBuf,
    socket: &Path,
    tcp: Option<(SocketAddr, Option<Place>)>,
    (table, tokens): (&ServeTable, Option<Place>),
) -> Result<Code, Problem> {
    let local: Arc<dyn Gate> = Arc::new(LocalUser);
    let gate = gate(table, tokens.as_ref())?;
    let refused = |error| Problem::because(Code::Refused, "could not begin to serve", error);
    setup::folder_of(socket)?;
    let mut listeners = vec![(Listener::unix(socket).map_err(refused)?, local)];
    if let Some((address, place)) = tcp {
        let listener = Listener::tcp(address, &*gate).await.map_err(|error| {
            let attempt = at(place.as_ref(), "could not begin to serve");
            Problem::because(Code::Refused, attempt, error)
        })?;
        listeners.push((listener, gate));
    }
    let ending = Ending::listen()?;
    let settings = ServiceSettings { profiles, retire: RETIRE, bounds: bounds(table) };
    let (service, closing) = (Service::new(host, settings), Closing::new());
    let orders = ending.orders();
    let mut app = App::builder(host.clone(), Arc::new(service.clone()), closing.clone())
        .on_shutdown(move |request| orders.give(Asked::Api(request)));
    if let Some(requests) = table.requests {
        app = app.requests(whole(requests.0));
    }
    if let Some(bytes) = table.body_bytes {
        app = app.body_bytes(whole(bytes.0));
    }
    if let Some(bytes) = table.import_bytes {
        app = app.import_bytes(whole(bytes.0));
    }
    if let Some(time) = table.body_time {
        app = app.body_time(time.0);
    }
    let app = app.build();
    let limits = limits(table);
    // Not on the stack of whoever waits for the whole daemon.
    let serving = Box::pin(async {
        match service.start().await {
            Ok(done) => {
                told(&done.into())?;
                for (listener, _) in &listeners {
                    text::print(&format!("listening on {}\n", listener.address()))?;
                }
                text::print("ready\n")?;
            }
            // Whoever has connected hears of the end.
            Err(_) if service.shutdown().has_begun() => {}
            Err(error) => return Err(error.into()),
        }
        let serving = listeners.into_iter().map(|(listener, gate)| {
            let router = router(app.clone(), gate);
            listener.serve(&app, router, &limits, CONNECTIONS)
        });
        Ok(futures::future::join_all(serving).await.into_iter().sum())
    });
    ending.run(&service, &closing, serving).await
}

/// Who is let in through an address: whoever has a token, where tokens are kept. Through the Unix socket, whose file says who
/// may connect, nobody needs one.
fn gate(table: &ServeTable, place: Option<&Place>) -> Result<Arc<dyn Gate>, Problem> {
    let rates = rates(table);
    let Some(path) = &table.tokens else { return Ok(Arc::new(RatedUser::new(&rates))) };
    let gate = TokenGate::open(path, &rates).map_err(|error| {
        let attempt = format!("could not use the tokens in {}", path.display());
        Problem::because(Code::Usage, at(place, &attempt), error)
    })?;
    Ok(Arc::new(gate))
}

/// Words about a key, with its place where it stands in a file.
fn at(place: Option<&Place>, words: &str) -> String {
    place.map_or_else(|| words.to_owned(), |place| format!("{place}: {words}"))
}

/// How often may be asked.
fn rates(table: &ServeTable) -> RateTable {
    let usual = RateTable::default();
    let bound = |count: Option<Count>, usual| {
        count.map_or(usual, |count| u32::try_from(count.0).unwrap_or(u32::MAX))
    };
    RateTable {
        requests_per_minute: bound(table.rates.requests_per_minute, usual.requests_per_minute),
        burst: bound(table.rates.burst, usual.burst),
        peer_requests_per_minute: bound(
            table.rates.peer_requests_per_minute,
            usual.peer_requests_per_minute,
        ),
        peer_burst: bound(table.rates.peer_burst, usual.peer_burst),
    }
}

fn bounds(table: &ServeTable) -> Bounds {
    let usual = Bounds::default();
    Bounds {
        drain: table.drain.map_or(usual.drain, |time| time.0),
        settle: table.settle.map_or(ServeTable::SETTLE, |time| time.0),
        // Until connections have ended by themselves, and then until they are cut.
        stop_listeners: CONNECTIONS * 2,
        ..usual
    }
}

/// What a listener lets in.
pub(super) fn limits(table: &ServeTable) -> ListenerLimits {
    let usual = ListenerLimits::default();
    let connections = table.connections.map_or(usual.connections, |count| whole(count.0));
    ListenerLimits {
        connections,
        peer_connections: table
            .peer_connections
            .map_or(connections.div_ceil(2), |count| whole(count.0)),
        head_time: table.head_time.map_or(usual.head_time, |time| time.0),
        write_time: table.write_time.map_or(usual.write_time, |time| time.0),
    }
}

fn whole(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Says which profiles are served, and which are not and why.
fn told(done: &Reconciled) -> Result<(), Problem> {
    let served = done.added.iter().map(|name| format!("profile {name}: served\n"));
    let parked = done.parked.iter().map(|(name, why)| format!("profile {name}: parked: {why}\n"));
    text::print(&served.chain(parked).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_for_operators_has_every_key_of_the_daemon_with_its_usual_value() {
        let page = include_str!("../../../docs/operating.md");
        let table = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        let read = Configuration::parse(table, Path::new("checkrein.toml")).unwrap().serve;
        assert!(!format!("{read:?}").contains("None"), "{read:?}");
        assert_eq!(limits(&read), ListenerLimits::default());
        assert_eq!(bounds(&read), bounds(&ServeTable::default()));
        assert_eq!(rates(&read), RateTable::default());
        let sizes = (read.requests.map(|n| n.0), read.body_bytes.map(|n| n.0));
        assert_eq!(sizes, (Some(App::REQUESTS as u64), Some(App::BODY_BYTES as u64)));
        assert_eq!(read.import_bytes.map(|n| n.0), Some(App::IMPORT_BYTES as u64));
        assert_eq!(read.body_time.map(|time| time.0), Some(App::BODY_TIME));
    }
}
