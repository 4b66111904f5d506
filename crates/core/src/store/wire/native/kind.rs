//! The numbers of frames and of refusals. They are never used again for something else.

pub(super) const SET: u8 = 1;
pub(super) const GET: u8 = 2;
pub(super) const WAIT: u8 = 3;
pub(super) const CHECK: u8 = 4;
pub(super) const ADD: u8 = 5;
pub(super) const COMPARE_SET: u8 = 6;
pub(super) const DELETE: u8 = 7;
pub(super) const APPEND: u8 = 8;
pub(super) const NUM_KEYS: u8 = 9;
pub(super) const LIST_KEYS: u8 = 10;
pub(super) const PUSH: u8 = 11;
pub(super) const POP: u8 = 12;
pub(super) const QUEUE_LEN: u8 = 13;
pub(super) const BARRIER: u8 = 14;
pub(super) const PING: u8 = 15;
pub(super) const CANCEL: u8 = 16;

pub(super) const DONE: u8 = 0x81;
pub(super) const FLAG: u8 = 0x82;
pub(super) const NUMBER: u8 = 0x83;
pub(super) const VALUES: u8 = 0x84;
pub(super) const KEYS: u8 = 0x85;
pub(super) const REFUSED: u8 = 0x86;
pub(super) const CANCELLED: u8 = 0x87;

pub(super) const KEY_TOO_LONG: u8 = 1;
pub(super) const VALUE_TOO_LONG: u8 = 2;
pub(super) const TOO_MANY_KEYS: u8 = 3;
pub(super) const MESSAGE_TOO_LONG: u8 = 4;
pub(super) const CLIENT_FULL: u8 = 5;
pub(super) const STORE_FULL: u8 = 6;
pub(super) const NOT_A_NUMBER: u8 = 7;
pub(super) const OVERFLOW: u8 = 8;
pub(super) const ARGUMENT: u8 = 9;
pub(super) const UNSUPPORTED: u8 = 10;
pub(super) const CLOSED: u8 = 11;
pub(super) const OTHER: u8 = 0;
