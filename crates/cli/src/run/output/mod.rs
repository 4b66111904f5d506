//! What ranks print: on its way to the terminal and to files, line by line, and the end of it kept for the verdict.

mod file;
mod lines;
mod pump;
mod screen;
mod tail;

pub(super) use file::{LogFile, make_room};
pub(super) use pump::{Output, Source, Stream};
pub(super) use tail::{Panic, Remains};
