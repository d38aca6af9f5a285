//! The report: what a survey found, in Markdown, as far as it got.
//!
//! A report starts with what is missing, if anything is, and a summary. Sections follow in the order in which people ask;
//! one that has nothing to say is left out, so that a small folder has a short report. Words and names that come from
//! files are escaped, and secrets were masked long before.

mod contents;
mod finds;
mod rest;
mod summary;

pub(crate) use summary::render;
