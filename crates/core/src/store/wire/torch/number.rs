//! The numbers of the protocol: operations, and the bytes that answer them.

/// What a client says first, after the opcode 0.
pub const MAGIC: u32 = 0x3C85_F7CE;

/// A ping of this number asks whether the server also speaks our frames: it answers with the number's complement, PyTorch's
/// servers with the number. Clients of PyTorch ping with their process number, which is always smaller.
pub const PROBE: u32 = 0x5048_4C58;

/// What was waited for is there.
pub const STOP_WAITING: u8 = 0;

/// The answer to a cancel, always.
pub const WAIT_CANCELLED: u8 = 1;

pub(super) const READY: u8 = 0;
pub(super) const NOT_READY: u8 = 1;

pub(super) const VALIDATE: u8 = 0;
pub(super) const SET: u8 = 1;
pub(super) const COMPARE_SET: u8 = 2;
pub(super) const GET: u8 = 3;
pub(super) const ADD: u8 = 4;
pub(super) const CHECK: u8 = 5;
pub(super) const WAIT: u8 = 6;
pub(super) const NUM_KEYS: u8 = 7;
pub(super) const DELETE: u8 = 8;
pub(super) const APPEND: u8 = 9;
pub(super) const MULTI_GET: u8 = 10;
pub(super) const MULTI_SET: u8 = 11;
pub(super) const CANCEL_WAIT: u8 = 12;
pub(super) const PING: u8 = 13;
pub(super) const QUEUE_PUSH: u8 = 14;
pub(super) const QUEUE_POP: u8 = 15;
pub(super) const QUEUE_LEN: u8 = 16;
pub(super) const LIST_KEYS: u8 = 17;
pub(super) const BARRIER: u8 = 18;
