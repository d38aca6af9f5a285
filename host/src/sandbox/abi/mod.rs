//! One adapter for each released version of the WIT package: from its types to the host's, through the door.

pub(super) mod v0_1;
