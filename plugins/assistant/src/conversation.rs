//! What was said: history, task and rounds, within bounds, and always in a shape that providers accept.

use checkrein_guest::prelude::*;

use crate::shorten;

/// Results up to this size are not worth leaving out.
const SMALL: usize = 400;

/// The messages of a request.
///
/// Invariant: every result of a tool follows the message that asks for it, and every call has its result. A group of
/// messages that belong together stays or goes as a whole.
#[derive(Debug)]
pub(crate) struct Conversation {
    system: String,
    /// What was said before the task, in groups.
    before: Vec<Vec<Message>>,
    task: String,
    /// What was said since, in groups.
    rounds: Vec<Vec<Message>>,
    /// So many groups went to make room.
    dropped: usize,
}

impl Conversation {
    /// A conversation that begins with these instructions, goes on with the history and ends with the task.
    pub(crate) fn new(system: String, history: Vec<Message>, task: String) -> Conversation {
        Conversation { system, before: groups(history), task, rounds: Vec::new(), dropped: 0 }
    }

    /// An answer of the model, with what its calls gave.
    pub(crate) fn round(&mut self, answer: Message, results: Vec<Message>) {
        let mut group = vec![answer];
        group.extend(results);
        self.rounds.push(group);
    }

    /// A word to the model.
    pub(crate) fn say(&mut self, text: impl Into<String>) {
        self.rounds.push(vec![Message::user(text)]);
    }

    /// Everything, for a request.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let mut messages = vec![Message::system(&self.system)];
        messages.extend(self.before.iter().flatten().cloned());
        let mut task = self.task.clone();
        if self.dropped > 0 {
            task.push_str(&format!(
                "\n\n[{} earlier parts of this conversation were left out here to save room.]",
                self.dropped
            ));
        }
        messages.push(Message::user(task));
        messages.extend(self.rounds.iter().flatten().cloned());
        messages
    }

    /// Everything as plain text without calls, for a request that offers no tools: some providers refuse calls in
    /// the history of such a request.
    pub(crate) fn plain_messages(&self) -> Vec<Message> {
        self.messages()
            .into_iter()
            .filter_map(|mut message| {
                for call in std::mem::take(&mut message.tool_calls) {
                    let line = format!(
                        "[called {} with {}]",
                        call.name,
                        shorten::line(&call.arguments, 400)
                    );
                    if !message.text.is_empty() {
                        message.text.push('\n');
                    }
                    message.text.push_str(&line);
                }
                if message.role == "tool" {
                    message = Message::user(format!("[result of a tool]\n{}", message.text));
                }
                (!message.text.is_empty()).then_some(message)
            })
            .collect()
    }

    /// Makes room when there are more than `most` bytes. What is oldest gives way first: results of tools, then the
    /// history, then whole rounds; and if that is not enough, what is left is shortened.
    pub(crate) fn fit(&mut self, most: usize) {
        if self.weight() <= most {
            return;
        }
        // A bit more than needed, so that this does not happen in every round.
        let most = most / 4 * 3;
        let latest = self.rounds.len().saturating_sub(1);
        for place in 0..latest {
            if self.weight() <= most {
                return;
            }
            for message in self.rounds[place].iter_mut().filter(|message| message.role == "tool") {
                if message.text.len() > SMALL {
                    message.text = format!(
                        "[The result, {} bytes, was left out here to save room. Ask again if you still need it.]",
                        message.text.len()
                    );
                }
            }
        }
        while self.weight() > most && !self.before.is_empty() {
            self.before.remove(0);
            self.dropped += 1;
            // A conversation starts with a person.
            while self.before.first().is_some_and(|group| group[0].role != "user") {
                self.before.remove(0);
            }
        }
        while self.weight() > most && self.rounds.len() > 1 {
            self.rounds.remove(0);
            self.dropped += 1;
        }
        // Only the latest round is left: its results share the room, which is never nothing.
        let results = self.rounds.iter().flatten().filter(|message| message.role == "tool");
        let (count, bytes) =
            results.fold((0, 0), |(count, bytes), message| (count + 1, bytes + message.text.len()));
        let excess = self.weight().saturating_sub(most);
        if excess > 0 && count > 0 {
            let share = (bytes.saturating_sub(excess) / count).max(SMALL);
            for message in self.rounds.iter_mut().flatten().filter(|message| message.role == "tool")
            {
                message.text = shorten::middle(&message.text, share);
            }
        }
        let excess = self.weight().saturating_sub(most);
        if excess > 0 {
            self.task =
                shorten::middle(&self.task, self.task.len().saturating_sub(excess).max(SMALL));
        }
    }

    /// About how many bytes a request with all of it has.
    pub(crate) fn weight(&self) -> usize {
        let groups = self.before.iter().chain(&self.rounds);
        self.system.len() + self.task.len() + groups.flatten().map(weight).sum::<usize>()
    }
}

fn weight(message: &Message) -> usize {
    let calls = message.tool_calls.iter().map(|call| call.name.len() + call.arguments.len() + 64);
    message.text.len() + calls.sum::<usize>() + 32
}

