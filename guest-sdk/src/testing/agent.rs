//! The script of one run of an agent.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use serde::Serialize;
use serde_json::Value;

use super::fake::{FakeHost, HardStop};
use super::report::{End, Report};
use super::tool::ToolTest;
use crate::{
    Agent, Budget, ChildTask, DelegationCapacity, Failure, Message, Response, Run, Stop, Task,
    Tool, ToolCall, ToolSpec, tool,
};

pub(super) type FakeTool = Box<dyn Fn(Value) -> Result<String, Failure>>;
pub(super) type FakeChild = Box<dyn Fn(&ChildTask) -> Result<String, Failure>>;

/// The script of one run: what it is asked to do, and what the host will answer.
///
/// What is not in the script is not there: a request beyond the scripted answers fails with `unavailable`, a tool
/// that was not added gives the result `not-found`, and so on.
pub struct AgentTest {
    pub(super) task: Task,
    pub(super) budgets: Vec<Budget>,
    pub(super) config: BTreeMap<String, Value>,
    pub(super) answers: VecDeque<Result<Response, Failure>>,
    pub(super) tools: BTreeMap<String, (ToolSpec, FakeTool)>,
    pub(super) children: Option<FakeChild>,
    pub(super) capacity: DelegationCapacity,
    pub(super) history: Vec<Message>,
    pub(super) memory: BTreeMap<String, Vec<u8>>,
    pub(super) stop: Option<(usize, Stop)>,
    pub(super) grace: Option<usize>,
}

impl AgentTest {
    /// A run with that goal.
    pub fn new(goal: impl Into<String>) -> AgentTest {
        let task = Task {
            run_id: "run-1".to_owned(),
            session_id: "session-1".to_owned(),
            goal: goal.into(),
            ..Task::default()
        };
        AgentTest {
            task,
            budgets: Vec::new(),
            config: BTreeMap::new(),
            answers: VecDeque::new(),
            tools: BTreeMap::new(),
            children: None,
            capacity: DelegationCapacity {
                agents: vec!["*".to_owned()],
                same_agent: true,
                tasks_per_call: 32,
                descendants_left: 256,
                depth_left: 4,
                background: true,
            },
            history: Vec::new(),
            memory: BTreeMap::new(),
            stop: None,
            grace: None,
        }
    }

    /// The further input of the task.
    ///
    /// # Panics
    /// When the input cannot be written as JSON.
    #[must_use]
    pub fn input(mut self, input: impl Serialize) -> AgentTest {
        self.task.input = to_json(&input).to_string();
        self
    }

    /// A directory that the tools of the run can reach.
    #[must_use]
    pub fn directory(mut self, name: impl Into<String>) -> AgentTest {
        self.task.directories.push(name.into());
        self
    }

    /// How many delegations lie between the run and its turn.
    #[must_use]
    pub fn depth(mut self, depth: u32) -> AgentTest {
        self.task.depth = depth;
        self
    }

    /// A budget: how much there was, and how much is left.
    #[must_use]
    pub fn budget(mut self, name: impl Into<String>, limit: u64, left: u64) -> AgentTest {
        self.budgets.push(Budget { name: name.into(), limit, left });
        self
    }

    /// A value of the configuration.
    ///
    /// # Panics
    /// When the value cannot be written as JSON.
    #[must_use]
    pub fn config(mut self, key: impl Into<String>, value: impl Serialize) -> AgentTest {
        self.config.insert(key.into(), to_json(&value));
        self
    }

    /// The next answer of the model is this text.
    #[must_use]
    pub fn model_says(self, text: impl Into<String>) -> AgentTest {
        self.model_answers(Response {
            message: Message::assistant(text),
            finish: "stop".to_owned(),
            model: "scripted".to_owned(),
            ..Response::default()
        })
    }

    /// The next answer of the model asks for these tools: pairs of a name and arguments.
    #[must_use]
    pub fn model_calls<N: Into<String>>(
        self,
        calls: impl IntoIterator<Item = (N, Value)>,
    ) -> AgentTest {
        let answer = self.answers.len() + 1;
        let tool_calls = calls
            .into_iter()
            .enumerate()
            .map(|(index, (name, arguments))| ToolCall {
                id: format!("call-{answer}-{}", index + 1),
                name: name.into(),
                arguments: arguments.to_string(),
            })
            .collect();
        self.model_answers(Response {
            message: Message { tool_calls, ..Message::assistant("") },
            finish: "tool-calls".to_owned(),
            model: "scripted".to_owned(),
            ..Response::default()
        })
    }

    /// The next answer of the model, as it is.
    #[must_use]
    pub fn model_answers(mut self, response: Response) -> AgentTest {
        self.answers.push_back(Ok(response));
        self
    }

