//! Host memory of Phalanx: the one home of host-memory `unsafe`.
