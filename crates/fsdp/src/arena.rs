//! The engine's buffers, handed out and taken back by purpose, and kept for the next. It does not know what is in them.

use phalanx_core::{Error, Group, Result};
use phalanx_mem::Buffer;

use crate::memory::{Bytes, Class, Memory};

/// Where buffers come from. What it keeps idle never makes a class hold more than it once needed at a time: where there is no room for
/// another buffer, the beginning of a longer one is lent, which counts as all of it until it is back.
#[derive(Debug)]
pub(crate) struct Arena {
    group: Group,
    memory: Memory,
    idle: Vec<(Class, Buffer)>,
    /// What is left of buffers whose beginning is lent.
    rests: Vec<Buffer>,
    /// Buffers in use for something else than they were made for: where they begin, and what that was.
    away: Vec<(usize, Class)>,
}

impl Arena {
    /// An arena of the group's own buffers: on one host its peers read them where they are.
    pub(crate) fn new(group: Group) -> Arena {
        Arena { group, memory: Memory::default(), idle: Vec::new(), rests: Vec::new(), away: Vec::new() }
    }

    pub(crate) fn memory(&self) -> Memory {
        self.memory
    }

    /// A buffer for what travels. It holds whatever its last user left in it.
    pub(crate) fn take(&mut self, class: Class, byte_len: usize) -> Result<Buffer> {
        if let Some(buffer) = self.reuse(class, byte_len).or_else(|| self.lend(class, byte_len)) {
            return Ok(buffer);
        }
        self.make_room(class, byte_len);
        let buffer = self.group.buffer(byte_len)?;
        self.memory.count(class, byte_len);
        Ok(buffer)
    }

    /// The same for what stays on this rank.
    pub(crate) fn take_own(&mut self, class: Class, byte_len: usize) -> Result<Buffer> {
        if let Some(buffer) = self.reuse(class, byte_len) {
            return Ok(buffer);
        }
        self.make_room(class, byte_len);
        let buffer = Buffer::try_zeroed(byte_len).map_err(|error| Error::setup("buffer", error))?;
        self.memory.count(class, byte_len);
        Ok(buffer)
    }

    /// Takes a buffer back to hand it out again, for what it was made for.
    pub(crate) fn give(&mut self, class: Class, mut buffer: Buffer) {
        if let Some(index) = self.rest_of(&buffer) {
            match buffer.join(self.rests.swap_remove(index)) {
                Ok(whole) => buffer = whole,
                // They are neighbours of two wholes by chance.
                Err((piece, rest)) => {
                    buffer = piece;
                    self.rests.push(rest);
                }
            }
        }
        let home = self.come_home(&buffer).unwrap_or(class);
        self.memory.forget(class, buffer.byte_len());
        let Bytes { current, peak, idle } = self.memory.of(home);
        // While it was away, another one may have been made in its place.
        if current + idle + buffer.byte_len() <= peak {
            self.memory.keep(home, buffer.byte_len());
            self.idle.push((home, buffer));
        }
    }

    /// Takes a buffer back that is not needed soon, so that others may have its memory meanwhile.
    pub(crate) fn free(&mut self, class: Class, buffer: Buffer) {
        self.come_home(&buffer);
        self.memory.forget(class, buffer.byte_len());
    }

    /// Says that a buffer in use is for something else now. It goes back to what it was made for: kept for anything else it would be missing
    /// there, and another one made each time.
    pub(crate) fn relabel(&mut self, from: Class, to: Class, buffer: &Buffer) {
        let home = self.come_home(buffer).unwrap_or(from);
        self.away.push((buffer.as_bytes().as_ptr().addr(), home));
        let rest = self.rest_of(buffer).map_or(0, |index| self.rests[index].byte_len());
        self.memory.forget(from, buffer.byte_len() + rest);
        self.memory.count(to, buffer.byte_len() + rest);
    }

    /// An idle buffer of this length.
    fn reuse(&mut self, class: Class, byte_len: usize) -> Option<Buffer> {
        let index = self.idle.iter().position(|(other, buffer)| *other == class && buffer.byte_len() == byte_len)?;
        let buffer = self.wake(index);
        self.memory.count(class, byte_len);
        Some(buffer)
    }

    /// The beginning of the shortest idle buffer that is longer, where there is no room for another.
    fn lend(&mut self, class: Class, byte_len: usize) -> Option<Buffer> {
        let Bytes { current, peak, idle } = self.memory.of(class);
        if byte_len == 0 || current + idle + byte_len <= peak {
            return None;
        }
        let longer = |(_, (other, buffer)): &(usize, &(Class, Buffer))| *other == class && buffer.byte_len() > byte_len;
        let shortest = self.idle.iter().enumerate().filter(longer).min_by_key(|(_, (_, buffer))| buffer.byte_len());
        let index = shortest.map(|(index, _)| index)?;
        let whole = self.wake(index);
        self.memory.count(class, whole.byte_len());
        let (piece, rest) = whole.split_at(byte_len).ok()?;
        self.rests.push(rest);
        Some(piece)
    }

