//! Checks of the house itself: who may know whom, how files begin, what is spawned where, what is frozen.

mod arrows;
mod bindings;
mod files;
mod frozen;
mod licences;
mod source;
mod walk;
