//! How many bytes a value has when it crosses the door.

use super::delegate::{
    ChildTask, DelegateOutcome, DelegateRequest, DelegationCapacity, TaskResult, UnitStatus,
};
use crate::message::{Message, ToolCall, ToolResult, ToolSpec};
use crate::model::Response;

/// What a list or a record costs beside its text.
pub(super) const FRAME: usize = 16;

/// A value that crosses the door.
pub(super) trait Weigh {
    /// Its bytes, about: the text it carries and a little for each record.
    fn weight(&self) -> usize;
}

impl Weigh for std::convert::Infallible {
    fn weight(&self) -> usize {
        match *self {}
    }
}

impl Weigh for () {
    fn weight(&self) -> usize {
        0
    }
}

impl Weigh for String {
    fn weight(&self) -> usize {
        self.len()
    }
}

impl Weigh for Vec<u8> {
    fn weight(&self) -> usize {
        self.len()
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn weight(&self) -> usize {
        self.as_ref().map_or(0, Weigh::weight)
    }
}

/// Lists of records; bytes have their own rule above.
macro_rules! weigh_lists {
    ($($item:ty),*) => {$(
        impl Weigh for Vec<$item> {
            fn weight(&self) -> usize {
                self.iter().map(|item| FRAME + item.weight()).sum()
            }
        }
    )*};
}

weigh_lists!(String, Message, ToolCall, ToolResult, ToolSpec, TaskResult, UnitStatus);

impl Weigh for ToolCall {
    fn weight(&self) -> usize {
        FRAME + self.id.len() + self.name.len() + self.arguments.len()
    }
}

impl Weigh for ToolResult {
    fn weight(&self) -> usize {
        FRAME + self.id.len() + self.status.len() + self.content.len()
    }
}

impl Weigh for ToolSpec {
    fn weight(&self) -> usize {
        FRAME
            + self.name.len()
            + self.description.len()
            + self.parameters.len()
            + self.hints.weight()
    }
}

impl Weigh for DelegateRequest {
    fn weight(&self) -> usize {
        self.tasks.iter().map(Weigh::weight).sum()
    }
}

impl Weigh for ChildTask {
    fn weight(&self) -> usize {
        self.goal.len()
            + self.input.len()
            + self.agent.weight()
            + self.tools.weight()
            + self.limits.iter().map(|(name, _)| FRAME + name.len()).sum::<usize>()
            + self.group.weight()
            + FRAME
    }
}

impl Weigh for TaskResult {
    fn weight(&self) -> usize {
        FRAME + self.status.len() + self.output.len() + self.detail.len()
    }
}

impl Weigh for DelegateOutcome {
    fn weight(&self) -> usize {
        FRAME
            + self.outcome.len()
            + self.delegation_ids.weight()
            + self.results.weight()
            + self.inline_results.weight()
            + self.note.len()
    }
}

impl Weigh for DelegationCapacity {
    fn weight(&self) -> usize {
        FRAME + self.agents.weight()
    }
}

impl Weigh for UnitStatus {
    fn weight(&self) -> usize {
        FRAME + self.id.len() + self.state.len() + self.results.weight()
    }
}

impl Weigh for u32 {
    fn weight(&self) -> usize {
        size_of::<u32>()
    }
}

impl Weigh for Message {
    fn weight(&self) -> usize {
        FRAME + self.text.len() + self.tool_calls.weight() + self.tool_call_id.weight()
    }
}

impl Weigh for Response {
    fn weight(&self) -> usize {
        FRAME + self.message.weight() + self.model.len()
    }
}

impl Weigh for super::upward::Task {
    fn weight(&self) -> usize {
        let words = [&self.run_id, &self.session_id, &self.goal, &self.input];
        words.iter().map(|word| FRAME + word.len()).sum::<usize>() + self.directories.weight()
    }
}
