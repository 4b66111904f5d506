//! Our own frames: every request with an answer, waiting reads, refusals that say why, and cancels.
//!
//! A frame is a length, a kind and a body. A connection has one request under way at a time. Each request has one answer;
//! each cancel has one, [`Answer::Cancelled`], always: where the request was answered before the cancel came, both answers
//! come in that order, and else the request has none. docs/wire.md, "The store: our frames", holds the layout.

mod answer;
mod field;
mod frame;
mod kind;
mod refusal;
mod request;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Answers, encode_answer};
pub use request::{Decoder, Message, encode_cancel, encode_request};
