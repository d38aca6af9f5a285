//! The plugins that are built into the program.

use crate::plugin::Embedded;

/// The first-party plugins, as they were built together with this program.
#[cfg(feature = "plugins")]
pub(super) fn embedded() -> &'static [Embedded] {
    include!(concat!(env!("OUT_DIR"), "/first_party.rs"))
}

/// None: this program was built without them.
#[cfg(not(feature = "plugins"))]
pub(super) fn embedded() -> &'static [Embedded] {
    &[]
}
