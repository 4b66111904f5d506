//! The bytes of a pickle, taken from the front, with the place of each.

use super::Error;

#[derive(Debug)]
pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Scan<'a> {
        Scan { bytes, at: 0 }
    }

    /// Where the next byte stands.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    pub(super) fn byte(&mut self) -> Result<u8, Error> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| self.truncated())
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len()).ok_or_else(|| self.truncated())?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Text of a length that the pickle states: nothing is kept before it is there.
    pub(super) fn text(&mut self, len: u64) -> Result<&'a str, Error> {
        let offset = self.at;
        let len = usize::try_from(len).map_err(|_| self.truncated())?;
        let wrong = |_| Error::Malformed { what: "a text is not UTF-8", offset };
        std::str::from_utf8(self.take(len)?).map_err(wrong)
    }

    fn truncated(&self) -> Error {
        Error::Truncated { offset: self.bytes.len() }
    }
}
