//! What the host and a worker say to each other: frames of JSON behind their length, in four bytes, lowest first.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::message::{Failure, FailureCode, Message, ToolCall, ToolResult, ToolSpec};
use crate::model::{Request, Response};
use crate::sandbox::delegate::{DelegateOutcome, DelegateRequest, DelegationCapacity, UnitStatus};
use crate::sandbox::engine::{CodeKey, CodeSettings};
use crate::sandbox::limits::{LimitKind, Limits};
use crate::sandbox::meter::Tally;
use crate::sandbox::outcome::Trapped;
use crate::sandbox::reach::{Directory, Endpoint};
use crate::sandbox::upward::Task;
use crate::work::{Stop, StopKind};

/// Bytes of the length before a frame.
const PREFIX: usize = 4;

/// Room for what stands around the texts of a frame.
const AROUND: u64 = 1 << 20;

/// How much longer a text can become as JSON, where each of its bytes is written as `\u0000`.
const ESCAPED: u64 = 6;

/// The longest frame of all.
const LONGEST: u64 = 1 << 30;

/// What a worker is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum ToWorker {
    /// The first frame; the code follows it as plain bytes.
    Start(Box<Beginning>),
    /// The run is stopped. At most one of each kind.
    Stop(Halt),
    /// What a call came to.
    Answer(Box<Answered>),
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum FromWorker {
    /// The guest is entered next.
    Started,
    /// The guest asks for something.
    Call(Asking),
    /// The guest does not wait for that call any more. It is answered all the same, once nothing of it is left.
    Cancel {
        /// Which call.
        call: u64,
    },
    /// A line for the log.
    Log {
        /// One of the WIT's levels.
        level: String,
        /// The line.
        message: String,
    },
    /// What the guest is doing.
    Doing {
        /// The call that it is in, or `computing`.
        what: String,
        /// What it has used.
        used: Tally,
    },
    /// The run has ended. The last frame.
    Ended(Box<Ended>),
}

/// What a worker is started with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Beginning {
    /// For which engine the code is.
    pub(super) code: CodeSettings,
    /// What that must come to. It differs when the worker is another version of the program.
    pub(super) key: CodeKey,
    /// Bytes of the code.
    pub(super) code_bytes: u64,
    /// What to do with it.
    pub(super) errand: Errand,
    pub(super) limits: Limits,
    /// Bytes of memory that the process may have.
    pub(super) memory: u64,
    /// Seconds of processor time that it may use.
    pub(super) processor_seconds: Option<u64>,
    pub(super) directories: Vec<Directory>,
    pub(super) network: Vec<Endpoint>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) configuration: BTreeMap<String, String>,
    /// Certificates that connections trust.
    pub(super) roots: Vec<Vec<u8>>,
    /// Whether the host is asked for the addresses of names.
    pub(super) asks_for_names: bool,
    /// A soft stop that was there before the worker.
    pub(super) stop: Option<Halt>,
}

/// The one call that a worker makes of its component.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::sandbox) enum Errand {
    /// An agent is run.
    Run(Task),
    /// A tool component says which tools it has.
    Describe,
    /// A tool is called.
    Call {
        /// The tool, by its name inside the component.
        name: String,
        /// Its arguments.
        arguments: String,
    },
}

/// A stop on its way. Its grace stays with the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Halt {
    /// `soft` or `hard`.
    pub(super) kind: String,
    pub(super) message: String,
    pub(super) issuer: String,
}

impl Halt {
    pub(super) fn of(stop: &Stop) -> Halt {
        Halt {
            kind: stop.kind().to_string(),
            message: stop.message().to_owned(),
            issuer: stop.issuer().to_owned(),
        }
    }

    pub(super) fn into_stop(self) -> Stop {
        if self.kind == StopKind::Soft.to_string() {
            Stop::soft(self.issuer, self.message, crate::work::Grace::Never)
        } else {
            Stop::hard(self.issuer, self.message)
        }
    }
}

/// A call of the guest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Asking {
    /// Its number, which no other call of this worker has.
    pub(super) call: u64,
    pub(super) ask: Ask,
    /// What the guest has used so far.
    pub(super) used: Tally,
    /// Whether the worker knew of a stop when the call was made.
    pub(super) stopped: bool,
}

