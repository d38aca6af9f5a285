//! What an agent is, and the macro that makes a component of it.

use crate::{Failure, Run};

/// An agent: decides what to do next, and has everything done by the host.
///
/// Each run gets a new value of the type, in a component instance of its own; nothing is kept from one run to the
/// next but what the run puts into the session's memory.
pub trait Agent: Default {
    /// Does the task of the run and returns its final text.
    ///
    /// # Errors
    /// The failure becomes the outcome of the run. Passing on an `interrupted` failure with `?` is a fine way to end
    /// a run that was asked to stop, as long as there is nothing worth reporting.
    fn run(&self, run: &Run) -> Result<String, Failure>;
}

/// Makes the crate a component that is this agent. One line in `lib.rs`; a component is either one agent or a set
/// of tools.
///
/// ```
/// use checkrein_guest::prelude::*;
///
/// #[derive(Default)]
/// pub struct Greeter;
///
/// impl Agent for Greeter {
///     fn run(&self, run: &Run) -> Result<String, Failure> {
///         Ok(format!("Hello, {}!", run.task().goal))
///     }
/// }
///
/// agent!(Greeter);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! agent {
    ($agent:ty) => {
        const _: fn() = $crate::__private::assert_agent::<$agent>;

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Component;

            impl $crate::__private::agent::Guest for Component {
                fn run() -> ::core::result::Result<$crate::__private::String, $crate::Failure> {
                    $crate::__private::run_agent::<$agent>()
                }
            }

            $crate::__private::agent::export_agent!(Component with_types_in $crate::__private::agent);
            $crate::__sdk_section!();
        };
    };
}
