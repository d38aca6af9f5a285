//! What both benchmarks need: checkrein and bare wasmtime side by side, with the same engine settings.

#![allow(dead_code, reason = "each benchmark uses its part")]

pub(crate) mod bare;
pub(crate) mod ours;

use std::time::{Duration, Instant};

/// Sorted samples.
#[derive(Debug)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    /// Sorts them.
    pub(crate) fn new(mut samples: Vec<Duration>) -> Samples {
        samples.sort();
        Samples(samples)
    }

    /// The sample below which that share of them lies.
    pub(crate) fn at(&self, share: f64) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }

    /// The middle one.
    pub(crate) fn p50(&self) -> Duration {
        self.at(0.5)
    }

    /// Nearly all are below it.
    pub(crate) fn p99(&self) -> Duration {
        self.at(0.99)
    }

    /// The largest.
    pub(crate) fn max(&self) -> Duration {
        self.at(1.0)
    }
}

/// Seconds as people read them.
pub(crate) fn shown(time: Duration) -> String {
    let nanos = time.as_nanos();
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => format!("{:.2} s", nanos as f64 / 1e9),
    }
}

/// Measures two things in turn, several times, so that noise of the machine meets both. Gives the median of each
/// and the median of the ratios.
pub(crate) fn paired(
    rounds: usize,
    mut bare: impl FnMut() -> Duration,
    mut ours: impl FnMut() -> Duration,
) -> Paired {
    let (mut bares, mut our) = (Vec::new(), Vec::new());
    let (mut ratios, mut busy) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (start, one) = (processor_time(), bare());
        let (between, other) = (processor_time(), ours());
        let (bare_busy, our_busy) = (between - start, processor_time() - between);
        busy.push(our_busy.as_secs_f64() / bare_busy.as_secs_f64());
        ratios.push(other.as_secs_f64() / one.as_secs_f64());
        bares.push(one);
        our.push(other);
    }
    Paired {
        bare: Samples::new(bares).p50(),
        ours: Samples::new(our).p50(),
        ratio: middle(ratios),
        busy: middle(busy),
    }
}

fn middle(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied().unwrap_or_default()
}

/// What all threads of this process together have spent on processors.
fn processor_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let spent = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.filter_map(spent).sum())
}

/// The medians of two things measured in turn.
#[derive(Debug)]
pub(crate) struct Paired {
    /// Bare wasmtime.
    pub(crate) bare: Duration,
    /// checkrein.
    pub(crate) ours: Duration,
    /// The median of the ratios, ours to bare.
    pub(crate) ratio: f64,
    /// The same for the time on processors, which others on the machine disturb less.
    pub(crate) busy: f64,
}

impl Paired {
    /// How often each can be done in a second.
    pub(crate) fn rates(&self) -> String {
        let rate = |time: Duration| 1.0 / time.as_secs_f64();
        let (bare, ours, busy) = (rate(self.bare), rate(self.ours), self.busy);
        format!("bare {bare:.0}/s, checkrein {ours:.0}/s; processor time {busy:.2} ×")
    }

    /// One line of the table.
    pub(crate) fn print(&self, what: &str, note: &str) {
        println!(
            "{what:<44} {:>10} {:>10} {:>7.2} ×  {note}",
            shown(self.bare),
            shown(self.ours),
            self.ratio
        );
    }
}

/// Whether that part of a benchmark is wanted: all are when none is named.
pub(crate) fn asked_for(part: &str) -> bool {
    let named = || std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    named().next().is_none() || named().any(|name| name == part)
}

/// How long it takes.
pub(crate) fn time(what: impl FnOnce()) -> Duration {
    let start = Instant::now();
    what();
    start.elapsed()
}

/// Writes the plugins of the benchmarks into a folder: the tools `bench`, and the agent `caller` that may call them.
pub(crate) fn plugins(home: &std::path::Path) {
    for (name, kind, component) in
        [("bench", "tool", "bench-tool"), ("caller", "agent", "bench-agent")]
    {
        let folder = home.join(name);
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("a.wasm"), checkrein_testkit::guest(component))
            .expect("it is written");
        let grants = if kind == "agent" { "[grants]\ntools = true\nmodels = true\n" } else { "" };
        let manifest = format!(
            "name = \"{name}\"\nversion = \"1.0.0\"\nkind = \"{kind}\"\ncomponent = \"a.wasm\"\n\
             description = \"For the benchmarks.\"\n{grants}"
        );
        std::fs::write(folder.join("plugin.toml"), manifest).expect("it is written");
    }
}

/// Whether only a quick look is asked for: `cargo bench -- --quick`, and what `cargo test` does with benchmarks.
pub(crate) fn quick() -> bool {
    std::env::args().any(|argument| argument == "--quick" || argument == "--test")
}
