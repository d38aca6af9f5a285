//! What the first-party tools share: paths below the grants, files in pieces, and what bytes are as text.
//!
//! The tools never load a whole file. They open it as [`Regular`], [`look`] at its beginning, learn a [`Decoding`], and hand
//! every further piece to it. Lines are found before decoding ([`Decoding::newline`]): in all encodings known here
//! except UTF-16, the byte `\n` is never part of another character.

mod decoding;
mod folder;
mod json;
mod look;
pub mod paths;
mod pieces;

pub use decoding::{Decoding, Piece, Stream};
pub use folder::{Kind, entries};
pub use json::json_len;
pub use look::{Content, Whole, look};
pub use pieces::{CHUNK, Regular, Unreadable};

/// How many bytes of files one call reads at most. A host lets 1 GiB cross its door in one run unless it is told
/// otherwise, and ends a run that wants more, with all that it had found.
pub const MOST_READ: u64 = 768 << 20;

/// How many bytes from the beginning of a file are enough for [`look`].
pub const SAMPLE: usize = 64 << 10;
