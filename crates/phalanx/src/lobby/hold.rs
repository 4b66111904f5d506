//! The hold on a notice: a lock on its file for as long as whoever put it up lives. The kernel lets go of it however a process ends, and shows it
//! across namespaces of processes, where a number says nothing.

use std::fs::{File, TryLockError};

/// Keeps a notice believed while it lives.
///
/// It is `flock`'s, which belongs to the open file: a child that was forked meanwhile and has started no other program has it too, and a notice is
/// believed as long as that child lives where the number of its writer does not tell.
#[derive(Debug)]
pub(super) struct Hold(#[expect(dead_code, reason = "open is all that it has to be")] File);

impl Hold {
    /// Holds the file of a notice, before anybody can see it. Where the file system has no locks it is held by nothing, and may be as well.
    pub(super) fn take(file: File) -> Hold {
        if let Err(error) = file.try_lock() {
            log::debug!("a notice is not locked: {error}");
        }
        Hold(file)
    }
}

/// Whether somebody may hold this file of a notice: the file system may have no locks. Readers do not disturb each other, and let go as the file
/// is closed.
pub(super) fn may_be_held(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => {
            log::debug!("whether a notice is locked is not known: {error}");
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags, open};

    use super::*;

    /// A file of a test's own, opened in these ways; it is gone once they are closed.
    fn opened(name: &str, ways: [OFlags; 2]) -> [File; 2] {
        let path = std::env::temp_dir().join(format!("phalanx-hold-{}-{name}", std::process::id()));
        File::create(&path).unwrap();
        let files = ways.map(|way| File::from(open(&path, way | OFlags::CLOEXEC, Mode::empty()).unwrap()));
        std::fs::remove_file(&path).unwrap();
        files
    }

    #[test]
    fn a_file_is_seen_to_be_held() {
        let [held, reader] = opened("held", [OFlags::WRONLY, OFlags::RDONLY]);
        let _hold = Hold::take(held);
        assert!(may_be_held(&reader));
        let readers = opened("free", [OFlags::RDONLY; 2]);
        assert_eq!(readers.each_ref().map(may_be_held), [false; 2], "they do not disturb each other");
    }

    #[test]
    fn where_there_are_no_locks_a_file_may_be_held() {
        // A handle of this kind is for nothing but its path.
        let [poster, reader] = opened("path", [OFlags::PATH; 2]);
        let _hold = Hold::take(poster);
        assert!(may_be_held(&reader));
    }
}
