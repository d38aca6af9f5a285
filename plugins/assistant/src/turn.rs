//! The rounds: ask the model, make its calls, hand back what they gave.

use checkrein_guest::prelude::*;

use crate::account::{Account, brief};
use crate::calls::{Caller, Made};
use crate::conversation::Conversation;
use crate::repeats::{Repeats, Verdict};
use crate::settings::Settings;
use crate::toolbox::Toolbox;
use crate::{children, prompt, shorten};

/// A request that was too large is not halved below this.
const LEAST_CONTEXT: usize = 8 << 10;

/// One run of the assistant.
pub(crate) struct Turn<'r> {
    run: &'r Run,
    settings: Settings,
    task: Task,
    toolbox: Toolbox,
    conversation: Conversation,
    caller: Caller,
    repeats: Repeats,
    account: Account,
    /// How large a request may be. Shrinks when the model finds one too large.
    context: usize,
}

/// How the model answered.
enum Answer {
    /// It wants tools.
    Calls(Message),
    /// It is done.
    Text(String),
    /// It said nothing at all.
    Nothing(String),
}

/// Whether there is another round.
enum Next {
    Round,
    /// No: the model asks for the same failing call again and again.
    Circle(String),
}

impl<'r> Turn<'r> {
    pub(crate) fn new(run: &'r Run, settings: Settings, task: Task) -> Turn<'r> {
        Turn {
            run,
            toolbox: Toolbox::new(Vec::new()),
            conversation: Conversation::new(String::new(), Vec::new(), String::new()),
            caller: Caller::new(settings.batch),
            repeats: Repeats::new(settings.same_failures),
            account: Account::default(),
            context: settings.context_bytes,
            settings,
            task,
        }
    }

    /// Runs to the end, whatever it is.
    pub(crate) fn run(mut self) -> Result<String, Failure> {
        match self.rounds() {
            Ok(text) => Ok(text),
            Err(failure) if failure.is_interrupted() => Ok(self.stopped(&failure)),
            Err(failure) => Err(self.failed(failure)),
        }
    }

    fn rounds(&mut self) -> Result<String, Failure> {
        self.open()?;
        let mut silent = false;
        while self.account.rounds() < self.settings.max_rounds {
            self.check_stop()?;
            match self.ask()? {
                Answer::Text(text) => return Ok(text),
                Answer::Calls(message) => {
                    if let Next::Circle(call) = self.make(message)? {
                        return self.wrap_up(
                            &format!("You keep asking for a call that fails ({call})."),
                            &format!("the model kept asking for a call that fails ({call})"),
                        );
                    }
                }
                Answer::Nothing(finish) if silent => {
                    return Err(Failure::failed(format!(
                        "the model answered with nothing, twice (finish: {finish})"
                    )));
                }
                Answer::Nothing(_) => {
                    silent = true;
                    self.conversation.say(prompt::EMPTY);
                }
            }
        }
        let rounds = self.settings.max_rounds;
        self.wrap_up(
            &format!("That was round {rounds} of {rounds}."),
            &format!("it reached the limit of {rounds} rounds of tool calls (`max-rounds`)"),
        )
    }

    fn open(&mut self) -> Result<(), Failure> {
        self.check_stop()?;
        let mut tools = self.run.tools()?;
        match self.run.delegation_capacity() {
            Ok(capacity) => tools.extend(children::specs(&capacity)),
            Err(failure) => self.run.debug(&format!("delegation is not offered: {failure}")),
        }
        self.toolbox = Toolbox::new(tools);
        let history = match self.settings.history {
            0 => Vec::new(),
            most => match self.run.history(most) {
                Ok(history) => history,
                Err(failure) if failure.is_interrupted() => return Err(failure),
                Err(failure) => {
                    self.run.warn(&format!("goes on without the history: {failure}"));
                    Vec::new()
                }
            },
        };
        let system = prompt::system(&self.settings, &self.task, self.toolbox.specs());
        let history = history
            .into_iter()
            .map(|message| Message {
                text: shorten::middle(&message.text, self.settings.result_bytes),
                ..message
            })
            .collect();
        self.conversation = Conversation::new(system, history, prompt::task(&self.task));
        Ok(())
    }

    fn check_stop(&self) -> Result<(), Failure> {
        self.run.stop_requested().map_or(Ok(()), |stop| Err(Failure::interrupted(stop)))
    }

    /// Asks the model, with the tools.
    fn ask(&mut self) -> Result<Answer, Failure> {
        let mut response = loop {
            self.conversation.fit(self.context);
            let tools = self.toolbox.specs().to_vec();
            let request = self.request(self.conversation.messages()).tools(tools);
            if let Some(response) = self.complete(&request)? {
                break response;
            }
        };
        if response.message.tool_calls.is_empty() {
            let text = response.message.text.trim();
            if text.is_empty() {
                return Ok(Answer::Nothing(response.finish));
            }
            let text = format!("{text}{}", cut_off(&response.finish));
            return Ok(Answer::Text(text));
        }
        "assistant".clone_into(&mut response.message.role);
        self.make_ids_unique(&mut response.message.tool_calls);
        Ok(Answer::Calls(response.message))
    }

    fn request(&self, messages: Vec<Message>) -> Request {
        Request {
            model: self.settings.model.clone(),
            messages,
            tools: Vec::new(),
            max_output_tokens: self.settings.max_output_tokens,
            temperature: self.settings.temperature,
        }
    }

    /// The answer; none when the request was too large, and the next one may be half as large.
    fn complete(&mut self, request: &Request) -> Result<Option<Response>, Failure> {
        let half = self.context.min(self.conversation.weight()) / 2;
        match self.run.complete(request) {
            Ok(response) => Ok(Some(response)),
            Err(failure) if failure.code == Failure::TOO_LARGE && half >= LEAST_CONTEXT => {
                self.run.warn(&format!("a request was too large, trying half of it: {failure}"));
                self.context = half;
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Some models give no ids, or the same one twice, which providers then refuse.
    fn make_ids_unique(&self, calls: &mut [ToolCall]) {
        let mut seen: Vec<String> = Vec::with_capacity(calls.len());
        for (place, call) in calls.iter_mut().enumerate() {
            if call.id.is_empty() || seen.contains(&call.id) {
                call.id = format!("call-{}-{place}", self.account.rounds() + 1);
            }
            seen.push(call.id.clone());
        }
    }

    /// Makes the calls that the model asks for, and puts the results into the conversation.
    fn make(&mut self, message: Message) -> Result<Next, Failure> {
        self.account.round(&message.text);
        let asked = message.tool_calls.clone();
        let mut answers: Vec<Option<ToolResult>> = vec![None; asked.len()];
        let mut arguments = Vec::with_capacity(asked.len());
        let mut circle = None;
        for (place, call) in asked.iter().enumerate() {
            let checked = self.toolbox.check(call);
            arguments.push(checked.as_ref().map_or_else(|_| call.arguments.clone(), Clone::clone));
            match self.repeats.verdict(&call.name, &arguments[place]) {
                Verdict::Make => answers[place] = checked.err(),
                Verdict::Refuse => answers[place] = Some(repeated(call)),
                Verdict::Circle => {
                    answers[place] = Some(repeated(call));
                    circle = Some(brief(call));
                }
            }
        }
        let call =
            |place: usize| ToolCall { arguments: arguments[place].clone(), ..asked[place].clone() };
        let places: Vec<usize> =
            (0..asked.len()).filter(|place| answers[*place].is_none()).collect();
        let calls: Vec<ToolCall> = places.iter().map(|place| call(*place)).collect();
        let announced = if calls.is_empty() { Ok(()) } else { self.announce(&calls) };
        // What goes to children may depend on nothing in the same answer, and takes longer: it comes last.
        let (to_children, to_tools): (Vec<usize>, Vec<usize>) =
            places.into_iter().partition(|place| children::is_one(&asked[*place].name));
        let calls: Vec<ToolCall> = to_tools.iter().map(|place| call(*place)).collect();
        let (made, mut interrupted) = match announced {
            Ok(()) => self.caller.make(|batch| self.run.call(batch), &self.toolbox, &calls),
            Err(failure) => (vec![Made::Untried; calls.len()], Some(failure)),
        };
        let mut all: Vec<Made> = answers
            .into_iter()
            .map(|answer| answer.map_or(Made::Untried, Made::Answered))
            .collect();
        for (place, made) in to_tools.into_iter().zip(made) {
            all[place] = made;
        }
        for place in to_children {
            if interrupted.is_some() {
                break;
            }
            match children::make(self.run, &call(place), self.settings.result_bytes) {
                Ok(result) => {
                    if result.is_ok() && children::brings_results(&asked[place].name) {
                        self.account.children(&result.content);
                    }
                    all[place] = Made::Answered(result);
                }
                Err(failure) => {
                    all[place] = Made::Unknown;
                    interrupted = Some(failure);
                }
            }
        }
        let mut results = Vec::with_capacity(asked.len());
        let mut lost = false;
        for (place, call) in asked.iter().enumerate() {
            self.account.call(call, &all[place], self.toolbox.may_change(&call.name));
            if let Made::Answered(result) = &mut all[place] {
                lost |= result.status == "interrupted";
                self.note_repetition(call, &arguments[place], result);
                results.push(self.tell(std::mem::take(result)));
            }
        }
        if let Some(failure) = interrupted {
            return Err(failure);
        }
        if lost {
            // A result that was cut short by a stop: better to know than to ask the model about it.
            self.check_stop()?;
        }
        self.conversation.round(message, results);
        self.keep()?;
        Ok(circle.map_or(Next::Round, Next::Circle))
    }

    /// Counts a failure, and adds a word to one that happens for the last time.
    fn note_repetition(&mut self, call: &ToolCall, arguments: &str, result: &mut ToolResult) {
        if result.is_ok() {
            self.repeats.worked(&call.name, arguments);
        } else if result.status != REPEATED
            && let Some(times) = self.repeats.failed(&call.name, arguments)
        {
            result.content.push_str(&format!(
                "\nThis same call has now failed {times} times and will not be made again. Do something else."
            ));
        }
    }

    /// The message that tells the model what a call gave.
    fn tell(&self, mut result: ToolResult) -> Message {
        result.content = shorten::middle(&result.content, self.settings.result_bytes);
        if result.is_ok() && result.content.is_empty() {
            "[ok, without output]".clone_into(&mut result.content);
        }
        if result.status == "trapped" {
            result.content.insert_str(0, "the tool crashed and gave no result: ");
        }
        Message::from(result)
    }

    fn announce(&self, calls: &[ToolCall]) -> Result<(), Failure> {
        let briefs: Vec<String> = calls.iter().take(3).map(brief).collect();
        let more = match calls.len().saturating_sub(3) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        self.lenient(self.run.progress(&format!(
            "round {}: {}{more}",
            self.account.rounds(),
            briefs.join(", ")
        )))
    }

    /// Leaves what was done so far with the host, in case that the run is ended by force.
    fn keep(&self) -> Result<(), Failure> {
        self.lenient(self.run.partial(self.account.summary().trim_end()))
    }

    /// Events are for people: a run does not fail when one cannot be published. A stop is heard.
    fn lenient(&self, published: Result<(), Failure>) -> Result<(), Failure> {
        match published {
            Err(failure) if !failure.is_interrupted() => {
                self.run.warn(&format!("an event could not be published: {failure}"));
                Ok(())
            }
            other => other,
        }
    }

    /// Asks once more, without tools, for what there is.
    fn wrap_up(&mut self, to_model: &str, to_people: &str) -> Result<String, Failure> {
        self.check_stop()?;
        self.lenient(self.run.progress("wrapping up"))?;
        self.conversation.say(prompt::wrap_up(to_model));
        let response = loop {
            self.conversation.fit(self.context);
            if let Some(response) =
                self.complete(&self.request(self.conversation.plain_messages()))?
            {
                break response;
            }
        };
        let words = response.message.text.trim();
        let (words, cut) = if words.is_empty() {
            (
                format!(
                    "The model gave no final answer. Done so far: {}",
                    self.account.summary().trim_end()
                ),
                "",
            )
        } else {
            (words.to_owned(), cut_off(&response.finish))
        };
        Ok(format!(
            "{words}{cut}\n\n[This run was ended early: {to_people}. The task may not be finished.]"
        ))
    }

    /// The end after a soft stop: what there is, and nothing new.
    fn stopped(&self, failure: &Failure) -> String {
        let who = match &failure.stop {
            Some(stop) => format!("Stopped by {}: {}", stop.issuer, stop.message),
            None => failure.message.clone(),
        };
        let done = match self.account.summary() {
            nothing if nothing.is_empty() => "Nothing was done yet.\n".to_owned(),
            summary => format!("Done so far: {summary}"),
        };
        let goal = shorten::line(&prompt::task(&self.task), 200);
        let text =
            format!("{who}\n\n{done}\nNot finished: the task \"{goal}\" has no final answer.");
        if let Err(failure) = self.run.partial(&text) {
            self.run.warn(&format!("the partial result could not be kept: {failure}"));
        }
        text
    }

    /// The end when the model does not answer.
    fn failed(&self, failure: Failure) -> Failure {
        let done = self.account.summary();
        let place = match self.account.rounds() {
            0 => "at the start".to_owned(),
            1 => "after 1 round".to_owned(),
            rounds => format!("after {rounds} rounds"),
        };
        let mut message = format!("the assistant could not go on {place}: {}", failure.message);
        if !done.is_empty() {
            if let Err(failure) = self.run.partial(done.trim_end()) {
                self.run.warn(&format!("the partial result could not be kept: {failure}"));
            }
            message.push_str(&format!("\nDone before that: {}", done.trim_end()));
        }
        Failure { message, ..failure }
    }
}

/// The status of a result that stands for a call that was not made once more.
const REPEATED: &str = "repeated";

fn repeated(call: &ToolCall) -> ToolResult {
    ToolResult {
        id: call.id.clone(),
        status: REPEATED.to_owned(),
        content: "this same call has failed too often and was not made again; do something else, or answer with what \
            you have"
            .to_owned(),
    }
}

/// What to add to an answer that did not end by itself.
fn cut_off(finish: &str) -> &'static str {
    match finish {
        "length" => {
            "\n\n[The answer was cut off here: it reached the model's limit for one answer.]"
        }
        "content-filter" => "\n\n[The answer was cut off here by the provider's content filter.]",
        _ => "",
    }
}
