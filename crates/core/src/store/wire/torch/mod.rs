//! The protocol of PyTorch's `TCPStore`, as its versions 2.5 and later speak it: opcodes, no frames, no refusals.
//!
//! A server feeds a [`Decoder`] and answers with [`encode_reply`], [`encode_pong`] and [`encode_cancelled`]; what has no
//! encoding, above all a refusal, it answers by closing. A client writes with [`encode_request`] and reads each answer
//! with an [`Answer`]. Both go by docs/wire.md, "The store: PyTorch's words".

mod answer;
mod decode;
mod encode;
mod number;
mod reply;
mod scan;
#[cfg(test)]
mod tests;

pub use answer::Answer;
pub use decode::{Decoder, Message};
pub use encode::{encode_cancel, encode_ping, encode_request, encode_validate};
pub use number::{MAGIC, PROBE, STOP_WAITING, WAIT_CANCELLED};
pub use reply::{encode_cancelled, encode_pong, encode_popped, encode_reply};
