//! What an operator can set.

use checkrein_guest::prelude::*;

/// The `[configuration]` of the plugin.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Settings {
    /// A model by the operator's name for it.
    pub(crate) model: Option<String>,
    /// In place of the instructions of [`crate::prompt`].
    pub(crate) system_prompt: Option<String>,
    /// Added to the instructions.
    pub(crate) instructions: Option<String>,
    /// How often the model may ask for tools.
    pub(crate) max_rounds: u32,
    /// How many tool calls run at once.
    pub(crate) batch: usize,
    /// How many messages before the task go to the model.
    pub(crate) history: u32,
    /// How much of one result the model sees, in bytes.
    pub(crate) result_bytes: usize,
    /// How large a request may be, in bytes.
    pub(crate) context_bytes: usize,
    /// How often the same call may fail before it is no longer made.
    pub(crate) same_failures: u32,
    /// An upper bound for each answer of the model.
    pub(crate) max_output_tokens: Option<u32>,
    /// From 0 to 2.
    pub(crate) temperature: Option<f64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            model: None,
            system_prompt: None,
            instructions: None,
            max_rounds: 24,
            batch: 8,
            history: 40,
            result_bytes: 48 << 10,
            context_bytes: 400 << 10,
            same_failures: 3,
            max_output_tokens: None,
            temperature: None,
        }
    }
}

impl Settings {
    /// The settings of this run, checked.
    pub(crate) fn of(run: &Run) -> Result<Settings, Failure> {
        let settings: Settings = run.config()?;
        let within = |key: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Failure::invalid(format!(
                "the configuration of this plugin sets `{key}` to {value}; it must be from {least} to {most}"
            )))
        };
        within("max-rounds", settings.max_rounds as usize, 1, 10_000)?;
        within("batch", settings.batch, 1, 1_000)?;
        within("history", settings.history as usize, 0, 10_000)?;
        within("same-failures", settings.same_failures as usize, 1, 1_000)?;
        within("result-bytes", settings.result_bytes, 1 << 10, 1 << 20)?;
        // A request has to cross the door, where 4 MiB is the usual bound, and JSON takes some more.
        within("context-bytes", settings.context_bytes, 8 << 10, 3 << 20)?;
        Ok(settings)
    }
}