/// What a guest can ask of the side above.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::sandbox) enum Ask {
    Checkpoint { name: String },
    Complete(Asked),
    Tools,
    CallTool(ToolCall),
    History { limit: u32 },
    Emit { kind: String, payload: String },
    MemoryGet { key: String },
    MemorySet { key: String, value: Vec<u8> },
    MemoryDelete { key: String },
    MemoryKeys { prefix: String },
    Capacity,
    Delegate(DelegateRequest),
    Delegations { ids: Vec<String> },
    DelegationEnded { ids: Vec<String> },
    StopDelegations { ids: Vec<String>, message: String },
    Secret { name: String },
    LookUp { host: String },
}

/// A model request. JSON has no word for a temperature that is no number, so its bits are sent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::sandbox) struct Asked {
    model: Option<String>,
    messages: Vec<Message>,
    tools: Vec<ToolSpec>,
    max_output_tokens: Option<u32>,
    temperature: Option<u64>,
}

impl From<Request> for Asked {
    fn from(request: Request) -> Asked {
        let Request { model, messages, tools, max_output_tokens, temperature } = request;
        let temperature = temperature.map(f64::to_bits);
        Asked { model, messages, tools, max_output_tokens, temperature }
    }
}

impl From<Asked> for Request {
    fn from(asked: Asked) -> Request {
        let Asked { model, messages, tools, max_output_tokens, temperature } = asked;
        let temperature = temperature.map(f64::from_bits);
        Request { model, messages, tools, max_output_tokens, temperature }
    }
}

/// The answer to a call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Answered {
    pub(super) call: u64,
    pub(super) answer: Result<Reply, Failure>,
    /// Tokens that the run has used in all.
    pub(super) tokens: u64,
    /// Fuel that went to others since the last answer, and fuel that came back.
    pub(super) fuel: (u64, u64),
}

/// Makes the value of an answer, and of each value the one form that it has there.
macro_rules! replies {
    ($($name:ident($value:ty)),* $(,)?) => {
        /// What a call gave.
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub(in crate::sandbox) enum Reply {
            $($name($value)),*
        }

        $(
            impl From<$value> for Reply {
                fn from(value: $value) -> Reply {
                    Reply::$name(value)
                }
            }

            impl TryFrom<Reply> for $value {
                type Error = Failure;

                fn try_from(reply: Reply) -> Result<$value, Failure> {
                    #[allow(clippy::wildcard_enum_match_arm, reason = "any other reply is as wrong as the next")]
                    match reply {
                        Reply::$name(value) => Ok(value),
                        _ => Err(Failure::new(FailureCode::Failed, "the host gave the answer to another call")),
                    }
                }
            }
        )*
    };
}

replies! {
    Nothing(()),
    Text(String),
    Texts(Vec<String>),
    Bytes(Option<Vec<u8>>),
    Number(u32),
    Tools(Vec<ToolSpec>),
    ToolResult(ToolResult),
    Messages(Vec<Message>),
    Response(Response),
    Capacity(DelegationCapacity),
    Outcome(DelegateOutcome),
    Unit(UnitStatus),
    Units(Vec<UnitStatus>),
    Addresses(Vec<IpAddr>),
}

/// How a run ended in its worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Ended {
    pub(super) ending: Ending,
    pub(super) used: Tally,
    /// The limits that it came up against.
    pub(super) reached: Vec<LimitKind>,
}

/// The outcome of a run, as its worker tells it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ending {
    Completed(Said),
    Failed(Failure),
    /// With what the guest returned all the same, unless the stop was hard.
    Interrupted(Option<Said>),
    Limit(LimitKind),
    Trapped(Trapped),
    NoPlace,
    NotStarted(String),
    /// The host's own code failed in the worker.
    Panicked(String),
}

/// What a run gave.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::sandbox) enum Said {
    Text(String),
    Tools(Vec<ToolSpec>),
}

/// What a run can give, in the form that it has on its way.
pub(in crate::sandbox) trait Sayable: Sized {
    /// As it is sent.
    fn into_said(self) -> Said;
    /// As it was meant; none when it is something else.
    fn from_said(said: Said) -> Option<Self>;
}

impl Sayable for String {
    fn into_said(self) -> Said {
        Said::Text(self)
    }

    fn from_said(said: Said) -> Option<String> {
        match said {
            Said::Text(text) => Some(text),
            Said::Tools(_) => None,
        }
    }
}

