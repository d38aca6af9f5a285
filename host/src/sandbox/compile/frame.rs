//! What the host and its compiling child say to each other: a head in JSON behind its length, then plain bytes.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::sandbox::engine::{CodeKey, CodeSettings};

/// Starts every frame, so that a program that speaks something else is noticed at once.
const MAGIC: &[u8; 8] = b"ckrcomp1";

/// Bytes of a frame before its head: the magic and the length of the head.
pub(super) const PREFIX: usize = MAGIC.len() + 4;

/// The longest head. A message of the compiler inside one is cut to a fraction of it.
const LONGEST_HEAD: usize = 64 << 10;

/// The longest message of the compiler that is passed on.
const LONGEST_MESSAGE: usize = 4 << 10;

/// What the child is asked. The component follows.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// What to compile for.
    pub(super) code: CodeSettings,
    /// What that must come to. It differs when the child is another version of the program.
    pub(super) key: CodeKey,
    /// Bytes of memory that the child may have.
    pub(super) memory: u64,
    /// Seconds of processor time that the child may use.
    pub(super) cpu_seconds: u64,
    /// Bytes of the component.
    pub(super) component_bytes: u64,
}

/// What the child answers.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The code follows.
    Compiled {
        /// Bytes of it.
        code_bytes: u64,
    },
    /// No code.
    Refused(Refusal),
}

/// Why there is no code.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Refusal {
    /// The component is malformed.
    Invalid {
        /// Where.
        offset: Option<u64>,
        /// What the compiler says.
        message: String,
    },
    /// The component needs a proposal that is switched off.
    Unsupported {
        /// What the compiler says.
        message: String,
    },
    /// The compiler ran out of memory and could still say so.
    OutOfMemory,
    /// The child compiles for other engines than the host has.
    OtherVersion,
}

impl Refusal {
    /// Sorts an error of the compiler.
    pub(super) fn of(error: &wasmtime::Error) -> Refusal {
        let message = format!("{error:#}");
        if error.is::<wasmtime::OutOfMemory>() || message.contains("Cannot allocate memory") {
            return Refusal::OutOfMemory;
        }
        let (offset, mut message) = split_offset(message);
        if let Some(rest) = message.strip_prefix("failed to parse WebAssembly module: ") {
            message = rest.to_owned();
        }
        if message.len() > LONGEST_MESSAGE {
            message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
            message.push('…');
        }
        // The parser has no error type that tells these apart. A wording that is missed here only makes the error say
        // "not valid" instead of "not supported".
        let switched_off =
            ["not enabled", "must be enabled", "not supported without", "feature is required"];
        if switched_off.iter().any(|wording| message.contains(wording))
            || (message.contains("requires the") && message.contains("feature"))
        {
            return Refusal::Unsupported { message };
        }
        Refusal::Invalid { offset, message }
    }
}

/// Takes the parser's "(at offset 0x…)" off the end of its message.
fn split_offset(message: String) -> (Option<u64>, String) {
    let parsed = message.rsplit_once(" (at offset 0x").and_then(|(text, rest)| {
        let offset = u64::from_str_radix(rest.trim_end().strip_suffix(')')?, 16).ok()?;
        Some((offset, text.to_owned()))
    });
    match parsed {
        Some((offset, text)) => (Some(offset), text),
        None => (None, message),
    }
}

/// A frame with that head, up to where the plain bytes begin.
pub(super) fn encode(head: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(head)?;
    let length =
        u32::try_from(json.len()).map_err(|_| io::Error::other("a head of more than 4 GiB"))?;
    Ok([MAGIC.as_slice(), &length.to_le_bytes(), &json].concat())
}

/// The length of the head that follows that prefix.
pub(super) fn head_length(prefix: [u8; PREFIX]) -> io::Result<usize> {
    let [magic @ .., a, b, c, d] = prefix;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if magic != *MAGIC || length > LONGEST_HEAD {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "this is not how the compiling child speaks",
        ));
    }
    Ok(length)
}

/// The head in these bytes.
pub(super) fn decode<T: DeserializeOwned>(json: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(json)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives_the_way() {
        let head = Answer::Refused(Refusal::Invalid { offset: Some(7), message: "ü".into() });
        let frame = encode(&head).unwrap();
        let length = head_length(frame[..PREFIX].try_into().unwrap()).unwrap();
        assert_eq!(PREFIX + length, frame.len());
        assert_eq!(decode::<Answer>(&frame[PREFIX..]).unwrap(), head);
    }

    #[test]
    fn another_language_is_noticed() {
        assert!(head_length(*b"hello, world").is_err());
        let mut frame = encode(&Answer::Refused(Refusal::OtherVersion)).unwrap();
        frame[PREFIX - 1] = 0xff;
        assert!(head_length(frame[..PREFIX].try_into().unwrap()).is_err());
    }

    #[test]
    fn the_offset_is_taken_out_of_the_message() {
        assert_eq!(
            split_offset("bad thing (at offset 0x1f)".into()),
            (Some(31), "bad thing".into())
        );
        assert_eq!(
            split_offset("bad thing (at offset 0xzz)".into()),
            (None, "bad thing (at offset 0xzz)".into())
        );
        assert_eq!(split_offset("bad thing".into()), (None, "bad thing".into()));
    }
}
