//! The imports and exports of both worlds, generated ahead from `wit/` and checked in: a plugin's first build then
//! takes seconds. `tests/house` checks that they fit the WIT, and rewrites them.

/// The records that cross the door, under the names that the generated code expects. Both worlds share them.
pub(crate) mod records {
    pub use crate::{
        Budget, ChildTask, DelegateOutcome, DelegateRequest, DelegationCapacity, Failure, Message,
        Request, Response, Stop, Task, TaskResult, ToolCall, ToolResult, ToolSpec, UnitStatus,
        Usage,
    };
}

#[rustfmt::skip]
pub mod agent;
#[rustfmt::skip]
pub mod tool;