/// The history in groups, without what a provider would refuse: results without a call, calls without results,
/// messages that say nothing, instructions of other runs, and an answer at the very beginning.
fn groups(history: Vec<Message>) -> Vec<Vec<Message>> {
    let mut groups: Vec<Vec<Message>> = Vec::new();
    for mut message in history {
        match message.role.as_str() {
            "user" if !message.text.trim().is_empty() => groups.push(vec![message]),
            "assistant" => groups.push(vec![message]),
            "tool" => {
                let Some(group) = groups.last_mut() else { continue };
                let id = message.tool_call_id.get_or_insert_default();
                let asked = group[0].tool_calls.iter().any(|call| call.id == *id);
                let answered =
                    group[1..].iter().any(|other| other.tool_call_id.as_ref() == Some(id));
                if asked && !answered {
                    group.push(message);
                }
            }
            _ => {}
        }
    }
    for group in &mut groups {
        if group[0].tool_calls.len() + 1 != group.len() {
            group.truncate(1);
            group[0].tool_calls.clear();
        }
    }
    groups.retain(|group| !group[0].text.trim().is_empty() || !group[0].tool_calls.is_empty());
    let first = groups.iter().position(|group| group[0].role == "user").unwrap_or(groups.len());
    groups.drain(..first);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(text: &str, ids: &[&str]) -> Message {
        let call =
            |id: &&str| ToolCall::new(*id, "files_read", &json!({"path": "/work/a"})).unwrap();
        Message { tool_calls: ids.iter().map(call).collect(), ..Message::assistant(text) }
    }

    fn shape(messages: &[Message]) -> String {
        messages.iter().map(|message| format!("{}:{} ", message.role, message.text)).collect()
    }

    #[test]
    fn a_history_is_put_into_a_shape_that_providers_accept() {
        let history = vec![
            Message::tool("lost", "a result of a call that is no longer there"),
            Message::assistant("an answer to what is no longer there"),
            Message::system("instructions of another run"),
            Message::user("first"),
            asking("", &["a", "b"]),
            Message::tool("a", "A"),
            Message::tool("b", "B"),
            Message::tool("b", "B again"),
            Message::assistant("done"),
            Message::user("second"),
            asking("let me see", &["c", "d"]),
            Message::tool("c", "C"),
            Message::user(" "),
            asking("", &["e"]),
        ];
        let conversation = Conversation::new("S".into(), history, "T".into());
        assert_eq!(
            shape(&conversation.messages()),
            "system:S user:first assistant: tool:A tool:B assistant:done user:second assistant:let me see user:T "
        );
    }

    #[test]
    fn without_tools_calls_become_text() {
        let mut conversation = Conversation::new("S".into(), Vec::new(), "T".into());
        conversation.round(asking("", &["a"]), vec![Message::tool("a", "A")]);
        let plain = conversation.plain_messages();
        assert_eq!(
            shape(&plain),
            "system:S user:T assistant:[called files_read with {\"path\":\"/work/a\"}] user:[result of a tool]\nA "
        );
        assert!(
            plain
                .iter()
                .all(|message| message.tool_calls.is_empty() && message.tool_call_id.is_none())
        );
    }

    fn long(rounds: usize, history: usize) -> Conversation {
        let said =
            (0..history).map(|number| Message::user(format!("{number} {}", "h".repeat(1_000))));
        let mut conversation = Conversation::new("S".into(), said.collect(), "T".into());
        for number in 0..rounds {
            let id = number.to_string();
            conversation.round(asking("", &[&id]), vec![Message::tool(&id, "r".repeat(10_000))]);
        }
        conversation
    }

    #[test]
    fn old_results_give_way_before_anything_else() {
        let mut conversation = long(10, 3);
        conversation.fit(60_000);
        let messages = conversation.messages();
        assert_eq!(messages.len(), 1 + 3 + 1 + 20);
        assert!(messages[6].text.starts_with("[The result, 10000 bytes, was left out"));
        assert_eq!(messages[24].text.len(), 10_000);
        assert!(conversation.weight() <= 45_000);
    }

    #[test]
    fn then_history_and_whole_rounds_go_and_it_is_said() {
        let mut conversation = long(10, 100);
        conversation.fit(14_000);
        let messages = conversation.messages();
        assert!(conversation.weight() <= 14_000, "{}", conversation.weight());
        assert!(
            messages[1].text.starts_with("T\n\n[")
                && messages[1].text.contains("were left out here")
        );
        assert_eq!(messages[2].role, "assistant");
        let last = messages.last().unwrap();
        assert!(
            last.text.contains("bytes were cut out here") || last.text.len() == 10_000,
            "{}",
            last.text.len()
        );
    }

    #[test]
    fn a_task_larger_than_everything_is_shortened_too() {
        let mut conversation = Conversation::new("S".into(), Vec::new(), "t".repeat(100_000));
        conversation.fit(10_000);
        assert!(conversation.weight() <= 10_000);
        assert!(conversation.messages()[1].text.contains("bytes were cut out here"));
    }
}
