//! What was done so far, for whoever reads the end of a run that did not end well.

use checkrein_guest::prelude::*;

use crate::calls::Made;
use crate::shorten;

/// So many calls are listed, the newest ones.
const LISTED: usize = 20;

/// So much of what children gave is kept, in bytes: the newest.
const CHILDREN: usize = 16 << 10;

/// What was done so far.
#[derive(Debug, Default)]
pub(crate) struct Account {
    rounds: u32,
    calls: Vec<Entry>,
    children: Vec<String>,
    last_words: String,
}

#[derive(Debug)]
struct Entry {
    /// The call in a few words.
    brief: String,
    /// The status of its result, or what stands for one.
    status: String,
    /// It may have changed something outside.
    changes: bool,
}

impl Account {
    /// The model asked for tools once more, and said this beside it.
    pub(crate) fn round(&mut self, words: &str) {
        self.rounds += 1;
        if !words.trim().is_empty() {
            words.trim().clone_into(&mut self.last_words);
        }
    }

    /// How often the model asked for tools.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// A call, and what became of it.
    pub(crate) fn call(&mut self, call: &ToolCall, made: &Made, changes: bool) {
        let status = match made {
            Made::Answered(result) => result.status.as_str(),
            Made::Unknown => "under way when the stop came, effect unknown",
            Made::Untried => "not made",
        };
        self.calls.push(Entry { brief: brief(call), status: status.to_owned(), changes });
    }

    /// What children gave, in words. It is kept, because others did the work.
    pub(crate) fn children(&mut self, words: &str) {
        self.children.push(shorten::middle(words, CHILDREN / 4));
        let kept = |all: &[String]| all.iter().map(String::len).sum::<usize>();
        while self.children.len() > 1 && kept(&self.children) > CHILDREN {
            self.children.remove(0);
        }
    }

    /// All of it in words; empty when nothing was done.
    pub(crate) fn summary(&self) -> String {
        if self.rounds == 0 {
            return String::new();
        }
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for entry in &self.calls {
            match counts.iter_mut().find(|(status, _)| *status == entry.status) {
                Some((_, count)) => *count += 1,
                None => counts.push((&entry.status, 1)),
            }
        }
        let counts: Vec<String> =
            counts.into_iter().map(|(status, count)| format!("{count} {status}")).collect();
        let mut text = format!(
            "{} in {}",
            plural(self.calls.len(), "tool call"),
            plural(self.rounds as usize, "round")
        );
        if !counts.is_empty() {
            text.push_str(&format!(" ({})", counts.join(", ")));
        }
        text.push_str(".\n");
        let changes: Vec<&Entry> =
            self.calls.iter().filter(|entry| entry.changes && entry.status != "not made").collect();
        if !changes.is_empty() {
            text.push_str("Calls that may have changed something:\n");
            list(&mut text, &changes);
        }
        let others: Vec<&Entry> = self
            .calls
            .iter()
            .filter(|entry| !entry.changes || entry.status == "not made")
            .collect();
        if !others.is_empty() {
            text.push_str(if changes.is_empty() { "Calls:\n" } else { "Other calls:\n" });
            list(&mut text, &others);
        }
        for words in &self.children {
            text.push_str("From other runs:\n");
            text.push_str(words);
            text.push('\n');
        }
        if !self.last_words.is_empty() {
            text.push_str("The model's last words:\n");
            text.push_str(&shorten::middle(&self.last_words, 4 << 10));
            text.push('\n');
        }
        text
    }
}

fn list(text: &mut String, entries: &[&Entry]) {
    let skipped = entries.len().saturating_sub(LISTED);
    if skipped > 0 {
        text.push_str(&format!("- ({skipped} earlier ones)\n"));
    }
    for entry in &entries[skipped..] {
        text.push_str(&format!("- {}: {}\n", entry.brief, entry.status));
    }
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A call in a few words: its name, and what its arguments are most likely about.
pub(crate) fn brief(call: &ToolCall) -> String {
    let name = shorten::line(&call.name, 64);
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    let about = ["path", "paths", "files", "url", "pattern", "query", "name", "tasks", "ids"]
        .iter()
        .filter_map(|key| arguments.get(key))
        .find_map(words)
        .or_else(|| arguments.as_object().and_then(|table| table.values().find_map(words)));
    match about {
        Some(about) => format!("{name} {}", shorten::line(&about, 80)),
        None => name,
    }
}

fn words(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Array(items) => {
            let first = items.iter().find_map(words)?;
            Some(if items.len() > 1 {
                format!("{first} and {} more", items.len() - 1)
            } else {
                first
            })
        }
        Value::Object(table) => table.get("path").or_else(|| table.get("goal")).and_then(words),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &Value) -> ToolCall {
        ToolCall::new("1", name, arguments).unwrap()
    }

    fn ok() -> Made {
        Made::Answered(ToolResult { status: "ok".to_owned(), ..ToolResult::default() })
    }

    #[test]
    fn a_call_is_named_by_what_it_is_about() {
        assert_eq!(
            brief(&call("files_list", &json!({"depth": 2, "path": "/work/src"}))),
            "files_list /work/src"
        );
        let read = json!({"files": [{"path": "/work/a"}, {"path": "/work/b"}]});
        assert_eq!(brief(&call("files_read", &read)), "files_read /work/a and 1 more");
        let tasks =
            json!({"background": true, "tasks": [{"goal": "count a"}, {"goal": "count b"}]});
        assert_eq!(brief(&call("delegate", &tasks)), "delegate count a and 1 more");
        assert_eq!(brief(&call("clock_now", &json!({}))), "clock_now");
        assert_eq!(brief(&call("x", &json!({"a": 1, "b": "line\u{7}\nmore"}))), "x line …");
    }

    #[test]
    fn what_was_changed_comes_first() {
        let mut account = Account::default();
        assert_eq!(account.summary(), "");
        account.round("I will write it.");
        account.call(&call("files_read", &json!({"path": "/work/a"})), &ok(), false);
        account.call(&call("files_write", &json!({"path": "/work/b"})), &Made::Unknown, true);
        account.call(&call("files_write", &json!({"path": "/work/c"})), &Made::Untried, true);
        assert_eq!(
            account.summary(),
            "3 tool calls in 1 round (1 ok, 1 under way when the stop came, effect unknown, 1 not made).\n\
             Calls that may have changed something:\n\
             - files_write /work/b: under way when the stop came, effect unknown\n\
             Other calls:\n\
             - files_read /work/a: ok\n\
             - files_write /work/c: not made\n\
             The model's last words:\nI will write it.\n"
        );
    }

    #[test]
    fn a_long_list_shows_the_newest() {
        let mut account = Account::default();
        account.round("");
        for number in 0..25 {
            account.call(&call("a", &json!({"path": number.to_string()})), &ok(), false);
        }
        let text = account.summary();
        assert!(
            text.contains("- (5 earlier ones)\n- a 5: ok\n") && text.ends_with("- a 24: ok\n"),
            "{text}"
        );
    }
}
