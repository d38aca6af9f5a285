//! The lines.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::archive::{Archive, ArchiveError};
use crate::ids::SessionId;
use crate::store::{EventRow, MessageRow, SessionRow, UnitRow, UnitState};

const FORMAT: &str = "checkrein-session";
const VERSION: u32 = 1;

/// Numbers are below it, so that every reader of JSON has them whole.
const NUMBERS: u64 = 1 << 53;

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Type {
    Session,
    Message,
    Event,
    Memory,
    Unit,
    End,
}

#[derive(Deserialize)]
struct Typed {
    r#type: Type,
}

/// What is looked at before anything else: all that follows is what that version says.
#[derive(Deserialize)]
struct Which {
    format: String,
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Head {
    r#type: Type,
    format: String,
    version: u32,
    session: SessionId,
    agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings_text: Option<String>,
    created_ms: u64,
    updated_ms: u64,
    generation: u64,
    first_seq: u64,
    last_seq: u64,
    first_message: u64,
    messages: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Message {
    r#type: Type,
    number: u64,
    at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Event {
    r#type: Type,
    seq: u64,
    at_ms: u64,
    run: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Memory {
    r#type: Type,
    key: String,
    value: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Unit {
    r#type: Type,
    unit: u64,
    state: State,
    ended: u64,
    #[serde(default)]
    deliveries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    children: Vec<Child>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_text: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Child {
    task: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Accepted,
    Ended,
    Acknowledged,
}

#[derive(Serialize, Deserialize)]
struct End {
    r#type: Type,
    lines: u64,
}

/// A text as a line has it: as the JSON that it is, or as a string, where it is none or would not be one line.
fn said(text: &str) -> (Option<Box<RawValue>>, Option<String>) {
    // A value `null` would read as if there was none.
    let plain = || (None, Some(text.to_owned()));
    if text.contains(['\n', '\r']) || text.trim() != text || text == "null" {
        return plain();
    }
    match serde_json::from_str::<Box<RawValue>>(text) {
        Ok(value) => (Some(value), None),
        Err(_) => plain(),
    }
}

/// The text again.
fn heard(value: Option<Box<RawValue>>, text: Option<String>) -> Option<Arc<str>> {
    match (value, text) {
        (Some(value), None) => Some(value.get().into()),
        (None, Some(text)) => Some(text.into()),
        (None, None) | (Some(_), Some(_)) => None,
    }
}

pub(super) fn write(archive: &Archive, mut out: impl Write) -> io::Result<()> {
    let lines = (0..).map_while(|at| line(archive, at));
    for line in lines {
        out.write_all(&line?)?;
    }
    out.flush()
}

/// The line at that place, from 0; none after the last one.
pub(super) fn line(archive: &Archive, at: usize) -> Option<io::Result<Vec<u8>>> {
    let Some(at) = at.checked_sub(1) else { return Some(head(archive)) };
    if let Some(message) = archive.messages.get(at) {
        return Some(of_message(message));
    }
    let at = at - archive.messages.len();
    if let Some(event) = archive.events.get(at) {
        return Some(of_event(event));
    }
    let at = at - archive.events.len();
    if let Some((key, value)) = archive.memory.get(at) {
        let value = BASE64_STANDARD.encode(value);
        return Some(text(&Memory { r#type: Type::Memory, key: key.clone(), value }));
    }
    let at = at - archive.memory.len();
    if let Some(unit) = archive.units.get(at) {
        return Some(of_unit(unit));
    }
    let lines = archive.messages.len() + archive.events.len() + archive.memory.len();
    let lines = 1 + (lines + archive.units.len()) as u64;
    (at == archive.units.len()).then(|| text(&End { r#type: Type::End, lines }))
}

fn text(line: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

fn head(archive: &Archive) -> io::Result<Vec<u8>> {
    let session = &archive.session;
    let (settings, settings_text) = said(&session.settings);
    text(&Head {
        r#type: Type::Session,
        format: FORMAT.to_owned(),
        version: VERSION,
        session: session.id.clone(),
        agent: session.agent.clone(),
        settings,
        settings_text,
        created_ms: session.created_ms,
        updated_ms: session.updated_ms,
        generation: session.generation,
        first_seq: session.first_seq,
        last_seq: session.last_seq,
        first_message: archive.first_message,
        messages: archive.messages.len() as u64,
    })
}

fn of_message(message: &MessageRow) -> io::Result<Vec<u8>> {
    let (body, plain) = said(&message.body);
    let (number, at_ms) = (message.number, message.at_ms);
    text(&Message { r#type: Type::Message, number, at_ms, body, text: plain })
}

fn of_event(event: &EventRow) -> io::Result<Vec<u8>> {
    let (body, plain) = said(&event.body);
    let (seq, at_ms, run) = (event.seq, event.at_ms, Arc::clone(&event.run));
    text(&Event { r#type: Type::Event, seq, at_ms, run, body, text: plain })
}

fn of_unit(unit: &UnitRow) -> io::Result<Vec<u8>> {
    let (body, plain) = said(&unit.body);
    let (completion, completion_text) = unit.completion.as_deref().map_or((None, None), said);
    let child = |(task, body): &(u32, Arc<str>)| {
        let (body, text) = said(body);
        Child { task: *task, body, text }
    };
    text(&Unit {
        r#type: Type::Unit,
        unit: unit.unit,
        state: match unit.state {
            UnitState::Accepted => State::Accepted,
            UnitState::Ended => State::Ended,
            UnitState::Acknowledged => State::Acknowledged,
        },
        ended: unit.ended,
        deliveries: unit.deliveries,
        body,
        text: plain,
        children: unit.children.iter().map(child).collect(),
        completion,
        completion_text,
    })
}

pub(super) fn read(input: impl BufRead, most: u64) -> Result<Archive, ArchiveError> {
    let mut input = input.take(most.saturating_add(1));
    let mut reading =
        Reading { line: 0, last: Type::Session, archive: None, messages: 0, over: false };
    let mut bytes = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line)?;
        bytes += read as u64;
        if bytes > most {
            return Err(ArchiveError::TooLong(most));
        }
        if read == 0 {
            break;
        }
        reading.line += 1;
        let at = reading.line;
        reading.take(&line).map_err(|why| ArchiveError::Line { line: at, why })?;
    }
    let line = reading.line + 1;
    match reading.archive {
        Some(archive) if reading.over => Ok(archive),
        _ => {
            let why = "the line `end` is missing: this is not the whole of it".to_owned();
            Err(ArchiveError::Line { line, why })
        }
    }
}

/// Lines on their way to a session.
struct Reading {
    line: u64,
    last: Type,
    archive: Option<Archive>,
    /// Messages that the first line says there are.
    messages: u64,
    over: bool,
}

impl Reading {
    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
        let Typed { r#type } = parsed(line)?;
        if self.over {
            return Err("there is more after the line `end`".to_owned());
        }
        let Some(archive) = &mut self.archive else {
            let (archive, messages) = begun(line, r#type)?;
            self.archive = Some(archive);
            self.messages = messages;
            return Ok(());
        };
        if r#type < self.last || r#type == Type::Session {
            return Err(
                "it is not in its place: the order is session, message, event, memory, unit, end"
                    .to_owned(),
            );
        }
        self.last = r#type;
        match r#type {
            Type::Session => {}
            Type::Message => message(archive, parsed(line)?)?,
            Type::Event => event(archive, parsed(line)?)?,
            Type::Memory => memory(archive, parsed(line)?)?,
            Type::Unit => unit(archive, parsed(line)?)?,
            Type::End => {
                let End { lines, .. } = parsed(line)?;
                if lines + 1 != self.line {
                    return Err(format!("there were {lines} lines before it when it was written"));
                }
                whole(archive, self.messages)?;
                self.over = true;
            }
        }
        Ok(())
    }
}

fn parsed<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| error.to_string())
}

fn begun(line: &str, r#type: Type) -> Result<(Archive, u64), String> {
    if r#type != Type::Session {
        return Err("it has to be the line `session`".to_owned());
    }
    let Which { format, version } = parsed(line)?;
    if format != FORMAT {
        return Err(format!("the format is `{format}`, and not `{FORMAT}`"));
    }
    if version != VERSION {
        return Err(format!("the version is {version}, and this program knows {VERSION}"));
    }
    let head: Head = parsed(line)?;
    let numbers =
        [head.generation, head.first_seq, head.last_seq, head.first_message, head.messages];
    if numbers.iter().any(|number| *number >= NUMBERS) {
        return Err("a number is too large".to_owned());
    }
    if head.first_seq == 0 || head.first_message == 0 || head.last_seq + 1 < head.first_seq {
        return Err("numbers of events and messages begin with 1".to_owned());
    }
    let settings =
        heard(head.settings, head.settings_text).ok_or("it has no settings, or two of them")?;
    let session = SessionRow {
        id: head.session,
        agent: head.agent,
        settings,
        created_ms: head.created_ms,
        updated_ms: head.updated_ms,
        generation: head.generation,
        running: None,
        first_seq: head.first_seq,
        last_seq: head.last_seq,
        messages: 0,
        message_bytes: 0,
        event_bytes: 0,
        units_open: 0,
        units_unread: 0,
    };
    let archive = Archive {
        session,
        first_message: head.first_message,
        messages: Vec::new(),
        events: Vec::new(),
        memory: Vec::new(),
        units: Vec::new(),
    };
    Ok((archive, head.messages))
}

fn message(archive: &mut Archive, message: Message) -> Result<(), String> {
    let due = archive.first_message + archive.messages.len() as u64;
    if message.number != due {
        return Err(format!("it is message {}, and {due} comes next", message.number));
    }
    let body = heard(message.body, message.text).ok_or("it has no body, or two of them")?;
    archive.session.messages += 1;
    archive.session.message_bytes += body.len() as u64;
    archive.messages.push(MessageRow { number: message.number, at_ms: message.at_ms, body });
    Ok(())
}

fn event(archive: &mut Archive, event: Event) -> Result<(), String> {
    let due = archive.session.first_seq + archive.events.len() as u64;
    if event.seq != due {
        return Err(format!("it is event {}, and {due} comes next", event.seq));
    }
    let body = heard(event.body, event.text).ok_or("it has no body, or two of them")?;
    archive.session.event_bytes += body.len() as u64;
    archive.events.push(EventRow { seq: event.seq, at_ms: event.at_ms, run: event.run, body });
    Ok(())
}

fn memory(archive: &mut Archive, memory: Memory) -> Result<(), String> {
    if archive.memory.last().is_some_and(|(last, _)| *last >= memory.key) {
        return Err(format!("the key `{}` is not after the one before it", memory.key));
    }
    let value =
        BASE64_STANDARD.decode(&memory.value).map_err(|error| format!("its value: {error}"))?;
    archive.memory.push((memory.key, value));
    Ok(())
}

fn unit(archive: &mut Archive, unit: Unit) -> Result<(), String> {
    if archive.units.last().is_some_and(|last| last.unit >= unit.unit) || unit.unit >= NUMBERS {
        return Err(format!("unit {} is not after the one before it", unit.unit));
    }
    let body = heard(unit.body, unit.text).ok_or("it has no body, or two of them")?;
    let mut children: Vec<(u32, Arc<str>)> = Vec::new();
    for child in unit.children {
        if children.last().is_some_and(|(last, _)| *last >= child.task) {
            return Err(format!("child {} is not after the one before it", child.task));
        }
        let body = heard(child.body, child.text);
        let body = body.ok_or_else(|| format!("child {} has no body, or two", child.task))?;
        children.push((child.task, body));
    }
    let completion = heard(unit.completion, unit.completion_text);
    let state = match (unit.state, &completion, unit.ended) {
        (State::Accepted, None, 0) => UnitState::Accepted,
        (State::Ended, Some(_), 1..) => UnitState::Ended,
        (State::Acknowledged, Some(_), 1..) => UnitState::Acknowledged,
        (State::Accepted | State::Ended | State::Acknowledged, ..) => {
            return Err("its state, its completion and its place do not fit each other".to_owned());
        }
    };
    match state {
        UnitState::Accepted => archive.session.units_open += 1,
        UnitState::Ended => archive.session.units_unread += 1,
        UnitState::Acknowledged => {}
    }
    archive.units.push(UnitRow {
        unit: unit.unit,
        session: archive.session.id.clone(),
        state,
        body,
        children,
        completion,
        ended: unit.ended,
        deliveries: unit.deliveries,
    });
    Ok(())
}

/// Whether all is there that the first line says.
fn whole(archive: &Archive, messages: u64) -> Result<(), String> {
    if archive.session.messages != messages {
        let found = archive.session.messages;
        return Err(format!("there are {found} messages, and {messages} were written"));
    }
    let session = &archive.session;
    let events = session.last_seq + 1 - session.first_seq;
    if archive.events.len() as u64 != events {
        return Err(format!(
            "there are {} events, and {events} were written",
            archive.events.len()
        ));
    }
    let mut places: Vec<u64> = archive.units.iter().map(|unit| unit.ended).collect();
    places.sort_unstable();
    if places.windows(2).any(|pair| matches!(pair, [one, other] if one == other && *one > 0)) {
        return Err("two units have ended at the same place".to_owned());
    }
    Ok(())
}
