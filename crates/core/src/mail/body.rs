//! The bytes of a message: kept by the mail until its end, or lent by the thread that waits for it, which shows them at every
//! poll. What is lent is never copied but from and to the link, and moves only while it is shown.

use phalanx_mem::Buffer;

use super::Ticket;
use crate::player::Data;

/// Where the bytes of a message are, or the room for them.
#[derive(Debug)]
pub enum Body {
    /// With the mail.
    Owned(Buffer),
    /// With the thread that waits, this many.
    Lent(usize),
}

/// What the thread that polls has lent.
#[derive(Debug)]
pub struct Shown<'a, 'b> {
    /// The message that it waits for.
    pub ticket: Ticket,
    /// The input is what it sends, the output where it receives.
    pub data: &'a mut Data<'b>,
}

impl Body {
    pub(super) fn byte_len(&self) -> usize {
        match self {
            Body::Owned(buffer) => buffer.byte_len(),
            Body::Lent(byte_len) => *byte_len,
        }
    }

    /// The bytes to send; none while they are not shown.
    pub(super) fn bytes<'a>(&'a self, ticket: Ticket, shown: &'a Option<Shown<'_, '_>>) -> Option<&'a [u8]> {
        match self {
            Body::Owned(buffer) => Some(buffer.as_bytes()),
            Body::Lent(byte_len) => is_of(ticket, shown)?.data.input.get(..*byte_len),
        }
    }

    /// Where to receive; none while it is not shown.
    pub(super) fn room<'a>(&'a mut self, ticket: Ticket, shown: &'a mut Option<Shown<'_, '_>>) -> Option<&'a mut [u8]> {
        match self {
            Body::Owned(buffer) => Some(buffer.as_bytes_mut()),
            Body::Lent(byte_len) => {
                let shown = shown.as_mut().filter(|shown| shown.ticket == ticket)?;
                shown.data.output.get_mut(..*byte_len)
            }
        }
    }

    /// Whether it cannot move now, because it is lent by a thread that does not show it.
    pub(super) fn is_hidden(&self, ticket: Ticket, shown: &Option<Shown<'_, '_>>) -> bool {
        matches!(self, Body::Lent(_)) && is_of(ticket, shown).is_none()
    }

    /// The buffer to give back: none where the bytes were lent.
    pub(super) fn into_buffer(self) -> Option<Buffer> {
        match self {
            Body::Owned(buffer) => Some(buffer),
            Body::Lent(_) => None,
        }
    }

    /// The buffer to give back with a message in it that had come before. Where the room is lent it has the bytes, for
    /// whoever takes it to copy.
    pub(super) fn filled_with(self, bytes: Vec<u8>) -> Buffer {
        match self {
            Body::Owned(mut buffer) => {
                buffer.as_bytes_mut().copy_from_slice(&bytes);
                buffer
            }
            Body::Lent(_) => Buffer::from_vec(bytes),
        }
    }
}

fn is_of<'a, 'b, 'c>(ticket: Ticket, shown: &'a Option<Shown<'b, 'c>>) -> Option<&'a Shown<'b, 'c>> {
    shown.as_ref().filter(|shown| shown.ticket == ticket)
}