    /// The next request to the model fails.
    #[must_use]
    pub fn model_fails(mut self, failure: Failure) -> AgentTest {
        self.answers.push_back(Err(failure));
        self
    }

    /// A tool that is played by a closure. `name` is what an agent sees, such as `files_list`.
    ///
    /// A failure becomes a result with the status `denied`, `not-found`, `invalid`, `limit`, `trapped` or
    /// `interrupted` if that is its code, and `error` otherwise.
    #[must_use]
    pub fn tool(
        self,
        name: impl Into<String>,
        play: impl Fn(Value) -> Result<String, Failure> + 'static,
    ) -> AgentTest {
        let spec = ToolSpec {
            name: name.into(),
            description: "A tool of this test.".to_owned(),
            parameters: r#"{"type":"object","properties":{}}"#.to_owned(),
            hints: Vec::new(),
        };
        self.add_tool(spec, Box::new(play))
    }

    /// A real tool of the plugin of that name: the agent sees `<plugin>_<tool>`. `test` holds its configuration and
    /// its secrets.
    #[must_use]
    pub fn real_tool<T: Tool>(self, plugin: &str, test: ToolTest) -> AgentTest {
        let mut spec = tool::describe::<T>();
        spec.name = format!("{plugin}_{}", spec.name);
        self.add_tool(spec, Box::new(move |arguments| test.call::<T>(arguments)))
    }

    fn add_tool(mut self, spec: ToolSpec, play: FakeTool) -> AgentTest {
        self.tools.insert(spec.name.clone(), (spec, play));
        self
    }

    /// Allows delegation; the closure plays the children, in the order of the tasks. Units that the agent sends
    /// into the background have ended as soon as it asks.
    #[must_use]
    pub fn children(
        mut self,
        play: impl Fn(&ChildTask) -> Result<String, Failure> + 'static,
    ) -> AgentTest {
        self.children = Some(Box::new(play));
        self
    }

    /// What the run may hand to [`children`](AgentTest::children), in place of much of everything. Tasks use up the runs
    /// that may be started; more tasks than may be handed out are refused.
    #[must_use]
    pub fn capacity(mut self, capacity: DelegationCapacity) -> AgentTest {
        self.capacity = capacity;
        self
    }

    /// The conversation before the task of the run, oldest message first. A child sees nothing of it.
    #[must_use]
    pub fn history(mut self, messages: impl IntoIterator<Item = Message>) -> AgentTest {
        self.history.extend(messages);
        self
    }

    /// A value in the session's memory.
    ///
    /// # Panics
    /// When the value cannot be written as JSON.
    #[must_use]
    pub fn memory(mut self, key: impl Into<String>, value: impl Serialize) -> AgentTest {
        self.memory.insert(key.into(), to_json(&value).to_string().into_bytes());
        self
    }

    /// Lets a soft stop arrive after so many calls that can wait (see [`Run`]); 0: before the run starts. The issuer
    /// is `user`.
    ///
    /// The next such call fails with the code `interrupted`, unless the agent asks
    /// [`stop_requested`](Run::stop_requested) before. After that, calls work again.
    #[must_use]
    pub fn stop_after(mut self, waits: usize, message: impl Into<String>) -> AgentTest {
        let stop =
            Stop { kind: "soft".to_owned(), message: message.into(), issuer: "user".to_owned() };
        self.stop = Some((waits, stop));
        self
    }

    /// How many calls that return a `Result` the agent can still make once it has noticed its stop. With the next one the run is ended by
    /// force, as when the grace period of a real run is over. Without this there is no bound.
    #[must_use]
    pub fn grace(mut self, calls: usize) -> AgentTest {
        self.grace = Some(calls);
        self
    }

    /// Runs the agent.
    pub fn run<A: Agent>(self) -> Report {
        let host = Rc::new(FakeHost::new(self));
        let run = Run::new(Rc::clone(&host) as _);
        // The fake host is not used after an unwinding but to read what it has recorded.
        let end = match catch_unwind(AssertUnwindSafe(|| A::default().run(&run))) {
            Ok(Ok(text)) => End::Completed(text),
            Ok(Err(failure)) => End::Failed(failure),
            Err(panic) => match panic.downcast::<HardStop>() {
                Ok(hard) => End::Stopped(hard.0),
                Err(panic) => resume_unwind(panic),
            },
        };
        host.report(end)
    }
}

impl fmt::Debug for AgentTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentTest").field("task", &self.task).finish_non_exhaustive()
    }
}

#[expect(
    clippy::expect_used,
    reason = "a value of a test that is not JSON is a mistake of the test"
)]
pub(super) fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("the value can be written as JSON")
}
