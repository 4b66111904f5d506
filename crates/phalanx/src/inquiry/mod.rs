//! Who asks a rank how it stands is answered, by one thread that sleeps until somebody does. The words are those of HTTP; the doors are
//! a socket on this host for this user, and TCP for Prometheus where that is asked for.

mod desk;
mod door;
mod name;
mod neighbours;
mod office;
mod request;
mod service;
mod visit;
mod visitor;

use door::{Door, Renewal};
pub use neighbours::{Neighbour, neighbours};
pub(crate) use neighbours::{TRACE_PATH, ask};
pub(crate) use office::Office;
pub(crate) use service::Service;
pub(crate) use visit::Said;