    fn wake(&mut self, index: usize) -> Buffer {
        let (class, buffer) = self.idle.remove(index);
        self.memory.wake(class, buffer.byte_len());
        buffer
    }

    /// What a buffer was made for, where it was in use for something else until now.
    fn come_home(&mut self, buffer: &Buffer) -> Option<Class> {
        let begins = buffer.as_bytes().as_ptr().addr();
        let index = self.away.iter().position(|(start, _)| *start == begins)?;
        Some(self.away.swap_remove(index).1)
    }

    /// Which rest begins where this buffer ends.
    fn rest_of(&self, buffer: &Buffer) -> Option<usize> {
        let end = buffer.as_bytes().as_ptr_range().end;
        self.rests.iter().position(|rest| rest.as_bytes().as_ptr() == end)
    }

    /// Drops idle buffers, the shortest first, until one more of `byte_len` fits under what the class once held.
    fn make_room(&mut self, class: Class, byte_len: usize) {
        loop {
            let bytes = self.memory.of(class);
            let room = bytes.peak.max(bytes.current + byte_len);
            if bytes.current + bytes.idle + byte_len <= room {
                return;
            }
            let of_class = self.idle.iter().enumerate().filter(|(_, (other, _))| *other == class);
            match of_class.min_by_key(|(_, (_, buffer))| buffer.byte_len()).map(|(index, _)| index) {
                Some(index) => drop(self.wake(index)),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena() -> Arena {
        Arena::new(phalanx_comm::Threads::new(1).groups().expect("a world of one").remove(0))
    }

    #[test]
    fn nothing_is_kept_beyond_what_was_needed_at_a_time() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut arena = arena();
        let (mut held, mut made) = (Vec::<(Class, Buffer)>::new(), 0);
        for _ in 0..2000 {
            let class = [Class::Gathered, Class::Reducing][random.usize(..2)];
            if random.bool() && !held.is_empty() {
                let (class, buffer) = held.swap_remove(random.usize(..held.len()));
                arena.give(class, buffer);
            } else if held.len() < 5 {
                let byte_len = 100 * random.usize(1..6);
                let before = arena.memory().of(class);
                let mut buffer = arena.take(class, byte_len).expect("memory");
                assert_eq!(buffer.byte_len(), byte_len);
                buffer.as_bytes_mut().fill(1);
                held.push((class, buffer));
                made += usize::from(arena.memory().of(class).idle == before.idle);
            }
            for class in [Class::Gathered, Class::Reducing] {
                let of_class = held.iter().filter(|(other, _)| *other == class);
                let (count, lent) =
                    of_class.fold((0, 0), |(count, sum), (_, buffer)| (count + 1, sum + buffer.byte_len()));
                let bytes = arena.memory().of(class);
                assert!((lent..=500 * count).contains(&bytes.current), "{bytes:?}: {lent} of {count}");
                assert!(bytes.current + bytes.idle <= bytes.peak && bytes.peak <= 2500, "{bytes:?}");
            }
        }
        assert!(made < 200, "{made}");
        held.into_iter().for_each(|(class, buffer)| arena.give(class, buffer));
        assert!(arena.rests.is_empty());
    }

    #[test]
    fn a_short_buffer_is_the_beginning_of_a_long_one_and_no_second_one_is_made() {
        let mut arena = arena();
        let long = arena.take(Class::Gathered, 1000).expect("memory");
        let start = long.as_bytes().as_ptr();
        arena.give(Class::Gathered, long);
        for byte_len in [10, 1000, 999, 1] {
            let short = arena.take(Class::Gathered, byte_len).expect("memory");
            assert_eq!((short.byte_len(), short.as_bytes().as_ptr()), (byte_len, start));
            assert_eq!(arena.memory().of(Class::Gathered), Bytes { current: 1000, peak: 1000, idle: 0 });
            arena.give(Class::Gathered, short);
            assert_eq!(arena.memory().of(Class::Gathered), Bytes { current: 0, peak: 1000, idle: 1000 });
        }
        let short = arena.take(Class::Gathered, 10).expect("memory");
        arena.relabel(Class::Gathered, Class::Reducing, &short);
        assert_eq!((arena.memory().of(Class::Gathered).current, arena.memory().of(Class::Reducing).current), (0, 1000));
        arena.give(Class::Reducing, short);
        assert_eq!(arena.memory().of(Class::Reducing), Bytes { current: 0, peak: 1000, idle: 0 });
        assert_eq!(arena.memory().of(Class::Gathered), Bytes { current: 0, peak: 1000, idle: 1000 });
    }
}
