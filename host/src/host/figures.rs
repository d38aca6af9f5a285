//! The figures of a host as one page of text, for Prometheus and whoever else reads OpenMetrics.
//!
//! Each room counts what happens in it; here it is only read. What is live now is no figure of its own: it is a walk of the
//! tree (W2). `docs/metrics.md` says what each name means, and a test holds it to this file.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

use super::host::Host;
use super::profile::{self, Profile};
use crate::delegation::Admitted;
use crate::metrics::Times;
use crate::work::{Kind, StopKind};

/// What the figures of a host need beside those that the rooms keep.
#[derive(Debug)]
pub(super) struct Read {
    started: Instant,
    /// The profiles that were opened. Those that are gone are left out and forgotten.
    profiles: Mutex<Vec<Weak<profile::Shared>>>,
}

impl Read {
    pub(super) fn new() -> Read {
        Read { started: Instant::now(), profiles: Mutex::default() }
    }

    /// Has the store of a profile read with the rest.
    pub(super) fn opened(&self, profile: Weak<profile::Shared>) {
        let mut profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        profiles.retain(|known| known.strong_count() > 0);
        profiles.push(profile);
    }

    /// Those that are open, by their names.
    fn open(&self) -> BTreeMap<String, Profile> {
        let profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        let open = profiles.iter().filter_map(Weak::upgrade).map(Profile::from);
        open.map(|profile| (profile.name().to_owned(), profile)).collect()
    }
}

impl Host {
    /// The figures of this host and of its profiles, as OpenMetrics text. `docs/metrics.md` says what they mean.
    pub fn metrics(&self) -> String {
        self.figures(0).finish()
    }

    /// The figures, for whoever has more of them. `parked` profiles are configured and not served.
    pub(crate) fn figures(&self, parked: u64) -> Page {
        let mut page = Page::default();
        let read = &self.inner.read;
        page.info("checkrein_build", "The program.", ("version", env!("CARGO_PKG_VERSION")));
        let up = read.started.elapsed().as_secs_f64();
        page.gauge("checkrein_uptime", "How long the host has been there.", Some(Unit::Seconds))
            .value([], up);
        self.work_figures(&mut page);
        self.run_figures(&mut page);
        self.load_figures(&mut page);
        let profiles = read.open();
        profile_figures(&mut page, &profiles, parked);
        page
    }

    fn work_figures(&self, page: &mut Page) {
        let live = self.tree().nodes_by_kind();
        let work = page.gauge("checkrein_work", "Nodes of the tree of work now.", None);
        for kind in Kind::ALL {
            let count = live.get(&kind).copied().unwrap_or(0);
            work.value([("kind", kind.as_str())], count as f64);
        }
        let stops = self.tree().stop_figures();
        let kinds = [StopKind::Soft, StopKind::Hard].map(|kind| (kind.to_string(), stops.of(kind)));
        let given = page.counter("checkrein_stops", "Pieces of work that came to carry a stop.");
        for (kind, figure) in &kinds {
            given.count([("kind", kind)], figure.given.get());
        }
        let help = "From a stop to the end of the work, of which it was the highest.";
        let took = page.seconds("checkrein_stop", help);
        for (kind, figure) in &kinds {
            took.times([("kind", kind)], figure.ended.read());
        }
        let figures = self.inner.slots.figures();
        let admitted: [(&str, &Admitted); 4] = [
            ("turn", &figures.turns),
            ("unit", &figures.units),
            ("side run", &figures.sides),
            ("schedule", &figures.schedules),
        ];
        let accepted = page.counter("checkrein_admissions", "Work that was let in.");
        for (work, admitted) in admitted {
            accepted.count([("work", work)], admitted.accepted.get());
        }
        let refused = page.counter("checkrein_refusals", "Work that was not let in.");
        for (work, admitted) in admitted {
            for (reason, count) in known(admitted.refused.iter()) {
                refused.count([("work", work), ("reason", reason)], count);
            }
        }
        let used = self.slots();
        page.gauge("checkrein_slots", "Background capacity that is held, and units in line.", None)
            .value([("state", "held")], used.held as f64)
            .value([("state", "waiting")], used.waiting as f64);
    }

