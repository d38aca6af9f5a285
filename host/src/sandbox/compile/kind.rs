//! Telling a component from what people hand over by mistake, by its first bytes.

use std::fmt;

/// Every WebAssembly binary starts with it.
const MAGIC: &[u8; 4] = b"\0asm";

/// How much of the start is looked at to tell text from noise.
const GLANCE: usize = 512;

/// What the bytes are, when they are no component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// No bytes at all.
    Nothing,
    /// A core WebAssembly module.
    CoreModule,
    /// Text, such as the text format of WebAssembly or a web page with an error.
    Text,
    /// The start of a WebAssembly binary, and then nothing.
    Truncated,
    /// Something else.
    Unknown,
}

/// Looks at the first bytes: `Err` with what they are when they do not start a component.
pub(super) fn check(bytes: &[u8]) -> Result<(), Found> {
    if bytes.is_empty() {
        return Err(Found::Nothing);
    }
    if let Some(rest) = bytes.strip_prefix(MAGIC) {
        return match rest {
            [_, _, 1, 0, ..] => Ok(()),
            [_, _, 0, 0, ..] => Err(Found::CoreModule),
            [_, _, _, _, ..] => Err(Found::Unknown),
            _ => Err(Found::Truncated),
        };
    }
    if MAGIC.starts_with(bytes) {
        return Err(Found::Truncated);
    }
    let start = &bytes[..bytes.len().min(GLANCE)];
    let readable = match std::str::from_utf8(start) {
        Ok(text) => text,
        // A character cut in two at the end of the glance is no sign of noise.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or("")
        }
        Err(_) => return Err(Found::Unknown),
    };
    let is_text =
        !readable.is_empty() && !readable.chars().any(|c| c.is_control() && !c.is_whitespace());
    Err(if is_text { Found::Text } else { Found::Unknown })
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Found::Nothing => "it is empty: check that the build wrote it",
            Found::CoreModule => {
                "it is a core WebAssembly module: build for wasm32-wasip2, or wrap it with `wasm-tools component new`"
            }
            Found::Text => {
                "it is text: if it is the WebAssembly text format, make a binary of it with `wasm-tools parse`"
            }
            Found::Truncated => "it ends within the first 8 bytes: build or download it again",
            Found::Unknown => "it is no WebAssembly at all: give the .wasm file of a component",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_component_is_named() {
        let check = |bytes: &[u8]| check(bytes).err();
        assert_eq!(check(b""), Some(Found::Nothing));
        assert_eq!(check(b"\0a"), Some(Found::Truncated));
        assert_eq!(check(b"\0asm\x0d\0"), Some(Found::Truncated));
        assert_eq!(check(b"\0asm\x01\0\0\0"), Some(Found::CoreModule));
        assert_eq!(check(b"\0asm\x01\0\x07\0"), Some(Found::Unknown));
        assert_eq!(check(b"\0asm\x0d\0\x01\0"), None);
        assert_eq!(check(b"(component)\n"), Some(Found::Text));
        assert_eq!(check("ü".repeat(600).as_bytes()), Some(Found::Text));
        assert_eq!(check(&["x".repeat(511), "ü".into()].concat().into_bytes()), Some(Found::Text));
        assert_eq!(check(b"\x7fELF\x02\x01\x01\0"), Some(Found::Unknown));
        assert_eq!(check(&[0xff; 64]), Some(Found::Unknown));
        assert_eq!(check(&[0; 64]), Some(Found::Unknown));
    }
}
