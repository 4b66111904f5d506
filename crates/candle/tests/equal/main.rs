//! Sharded and replicated training has the losses of one rank that does everything itself.

mod company;
mod modes;
mod policies;
mod shapes;
mod training;