    fn run_figures(&self, page: &mut Page) {
        let figures = self.sandbox().figures();
        let name = |kind: Option<Kind>| kind.map_or("other", Kind::as_str);
        let ended = page.counter("checkrein_runs", "Runs of guests that have ended.");
        for (kind, figures) in figures.by_kind() {
            for (status, count) in known(figures.ended.iter()) {
                ended.count([("kind", name(kind)), ("status", status)], count);
            }
            for (limit, count) in figures.limits.iter().filter(|(_, count)| *count > 0) {
                let limit = limit.map_or("other", |limit| limit.as_str());
                let labels = [("kind", name(kind)), ("status", "limit"), ("limit", limit)];
                ended.count(labels, count);
            }
        }
        let fuel = page.counter("checkrein_fuel", "Fuel that runs with a limit on it have burnt.");
        for (kind, figures) in figures.by_kind() {
            fuel.count([("kind", name(kind))], figures.fuel.get());
        }
        let traps = page.counter("checkrein_traps", "Runs that broke off.");
        for (cause, count) in known(figures.traps.iter()) {
            traps.count([("cause", cause)], count);
        }
        let calls = page.counter("checkrein_tool_calls", "Calls of tools by agents.");
        for (status, count) in known(figures.tool_calls.iter()) {
            calls.count([("status", status)], count);
        }
        let models = self.inner.pattern.model_figures.all();
        let requests =
            page.counter("checkrein_model_requests", "Requests to models that are over.");
        for (model, figure) in &models {
            for (status, count) in known(figure.requests.iter()) {
                requests.count([("model", model.as_str()), ("status", status)], count);
            }
        }
        let tokens = page.counter("checkrein_model_tokens", "Tokens, as the models count them.");
        for (model, figure) in &models {
            let counts = [("input", &figure.input_tokens), ("output", &figure.output_tokens)];
            for (direction, count) in counts {
                tokens.count([("model", model.as_str()), ("direction", direction)], count.get());
            }
        }
    }

    fn load_figures(&self, page: &mut Page) {
        let loads = self.sandbox().load_figures();
        page.counter("checkrein_loads", "Components that were compiled, or found in the cache.")
            .count([("result", "compiled")], loads.compiled.get())
            .count([("result", "cached")], loads.cached.get())
            .count([("result", "failed")], loads.failed.get());
        page.seconds(
            "checkrein_compilation",
            "How long compilations took, with the wait for a turn.",
        )
        .times([], loads.times.read());
        let used = self.sandbox().pool_use();
        page.gauge("checkrein_pool_used", "What is taken from the pools now.", None)
            .value([("what", "components")], used.components as f64)
            .value([("what", "core-instances")], used.core_instances as f64)
            .value([("what", "memories")], used.memories as f64)
            .value([("what", "tables")], used.tables as f64)
            .value([("what", "stacks")], used.stacks as f64);
        let slots = self.sandbox().engines().slots().unwrap_or(0);
        page.gauge(
            "checkrein_pool_slots",
            "Live runs that a pool has room for; 0 without one.",
            None,
        )
        .value([], f64::from(slots));
    }
}

fn profile_figures(page: &mut Page, profiles: &BTreeMap<String, Profile>, parked: u64) {
    let retiring = profiles.values().filter(|profile| profile.node().closed().is_some()).count();
    page.gauge("checkrein_profiles", "Profiles by what is done with them.", None)
        .value([("state", "served")], (profiles.len() - retiring) as f64)
        .value([("state", "retiring")], retiring as f64)
        .value([("state", "parked")], parked as f64);
    let stores: Vec<_> = profiles
        .iter()
        .map(|(name, profile)| ([("profile", name.as_str())], profile.store()))
        .map(|(labels, store)| (labels, store.health(), store.commit_times()))
        .collect();
    let failing = page.gauge("checkrein_store_failing", "1 while a store takes no writes.", None);
    for (labels, health, _) in &stores {
        failing.value(*labels, f64::from(u8::from(health.failing.is_some())));
    }
    let queued =
        page.gauge("checkrein_store_queued", "What waits to be written.", Some(Unit::Bytes));
    for (labels, health, _) in &stores {
        queued.value(*labels, health.queued_bytes as f64);
    }
    let size = page.gauge("checkrein_store_size", "The database on disk.", Some(Unit::Bytes));
    for (labels, health, _) in &stores {
        size.value(*labels, health.bytes as f64);
    }
    let writes = page.counter("checkrein_store_writes", "Writes that were committed.");
    for (labels, health, _) in &stores {
        writes.count(*labels, health.writes);
    }
    let commits = page.seconds("checkrein_store_commit", "How long commits took.");
    for (labels, _, times) in stores {
        if let Some(times) = times {
            commits.times(labels, times);
        }
    }
}

