//! A store served to others: one thread with a clerk, any number of clients, two dialects, and nobody let in who does not belong.
//!
//! [`StoreServer`] is the handle. Behind it a `reactor` takes turns: `connection`s say what came over their `line`, the
//! `greeting` finds out who they are, the `gate` whether they may be, and the `clerk` tells them, beside the turns because
//! that takes long; then `torch_speech` or `native_speech` takes requests to the `desk`, where core's [`Table`](phalanx_core::store::Table) answers. Each turn everything is bounded: a
//! client that floods, stalls or says nothing costs the others nothing but its share.
//!
//! Two rules where the protocols leave a choice. A client of PyTorch's protocol that waits may go on to ask for what is
//! answered at once, and has these answers before that of its wait; a second wait ends the connection. A client of ours
//! that waits may only cancel.

mod clerk;
mod connection;
mod counts;
mod desk;
mod entrance;
mod gate;
mod greeting;
mod handle;
mod inbox;
mod ledger;
mod line;
mod listener;
mod native_speech;
mod newcomers;
mod options;
mod outbox;
mod reactor;
mod roster;
mod socket;
mod torch_speech;
mod vigil;

pub use counts::{Counts, Rejection};
pub use handle::StoreServer;
pub use options::ServerOptions;
pub use roster::Seat;
