//! What the macros expand to calls of. Not part of the interface.

pub use std::string::String;
pub use std::vec::Vec;

#[cfg(target_arch = "wasm32")]
pub use crate::bindings::{agent, tool};

use crate::Agent;
#[cfg(target_arch = "wasm32")]
use crate::{Failure, Run, Tool, ToolContext, ToolSpec, door::Door};

/// Compiles for agents only, so that a mistake is reported at the line of the macro.
pub fn assert_agent<A: Agent>() {}

/// Compiles for names that are well-formed and distinct.
///
/// ```
/// const _: () = checkrein_guest::__private::assert_names(&["list", "read-range", "read_range"]);
/// ```
///
/// ```compile_fail,E0080
/// const _: () = checkrein_guest::__private::assert_names(&["list", "list"]);
/// ```
///
/// ```compile_fail,E0080
/// const _: () = checkrein_guest::__private::assert_names(&["list files"]);
/// ```
pub const fn assert_names(names: &[&str]) {
    let mut i = 0;
    while i < names.len() {
        assert!(
            well_formed(names[i].as_bytes()),
            "the NAME of a tool is made of 1 to 64 letters, digits, `_` and `-`"
        );
        let mut j = 0;
        while j < i {
            assert!(
                !same(names[i].as_bytes(), names[j].as_bytes()),
                "two tools have the same NAME"
            );
            j += 1;
        }
        i += 1;
    }
}

const fn well_formed(name: &[u8]) -> bool {
    let mut i = 0;
    while i < name.len() {
        if !(name[i].is_ascii_alphanumeric() || name[i] == b'_' || name[i] == b'-') {
            return false;
        }
        i += 1;
    }
    !name.is_empty() && name.len() <= 64
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

#[cfg(target_arch = "wasm32")]
pub fn run_agent<A: Agent>() -> Result<String, Failure> {
    A::default().run(&Run::new(Door))
}

#[cfg(target_arch = "wasm32")]
pub fn describe<T: Tool>() -> ToolSpec {
    crate::tool::describe::<T>()
}

#[cfg(target_arch = "wasm32")]
pub fn call_tool<T: Tool>(arguments: &str) -> Result<String, Failure> {
    crate::tool::call::<T>(arguments, &ToolContext::new(Door))
}

#[cfg(target_arch = "wasm32")]
pub fn no_such_tool(name: &str) -> Result<String, Failure> {
    Err(Failure::not_found(format!("this component has no tool `{name}`")))
}

/// What stands in the custom section `checkrein-sdk`: name and version of this crate.
pub const SDK: &str = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));

/// The same as the bytes of a section.
pub const fn sdk_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut i = 0;
    while i < N {
        bytes[i] = SDK.as_bytes()[i];
        i += 1;
    }
    bytes
}

/// Writes the custom section into the component. The linker copies it from the crate that expands this, so no
/// symbol has to keep it alive.
#[doc(hidden)]
#[macro_export]
macro_rules! __sdk_section {
    () => {
        #[used]
        #[unsafe(link_section = "checkrein-sdk")]
        static CHECKREIN_SDK: [u8; $crate::__private::SDK.len()] = $crate::__private::sdk_bytes();
    };
}
