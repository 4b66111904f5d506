//! Reads the fields of a message whose end is known, one after the other.

use super::Malformed;

/// The bytes of a message that were not read yet.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Short(what))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub(super) fn i64(&mut self, what: &'static str) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array(what)?))
    }

    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool, Malformed> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Malformed::Value { what, value: value.into() }),
        }
    }

    /// Fails unless everything was read.
    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Trailing(self.rest.len())) }
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        self.take(N, what)?.try_into().map_err(|_| Malformed::Short(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_order_and_never_past_the_end() {
        let mut cursor = Cursor::new(&[1, 2, 0, 0, 0, 7]);
        assert_eq!(cursor.flag("flag"), Ok(true));
        assert_eq!(cursor.u32("number"), Ok(2));
        assert_eq!(cursor.u32("number"), Err(Malformed::Short("number")));
        assert_eq!(cursor.flag("flag"), Err(Malformed::Value { what: "flag", value: 7 }));
        assert_eq!(cursor.take(usize::MAX, "bytes"), Err(Malformed::Short("bytes")));
        assert_eq!(cursor.end(), Ok(()));
        assert_eq!(Cursor::new(&[1]).end(), Err(Malformed::Trailing(1)));
    }
}
