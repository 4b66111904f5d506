//! Processes as the kernel shows them: signals, descendants, cores, memory. Not what any of them is for.

pub(crate) mod cores;
pub(super) mod descendants;
pub(crate) mod exit;
pub(super) mod memory;
pub(crate) mod signals;
