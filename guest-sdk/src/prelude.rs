//! Everything a plugin usually needs: `use checkrein_guest::prelude::*;`.

pub use std::time::Duration;

pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};
pub use serde_json::{Value, json};

pub use crate::{
    Agent, Budget, ChildTask, Context, DelegateOutcome, DelegateRequest, DelegationCapacity,
    Failure, Hint, Level, Message, NoArguments, Output, Request, Response, Run, Stop, Task,
    TaskResult, Tool, ToolCall, ToolContext, ToolResult, ToolSpec, UnitStatus, Usage, agent, tools,
};
