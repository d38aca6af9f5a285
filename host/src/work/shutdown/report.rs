//! What a shutdown came to: each step, and each piece of work that was cut or left.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::steps::Step;
use crate::ids::WorkId;
use crate::work::{Kind, NodeView};

/// What a shutdown came to. It can be kept as JSON and read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// Whether all went as it should.
    pub clean: Clean,
    /// Who asked first.
    pub issuer: String,
    /// Why, in their words.
    pub reason: String,
    /// How long it has taken so far.
    #[serde(rename = "took-ms", with = "milliseconds")]
    pub took: Duration,
    /// The steps that were taken, in order.
    pub steps: Vec<StepReport>,
    /// The work that was stopped hard and has ended.
    pub cut: Vec<Piece>,
    /// The work that had not ended when the time was over.
    pub left: Vec<Piece>,
}

/// Whether all went as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clean {
    /// Every step was done, and no work was cut or left.
    Clean,
    /// Something was cut, left, or not done.
    NotClean,
}

/// One step, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct StepReport {
    /// Which.
    pub step: Step,
    /// How long it took.
    #[serde(rename = "took-ms", with = "milliseconds")]
    pub took: Duration,
    /// How it ended.
    #[serde(flatten)]
    pub ended: Ended,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ended", content = "why")]
pub enum Ended {
    /// As it should.
    Done,
    /// There was nothing to do.
    NotNeeded,
    /// Somebody asked for the hard stop at once.
    CutShort,
    /// Its time was over. It may still be going.
    TimedOut,
    /// It failed, in its own words.
    Failed(String),
    /// Its code broke, in the words of the panic.
    Panicked(String),
}

impl Ended {
    /// Whether it ended as it should, or there was nothing to do.
    pub fn is_fine(&self) -> bool {
        matches!(self, Ended::Done | Ended::NotNeeded)
    }
}

/// A piece of work that was cut or left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Piece {
    /// The name that it had in the tree.
    pub id: String,
    /// What sort of work it was, such as `turn`.
    pub kind: String,
    /// Its name for people.
    pub label: String,
    /// What owned it, such as `session s1 (w2-3)`; none when that was not known any more.
    pub owner: Option<String>,
    /// How old it was.
    #[serde(rename = "age-ms", with = "milliseconds")]
    pub age: Duration,
    /// What it was doing, as far as it was known.
    pub doing: Option<String>,
}

impl Report {
    /// Whether every step was done, and no work was cut or left.
    pub fn is_clean(&self) -> bool {
        self.clean == Clean::Clean
    }

    /// How a step ended, if it was taken.
    pub fn step(&self, step: Step) -> Option<&Ended> {
        self.steps.iter().find(|taken| taken.step == step).map(|taken| &taken.ended)
    }

    /// Sets [`Report::clean`] from the rest.
    pub(super) fn judged(mut self) -> Report {
        let fine = self.steps.iter().all(|step| step.ended.is_fine());
        self.clean = match fine && self.cut.is_empty() && self.left.is_empty() {
            true => Clean::Clean,
            false => Clean::NotClean,
        };
        self
    }
}

impl Piece {
    /// The executions among these nodes. Their owners are looked up among them, too.
    pub(super) fn all(nodes: &[NodeView]) -> Vec<Piece> {
        let names: BTreeMap<WorkId, (Kind, &Arc<str>)> =
            nodes.iter().map(|node| (node.id, (node.kind, &node.label))).collect();
        let piece = |node: &NodeView| {
            let owner = node.owner.and_then(|id| {
                names.get(&id).map(|(kind, label)| format!("{} {label} ({id})", kind.as_str()))
            });
            Piece {
                id: node.id.to_string(),
                kind: node.kind.as_str().to_owned(),
                label: node.label.to_string(),
                owner,
                age: node.age,
                doing: node.activity.as_ref().map(doing),
            }
        };
        nodes.iter().filter(|node| !node.kind.is_container()).map(piece).collect()
    }
}

fn doing(activity: &crate::work::Activity) -> String {
    let mut words = activity.what.to_owned();
    if let Some(detail) = &activity.detail {
        words.push_str(&format!(" {detail}"));
    }
    if let Some(since) = activity.since {
        words.push_str(&format!(", for {:.1} s", since.elapsed().as_secs_f64()));
    }
    words
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Piece { id, kind, label, owner, age, doing } = self;
        write!(f, "{kind} {label} ({id}), {:.1} s old", age.as_secs_f64())?;
        if let Some(owner) = owner {
            write!(f, ", of {owner}")?;
        }
        if let Some(doing) = doing {
            write!(f, ": {doing}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Done => f.write_str("done"),
            Ended::NotNeeded => f.write_str("not needed"),
            Ended::CutShort => f.write_str("cut short"),
            Ended::TimedOut => f.write_str("not done in time"),
            Ended::Failed(why) => write!(f, "failed: {why}"),
            Ended::Panicked(why) => write!(f, "broke: {why}"),
        }
    }
}

/// One line for the whole, one for each step that did not end well, one for each piece of work.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_clean() { "clean" } else { "not clean" };
        write!(f, "shut down after {:.1} s, {how}: {}", self.took.as_secs_f64(), self.reason)?;
        for StepReport { step, ended, .. } in self.steps.iter().filter(|step| !step.ended.is_fine())
        {
            write!(f, "\n  step {step}: {ended}")?;
        }
        for (word, pieces) in [("cut", &self.cut), ("left", &self.left)] {
            for piece in pieces {
                write!(f, "\n  {word}: {piece}")?;
            }
        }
        Ok(())
    }
}

/// Times as whole milliseconds, as in all JSON of the host.
mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}