impl Sayable for Vec<ToolSpec> {
    fn into_said(self) -> Said {
        Said::Tools(self)
    }

    fn from_said(said: Said) -> Option<Vec<ToolSpec>> {
        match said {
            Said::Tools(tools) => Some(tools),
            Said::Text(_) => None,
        }
    }
}

/// The longest frame of a run with those limits.
pub(super) fn longest(limits: &Limits) -> usize {
    let text = limits.call_bytes.max(limits.output_bytes).max(limits.log_bytes);
    let most = text.saturating_mul(ESCAPED).saturating_add(AROUND).min(LONGEST);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// A frame as it is sent.
pub(super) fn encode(said: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; PREFIX];
    serde_json::to_writer(&mut frame, said)?;
    let length = u32::try_from(frame.len() - PREFIX)
        .map_err(|_| io::Error::other("a frame of more than 4 GiB"))?;
    frame[..PREFIX].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// What the bytes of a frame say.
pub(super) fn decode<T: DeserializeOwned>(frame: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(frame)?)
}

/// The next frame; none at the end of the stream. A frame of more than `most` bytes is an error, and is not read.
pub(super) async fn read(
    from: &mut (impl AsyncRead + Unpin),
    most: usize,
) -> io::Result<Option<Vec<u8>>> {
    let mut prefix = [0; PREFIX];
    if from.read(&mut prefix[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut prefix[1..]).await?;
    let length = length(prefix, most)?;
    let mut frame = Vec::new();
    if from.take(length as u64).read_to_end(&mut frame).await? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame))
}

/// The same for who may wait.
pub(super) fn read_now(from: &mut impl Read, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut prefix = [0; PREFIX];
    if from.read(&mut prefix[..1])? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut prefix[1..])?;
    let length = length(prefix, most)?;
    let mut frame = Vec::new();
    if from.take(length as u64).read_to_end(&mut frame)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame))
}

fn length(prefix: [u8; PREFIX], most: usize) -> io::Result<usize> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length > most {
        let words = format!("a frame of {length} bytes, where {most} are the most");
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    Ok(length)
}

/// Whether a frame is of that type, by its first bytes. A worker of ours always says the type first.
pub(super) fn is_of_type(frame: &[u8], name: &str) -> bool {
    let rest = frame.strip_prefix(b"{\"type\":\"".as_slice());
    rest.and_then(|rest| rest.strip_prefix(name.as_bytes()))
        .is_some_and(|rest| rest.starts_with(b"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_frame_survives_the_way() {
        let stop = Stop::hard("user", "ä \"quoted\"");
        let frame = encode(&ToWorker::Stop(Halt::of(&stop))).unwrap();
        let read_back = read(&mut &frame[..], 1_000).await.unwrap().unwrap();
        assert_eq!(read_now(&mut &frame[..], 1_000).unwrap().unwrap(), read_back);
        assert!(is_of_type(&read_back, "stop") && !is_of_type(&read_back, "sto"));
        let ToWorker::Stop(halt) = decode(&read_back).unwrap() else { panic!("no stop") };
        assert_eq!(halt.into_stop(), stop);
    }

    #[tokio::test]
    async fn the_end_is_told_from_a_frame_that_was_cut_short() {
        assert!(read(&mut &b""[..], 10).await.unwrap().is_none());
        for cut in [&b"\x05"[..], b"\x05\0\0\0", b"\x05\0\0\0abc"] {
            let error = read(&mut &*cut, 10).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{cut:?}");
            assert_eq!(read_now(&mut &*cut, 10).unwrap_err().kind(), error.kind(), "{cut:?}");
        }
    }

    #[tokio::test]
    async fn a_frame_over_the_bound_is_not_read() {
        let mut rest = &b"\xff\xff\xff\xffabc"[..];
        let error = read(&mut rest, 10).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(rest, b"abc");
    }

    #[test]
    fn a_temperature_that_is_no_number_arrives_as_one() {
        let request = Request { temperature: Some(f64::NAN), ..Request::default() };
        let frame = serde_json::to_vec(&Asked::from(request)).unwrap();
        let back: Request = decode::<Asked>(&frame).unwrap().into();
        assert!(back.temperature.is_some_and(f64::is_nan));
    }
}
