//! The engine's buffers, handed out and taken back by purpose, and kept for the next of the same size. It does not know what is in them.

use phalanx_core::{Error, Group, Result};
use phalanx_mem::Buffer;

use crate::memory::{Class, Memory};

/// Where buffers come from. What it keeps idle never makes a class hold more than it once needed at a time.
#[derive(Debug)]
pub(crate) struct Arena {
    group: Group,
    memory: Memory,
    idle: Vec<(Class, Buffer)>,
}

impl Arena {
    /// An arena of the group's own buffers: on one host its peers read them where they are.
    pub(crate) fn new(group: Group) -> Arena {
        Arena { group, memory: Memory::default(), idle: Vec::new() }
    }

    pub(crate) fn memory(&self) -> Memory {
        self.memory
    }

    /// A buffer for what travels. It holds whatever its last user left in it.
    pub(crate) fn take(&mut self, class: Class, byte_len: usize) -> Result<Buffer> {
        self.find(class, byte_len, |group| group.buffer(byte_len))
    }

    /// The same for what stays on this rank.
    pub(crate) fn take_own(&mut self, class: Class, byte_len: usize) -> Result<Buffer> {
        self.find(class, byte_len, |_| Buffer::try_zeroed(byte_len).map_err(|error| Error::setup("buffer", error)))
    }

    /// Takes a buffer back to hand it out again.
    pub(crate) fn give(&mut self, class: Class, buffer: Buffer) {
        self.forget(class, buffer.byte_len());
        self.memory.class_mut(class).idle += buffer.byte_len();
        self.idle.push((class, buffer));
    }

    /// Says that a buffer in use is for something else now.
    pub(crate) fn relabel(&mut self, from: Class, to: Class, byte_len: usize) {
        self.forget(from, byte_len);
        self.count(to, byte_len);
    }

    fn find(&mut self, class: Class, byte_len: usize, make: impl FnOnce(&Group) -> Result<Buffer>) -> Result<Buffer> {
        let fits = |(other, buffer): &(Class, Buffer)| *other == class && buffer.byte_len() == byte_len;
        let buffer = match self.idle.iter().position(fits) {
            Some(index) => self.reuse(index),
            None => {
                self.make_room(class, byte_len);
                make(&self.group)?
            }
        };
        self.count(class, byte_len);
        Ok(buffer)
    }

    fn reuse(&mut self, index: usize) -> Buffer {
        let (class, buffer) = self.idle.remove(index);
        self.memory.class_mut(class).idle -= buffer.byte_len();
        buffer
    }

    /// Drops idle buffers, the longest idle first, until one more of `byte_len` fits under what the class once held.
    fn make_room(&mut self, class: Class, byte_len: usize) {
        loop {
            let bytes = self.memory.of(class);
            let room = bytes.peak.max(bytes.current + byte_len);
            let oldest = self.idle.iter().position(|(other, _)| *other == class);
            match oldest.filter(|_| bytes.current + bytes.idle + byte_len > room) {
                Some(index) => {
                    let (_, buffer) = self.idle.remove(index);
                    self.memory.class_mut(class).idle -= buffer.byte_len();
                }
                None => return,
            }
        }
    }

    fn count(&mut self, class: Class, byte_len: usize) {
        let bytes = self.memory.class_mut(class);
        bytes.current += byte_len;
        bytes.peak = bytes.peak.max(bytes.current);
    }

    fn forget(&mut self, class: Class, byte_len: usize) {
        self.memory.class_mut(class).current -= byte_len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_beyond_what_was_needed_at_a_time() {
        let mut random = fastrand::Rng::with_seed(1);
        let group = phalanx_comm::Threads::new(1).groups().expect("a world of one").remove(0);
        let mut arena = Arena::new(group);
        let (mut held, mut most, mut reused) = (Vec::<(Class, Buffer)>::new(), [0; 2], 0);
        for _ in 0..2000 {
            let class = [Class::Gathered, Class::Reducing][random.usize(..2)];
            if random.bool() && !held.is_empty() {
                let (class, buffer) = held.swap_remove(random.usize(..held.len()));
                arena.give(class, buffer);
            } else if held.len() < 5 {
                let byte_len = 100 * random.usize(1..6);
                let idle = arena.memory().of(class).idle;
                held.push((class, arena.take(class, byte_len).expect("memory")));
                reused += usize::from(arena.memory().of(class).idle + byte_len == idle);
            }
            for (class, most) in [Class::Gathered, Class::Reducing].into_iter().zip(&mut most) {
                let of_class = held.iter().filter(|(other, _)| *other == class);
                let current = of_class.map(|(_, buffer)| buffer.byte_len()).sum::<usize>();
                *most = current.max(*most);
                let bytes = arena.memory().of(class);
                assert_eq!((bytes.current, bytes.peak), (current, *most));
                assert!(bytes.current + bytes.idle <= bytes.peak);
            }
        }
        assert!(reused > 100, "{reused}");
    }
}
