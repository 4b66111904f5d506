//! Operations of random kind, length and type in several groups of the same ranks, some asynchronous and many in flight,
//! while other threads send messages. A seed decides all of it, and what must come out.

mod act;
mod chatter;
mod collective;
mod company;
mod member;
mod messages;
mod plan;

pub(crate) use act::Act;
pub(crate) use collective::Collective;
pub(crate) use company::{many_short_worlds, soak};
pub(crate) use company::{part, seeds};
