//! What each key of the configuration stands for when it is left out, as a file would say it. Every value is asked of the type
//! that has it; there is none here.

use std::collections::BTreeMap;
use std::time::Duration;

use checkrein::delegation::DelegationLimits;
use checkrein::model::{self, ProviderConfig, TimeLimits};
use checkrein::plugin::{
    CompileTable, Grace, GrantedDirectory, HostEntry, ScheduleSession, ServeTable, Size, StopTable,
    Time,
};
use checkrein::sandbox::{
    Access, CompileLimits, Isolation, Limits, Pool, SandboxSettings, WorkerSettings,
};
use checkrein::schedule::{Missed, Overlap, Zone};
use checkrein::server::{App, ListenerLimits, RateTable};
use checkrein::store::Retention;
use checkrein::work::shutdown::Bounds;

/// Values, by type and key.
pub(crate) type Usual = BTreeMap<(&'static str, &'static str), String>;

/// All of them. Types are taken apart as a whole: who adds a field hears of it here.
pub(crate) fn usual() -> Usual {
    let mut usual = Usual::new();
    let mut put = |table, keys: &[(&'static str, String)]| {
        usual.extend(keys.iter().map(|(key, value)| ((table, *key), value.clone())));
    };
    let isolation = text(Isolation::default().as_str());
    put("Configuration", &[("isolation", isolation)]);
    put("LimitsTable", &limits());
    let config = ProviderConfig::new(model::Kind::Scripted);
    let (retries, pause) = (whole(config.max_retries), seconds(config.retry_pause));
    put("ProviderConfig", &[("max-retries", retries), ("retry-pause-seconds", pause)]);
    let TimeLimits { connect, first_byte, idle, total } = TimeLimits::default();
    put(
        "TimeLimits",
        &[
            ("connect-seconds", seconds(connect)),
            ("first-byte-seconds", seconds(first_byte)),
            ("idle-seconds", seconds(idle)),
            ("total-seconds", seconds(total)),
        ],
    );
    let host: HostEntry = toml::from_str("host = \"*\"").expect("an entry");
    put("HostEntry", &[("private", host.private.to_string())]);
    let given: GrantedDirectory =
        toml::from_str("mount = \"m\"\npath = \".\"").expect("a directory");
    let access = match given.access {
        Access::Read => "read",
        Access::ReadWrite => "read-write",
    };
    put("GrantedDirectory", &[("access", text(access))]);
    put("StopTable", &[("grace", grace(Grace::After(StopTable::GRACE)))]);
    put("StoreTable", &store());
    put("CompileTable", &compile());
    let workers = WorkerSettings::new("", Vec::new());
    put(
        "WorkersTable",
        &[("processes", whole(workers.processes)), ("stop-bound", time(workers.stop_bound))],
    );
    assert_eq!((workers.memory, workers.processor_time), (None, None), "a rule, told in words");
    put("DelegationTable", &delegation());
    put("ServeTable", &serve());
    let RateTable { requests_per_minute, burst, peer_requests_per_minute, peer_burst } =
        RateTable::default();
    put(
        "RatesTable",
        &[
            ("requests-per-minute", whole(requests_per_minute)),
            ("burst", whole(burst)),
            ("peer-requests-per-minute", whole(peer_requests_per_minute)),
            ("peer-burst", whole(peer_burst)),
        ],
    );
    put("ScheduleTable", &schedule());
    usual
}

/// What stands in words of the page for a name in the code, where a rule is told and not a value.
pub(crate) fn constants() -> [(&'static str, String); 2] {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = (processors / 2).clamp(1, CompileLimits::MOST_JOBS);
    assert_eq!(CompileLimits::default().jobs, jobs, "half the processors");
    assert_eq!(SandboxSettings::default().threads, processors, "one thread for each processor");
    [
        ("`Pool::USEFUL_SLOTS`", grouped(Pool::USEFUL_SLOTS.into())),
        ("`CompileLimits::MOST_JOBS`", grouped(CompileLimits::MOST_JOBS as u64)),
    ]
}

fn limits() -> Vec<(&'static str, String)> {
    let Limits {
        memory,
        table_elements,
        fuel,
        wall_time,
        door_bytes,
        call_bytes,
        output_bytes,
        log_bytes,
        calls_in_flight,
        model_tokens,
        open_files,
        handles,
    } = Limits::default();
    let none = || text("none");
    vec![
        ("memory", size(memory)),
        ("table-elements", whole(table_elements)),
        ("fuel", fuel.map_or_else(none, whole)),
        ("wall-time", wall_time.map_or_else(none, time)),
        ("door-bytes", size(door_bytes)),
        ("call-bytes", size(call_bytes)),
        ("output-bytes", size(output_bytes)),
        ("log-bytes", size(log_bytes)),
        ("calls-in-flight", whole(calls_in_flight)),
        ("model-tokens", model_tokens.map_or_else(none, whole)),
        ("open-files", whole(open_files)),
        ("handles", whole(handles)),
    ]
}

fn store() -> Vec<(&'static str, String)> {
    let Retention {
        events_per_session,
        event_bytes_per_session,
        transcript_bytes_per_session,
        // A choice of the embedder.
        transcript: _,
        read_units_per_session,
        bytes,
    } = Retention::default();
    vec![
        ("events-per-session", whole(events_per_session)),
        ("event-bytes-per-session", size(event_bytes_per_session)),
        ("transcript-bytes-per-session", size(transcript_bytes_per_session)),
        ("read-units-per-session", whole(read_units_per_session)),
        ("bytes", size(bytes)),
    ]
}

fn compile() -> Vec<(&'static str, String)> {
    // How many jobs is a rule.
    let CompileLimits { component_bytes, memory, time: longest, jobs: _ } =
        CompileLimits::default();
    assert_eq!(component_bytes, CompileTable::COMPONENT_BYTES, "the same, said twice");
    vec![
        ("time", time(longest)),
        ("memory", size(memory)),
        ("component-bytes", size(component_bytes)),
    ]
}

fn delegation() -> Vec<(&'static str, String)> {
    let DelegationLimits {
        depth,
        children_per_call,
        descendants_per_tree,
        units_per_host,
        units_per_session,
        queued_units,
        unread_completions,
    } = DelegationLimits::default();
    vec![
        ("depth", whole(depth)),
        ("children-per-call", whole(children_per_call)),
        ("descendants-per-tree", whole(descendants_per_tree)),
        ("units-per-host", whole(units_per_host)),
        ("units-per-session", whole(units_per_session)),
        ("queued-units", whole(queued_units)),
        ("unread-completions", whole(unread_completions)),
    ]
}

fn serve() -> Vec<(&'static str, String)> {
    let ListenerLimits { connections, peer_connections, head_time, write_time } =
        ListenerLimits::default();
    assert_eq!(peer_connections, connections / 2, "half of them");
    vec![
        ("connections", whole(connections)),
        ("requests", whole(App::REQUESTS)),
        ("body-bytes", size(App::BODY_BYTES as u64)),
        ("import-bytes", size(App::IMPORT_BYTES as u64)),
        ("body-time", time(App::BODY_TIME)),
        ("head-time", time(head_time)),
        ("write-time", time(write_time)),
        ("drain", time(Bounds::default().drain)),
        ("settle", time(ServeTable::SETTLE)),
    ]
}

fn schedule() -> Vec<(&'static str, String)> {
    let missed = match Missed::default() {
        Missed::Skip => text("skip"),
        Missed::Once => text("once"),
        Missed::All(most) => format!("{{ all = {most} }}"),
    };
    let overlap = match Overlap::default() {
        Overlap::Skip => "skip",
        Overlap::Allow => "allow",
        Overlap::Queue => "queue",
    };
    let session = match ScheduleSession::default() {
        ScheduleSession::New => text("new"),
        ScheduleSession::Standing(name) => format!("{{ standing = \"{name}\" }}"),
    };
    vec![
        ("time-zone", text(Zone::default().name())),
        ("missed", missed),
        ("overlap", text(overlap)),
        ("session", session),
    ]
}

fn text(value: &str) -> String {
    format!("\"{value}\"")
}

fn size(bytes: u64) -> String {
    text(&Size(bytes).to_string().replace(' ', ""))
}

fn time(value: Duration) -> String {
    text(&Time(value).to_string().replace(' ', ""))
}

fn grace(value: Grace) -> String {
    match value {
        Grace::After(after) => time(after),
        Grace::Never => text("never"),
    }
}

fn seconds(value: Duration) -> String {
    value.as_secs_f64().to_string()
}

/// As TOML has it, in groups where it is long.
fn whole(value: impl TryInto<u64>) -> String {
    let value = value.try_into().unwrap_or(u64::MAX);
    if value < 10_000 { value.to_string() } else { grouped(value).replace(',', "_") }
}

fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
