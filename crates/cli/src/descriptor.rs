//! Writing to a descriptor itself, also where another process that has it too made it non-blocking.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};

/// Writes all of `bytes`, waiting for the reader; where a deadline is given, and the descriptor does not block, until then.
pub(crate) fn write_all(handle: &impl AsFd, mut bytes: &[u8], deadline: Option<Instant>) -> Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(handle, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => await_room(handle, deadline)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn await_room(handle: &impl AsFd, deadline: Option<Instant>) -> Result<()> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left.is_zero()) {
        return Err(Errno::TIMEDOUT);
    }
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    // Interrupted or not, the caller tries again.
    let _ = poll(&mut [PollFd::new(handle, PollFlags::OUT)], timeout.as_ref());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{self, PipeReader, PipeWriter, Read};
    use std::thread;
    use std::time::Duration;

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    /// A pipe that does not block and has no room.
    fn full() -> (PipeReader, PipeWriter, usize) {
        let (reader, writer) = io::pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        let mut held = 0;
        while let Ok(written) = rustix::io::write(&writer, &[0; 4096]) {
            held += written;
        }
        (reader, writer, held)
    }

    #[test]
    fn nothing_is_lost_to_a_reader_that_comes_late() {
        let (mut reader, writer, held) = full();
        let late = thread::spawn(move || write_all(&writer, b"all of it", None));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert_eq!((late.join().unwrap(), &read[held..]), (Ok(()), &b"all of it"[..]));
    }

    #[test]
    fn a_reader_that_does_not_come_is_waited_for_until_the_deadline() {
        let (_reader, writer, _) = full();
        let deadline = Instant::now() + Duration::from_millis(20);
        assert_eq!(write_all(&writer, b"no", Some(deadline)), Err(Errno::TIMEDOUT));
        assert!(Instant::now() >= deadline);
    }
}
