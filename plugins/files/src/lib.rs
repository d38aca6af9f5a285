//! The tools `list`, `read`, `search` and `write`: everything that an agent does with files.
//!
//! A tool sees only the directories that its run was granted, under names such as `/work`. Whatever a tool leaves
//! out (hidden and ignored files, binary files, what did not fit) it says, with a way to get it.

mod filter;
mod list;
mod matching;
mod read;
mod search;
mod time;
mod walk;
mod write;

pub use list::List;
pub use read::Read;
pub use search::Search;
pub use write::Write;

checkrein_guest::tools!(List, Read, Search, Write);
