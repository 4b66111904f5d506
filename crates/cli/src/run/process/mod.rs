//! Processes as the kernel shows them: signals, descendants, cores, memory. Not what any of them is for.

pub(super) mod cores;
pub(super) mod descendants;
pub(super) mod exit;
pub(super) mod memory;
pub(super) mod signals;
