//! The guests that the build script has built, and guests that are written as text.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The bytes of a guest of `tests/guests`: `agent`, `tool`, `neighbour`, `bench-agent` or `bench-tool`. Of any other
/// name there are none.
pub fn guest(name: &str) -> &'static [u8] {
    match name {
        "agent" => include_bytes!(concat!(env!("OUT_DIR"), "/agent.wasm")),
        "bench-agent" => include_bytes!(concat!(env!("OUT_DIR"), "/bench-agent.wasm")),
        "bench-tool" => include_bytes!(concat!(env!("OUT_DIR"), "/bench-tool.wasm")),
        "neighbour" => include_bytes!(concat!(env!("OUT_DIR"), "/neighbour.wasm")),
        "tool" => include_bytes!(concat!(env!("OUT_DIR"), "/tool.wasm")),
        _ => &[],
    }
}

/// The component of `tests/guests/wat/NAME.wat`. Each line `;; PLACE` of it is replaced by what `put` has for that
/// place.
///
/// # Errors
///
/// When there is no such file or place, or the text is no component.
pub fn wat(name: &str, put: &[(&str, &str)]) -> Result<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests/wat");
    let read = |name: &str| {
        let path = folder.join(name).with_extension("wat");
        std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))
    };
    let mut text = read(name)?.replace(";; HEAD\n", &read("head")?);
    for (place, code) in put {
        let mark = format!(";; {place}\n");
        ensure!(text.contains(&mark), "{name}.wat has no place {place}");
        text = text.replace(&mark, &format!("{code}\n"));
    }
    wat::parse_str(&text).with_context(|| format!("{name}.wat is no component"))
}

/// What the guest `neighbour` answers to that number of rounds, worked out natively.
pub fn neighbour_answer(rounds: u64) -> String {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for round in 0..rounds {
        for byte in (sum ^ round).to_le_bytes() {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    format!("{sum:016x}")
}
