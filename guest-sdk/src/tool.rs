//! What a tool is, and the macro that makes a component of one or several.

use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::host::ToolBackend;
#[cfg(target_arch = "wasm32")]
use crate::host::ToolHost as _;
use crate::{Failure, Level, ToolSpec, config, schema};

/// A tool: one thing that an agent or a model can have done.
///
/// ```
/// use checkrein_guest::prelude::*;
///
/// /// The doc comments of the fields tell a model what to pass.
/// #[derive(Deserialize, JsonSchema)]
/// pub struct Arguments {
///     /// The text to turn round.
///     text: String,
/// }
///
/// pub struct Reverse;
///
/// impl Tool for Reverse {
///     const NAME: &str = "reverse";
///     const DESCRIPTION: &str = "Turns a text round: the last character comes first.";
///     const HINTS: &[Hint] = &[Hint::ReadOnly, Hint::Idempotent];
///     type Arguments = Arguments;
///
///     fn call(arguments: Arguments, _cx: &ToolContext) -> Result<Output, Failure> {
///         Ok(arguments.text.chars().rev().collect::<String>().into())
///     }
/// }
///
/// tools!(Reverse);
/// # fn main() {}
/// ```
pub trait Tool {
    /// The name: letters, digits, `_` and `-`. The host puts the name of the plugin in front: the tool `list` of the
    /// plugin `files` is `files_list` for an agent. Both together have at most 64 bytes.
    const NAME: &'static str;

    /// What it does and when to use it, written for a model.
    const DESCRIPTION: &'static str;

    /// What can be said about every call of it.
    const HINTS: &'static [Hint] = &[];

    /// The arguments, which are a JSON object: a struct that derives `Deserialize` and `JsonSchema`, or
    /// [`NoArguments`].
    type Arguments: DeserializeOwned + JsonSchema;

    /// Does it.
    ///
    /// # Errors
    /// The agent reads the failure as the result of its call and goes on.
    fn call(arguments: Self::Arguments, cx: &ToolContext) -> Result<Output, Failure>;
}

/// What can be said about every call of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hint {
    /// It changes nothing.
    ReadOnly,
    /// Calling it twice is the same as calling it once.
    Idempotent,
    /// It can destroy something that was there.
    Destructive,
    /// It reaches out of what this host controls, for example into the network.
    OpenWorld,
}

impl Hint {
    /// The name that crosses the door.
    pub fn as_str(self) -> &'static str {
        match self {
            Hint::ReadOnly => "read-only",
            Hint::Idempotent => "idempotent",
            Hint::Destructive => "destructive",
            Hint::OpenWorld => "open-world",
        }
    }
}

/// What a tool gives back: text for a model.
///
/// Text becomes an output with `into()`; anything that serialises becomes one with [`Output::json`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output(String);

impl Output {
    /// The text as it is.
    pub fn text(text: impl Into<String>) -> Output {
        Output(text.into())
    }

    /// A value as JSON.
    ///
    /// # Errors
    /// `invalid` when the value cannot be written as JSON.
    pub fn json(value: &impl Serialize) -> Result<Output, Failure> {
        Ok(Output(serde_json::to_string(value)?))
    }

    /// What the agent gets to read.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Output {
    fn from(text: String) -> Output {
        Output(text)
    }
}

impl From<&str> for Output {
    fn from(text: &str) -> Output {
        Output(text.to_owned())
    }
}

impl From<Output> for String {
    fn from(output: Output) -> String {
        output.0
    }
}

/// The arguments of a tool that takes none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoArguments {}

/// What a tool can ask the host for, beside the files and hosts that its grants let it reach through `std`.
pub struct ToolContext {
    host: ToolBackend,
}

impl ToolContext {
    pub(crate) fn new(host: ToolBackend) -> ToolContext {
        ToolContext { host }
    }

    /// What the operator configured for this plugin, as a type of yours.
    ///
    /// # Errors
    /// `invalid` when it does not fit the type.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        config::read(self.host.config_keys(), |key| self.host.config(key))
    }

    /// The value of a secret that this plugin was granted. Do not log it, and do not put it into an output.
    ///
    /// # Errors
    /// `denied` without a grant, `not-found` where the operator has set none.
    pub fn secret(&self, name: &str) -> Result<String, Failure> {
        self.host.secret(name)
    }

    /// Writes a line to the operator's log.
    pub fn log(&self, level: Level, message: &str) {
        self.host.log(level, message);
    }

    /// Logs that something is wrong.
    pub fn error(&self, message: &str) {
        self.log(Level::Error, message);
    }

    /// Logs that something is odd.
    pub fn warn(&self, message: &str) {
        self.log(Level::Warn, message);
    }

    /// Logs what happens.
    pub fn info(&self, message: &str) {
        self.log(Level::Info, message);
    }

    /// Logs what happens, in detail.
    pub fn debug(&self, message: &str) {
        self.log(Level::Debug, message);
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext").finish_non_exhaustive()
    }
}

/// Makes the crate a component of these tools. One line in `lib.rs`; a component is either one agent or a set of
/// tools. Names that are malformed or not distinct do not compile. See [`Tool`] for an example.
#[macro_export]
macro_rules! tools {
    ($($tool:ty),+ $(,)?) => {
        const _: () = $crate::__private::assert_names(&[$(<$tool as $crate::Tool>::NAME),+]);

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Component;

            impl $crate::__private::tool::Guest for Component {
                fn describe() -> $crate::__private::Vec<$crate::ToolSpec> {
                    $crate::__private::Vec::from([$($crate::__private::describe::<$tool>()),+])
                }

                fn call(
                    name: $crate::__private::String,
                    arguments: $crate::__private::String,
                ) -> ::core::result::Result<$crate::__private::String, $crate::Failure> {
                    $(
                        if name == <$tool as $crate::Tool>::NAME {
                            return $crate::__private::call_tool::<$tool>(&arguments);
                        }
                    )+
                    $crate::__private::no_such_tool(&name)
                }
            }

            $crate::__private::tool::export_tool!(Component with_types_in $crate::__private::tool);
            $crate::__sdk_section!();
        };
    };
}

/// The tool as agents see it, without the prefix of its plugin.
pub(crate) fn describe<T: Tool>() -> ToolSpec {
    ToolSpec {
        name: T::NAME.to_owned(),
        description: T::DESCRIPTION.to_owned(),
        parameters: schema::of::<T::Arguments>(),
        hints: T::HINTS.iter().map(|hint| hint.as_str().to_owned()).collect(),
    }
}

/// Calls the tool with arguments as they crossed the door.
pub(crate) fn call<T: Tool>(arguments: &str, cx: &ToolContext) -> Result<String, Failure> {
    // A model that has nothing to say sometimes sends nothing at all.
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
    // Rust structs could be read from JSON arrays, too; a schema of objects promises that they are not.
    if !arguments.trim_start().starts_with('{') {
        return Err(Failure::invalid(format!(
            "the arguments of `{}` are not a JSON object",
            T::NAME
        )));
    }
    let arguments = serde_json::from_str(arguments).map_err(|error| {
        Failure::invalid(format!("the arguments of `{}` do not fit its schema: {error}", T::NAME))
    })?;
    T::call(arguments, cx).map(String::from)
}