/// Every figure that has a name, and what has none if there is any.
fn known<K>(counts: impl Iterator<Item = (Option<K>, u64)>) -> impl Iterator<Item = (K, u64)>
where
    K: From<&'static str>,
{
    let counts = counts.filter(|(name, count)| name.is_some() || *count > 0);
    counts.map(|(name, count)| (name.unwrap_or_else(|| K::from("other")), count))
}

/// A page of figures.
#[derive(Debug, Default)]
pub(crate) struct Page {
    families: Vec<Family>,
}

/// All figures of one name.
#[derive(Debug)]
pub(crate) struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    samples: Vec<Sample>,
}

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
struct Sample {
    labels: Labels,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Count(u64),
    Gauge(f64),
    Times(Times),
    Info,
}

impl Page {
    fn family(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        kind: MetricType,
    ) -> &mut Family {
        self.families.push(Family { name, help, unit, kind, samples: Vec::new() });
        let last = self.families.len() - 1;
        &mut self.families[last]
    }

    pub(crate) fn counter(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, None, MetricType::Counter)
    }

    pub(crate) fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
    ) -> &mut Family {
        self.family(name, help, unit, MetricType::Gauge)
    }

    pub(crate) fn seconds(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, Some(Unit::Seconds), MetricType::Histogram)
    }

    fn info(&mut self, name: &'static str, help: &'static str, label: (&'static str, &str)) {
        let family = self.family(name, help, None, MetricType::Info);
        family.sample([label], Value::Info);
    }

    /// The page as text.
    pub(crate) fn finish(self) -> String {
        let (mut registry, mut page) = (Registry::default(), String::new());
        registry.register_collector(Box::new(self));
        // It is written to memory, which does not fail.
        text::encode(&mut page, &registry).unwrap_or_default();
        page
    }
}

impl Family {
    fn sample<const N: usize>(&mut self, labels: [(&'static str, &str); N], value: Value) {
        let labels = labels.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        self.samples.push(Sample { labels, value });
    }

    pub(crate) fn count<const N: usize>(
        &mut self,
        labels: [(&'static str, &str); N],
        count: u64,
    ) -> &mut Family {
        self.sample(labels, Value::Count(count));
        self
    }

    pub(crate) fn value<const N: usize>(
        &mut self,
        labels: [(&'static str, &str); N],
        value: f64,
    ) -> &mut Family {
        self.sample(labels, Value::Gauge(value));
        self
    }

    pub(crate) fn times<const N: usize>(
        &mut self,
        labels: [(&'static str, &str); N],
        times: Times,
    ) -> &mut Family {
        self.sample(labels, Value::Times(times));
        self
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, unit, kind, samples } in &self.families {
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), *kind)?;
            for Sample { labels, value } in samples {
                if let Value::Info = value {
                    family.encode_info(labels)?;
                    continue;
                }
                let mut sample = family.encode_family(labels)?;
                match value {
                    Value::Count(count) => {
                        sample.encode_counter(count, None::<&Exemplar<Labels, f64>>)?;
                    }
                    Value::Gauge(gauge) => sample.encode_gauge(gauge)?,
                    Value::Times(Times { buckets, count, seconds }) => {
                        sample.encode_histogram::<Labels>(*seconds, *count, buckets, None)?;
                    }
                    Value::Info => {}
                }
            }
        }
        Ok(())
    }
}
