//! Files as they should be and files that must not be believed.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A directory of this test's own, removed at the end.
struct Room(PathBuf);

impl Room {
    fn new() -> Room {
        let name = format!("phalanx-key-{}-{:016x}", std::process::id(), fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new directory");
        Room(path)
    }

    fn file(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("permissions");
        path
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn key() -> JobKey {
    JobKey::from_hex(&"5a".repeat(32)).expect("64 digits")
}

#[test]
fn a_written_key_is_read_again() {
    let room = Room::new();
    let path = room.0.join("key");
    key().write_file(&path).expect("a new file");
    assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o7777, 0o600);
    assert_eq!(*JobKey::read_file(&path).expect("a key").to_hex(), *key().to_hex());
    let error = key().write_file(&path).expect_err("there already");
    assert!(matches!(error, KeyError::Exists { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("key file {}: is there already; a key is never overwritten", path.display()));
    assert_eq!(*JobKey::read_file(&path).expect("unharmed").to_hex(), *key().to_hex());
}

#[test]
fn a_key_that_others_may_read_is_refused_by_path_and_mode() {
    let room = Room::new();
    for mode in [0o640, 0o604, 0o660, 0o700, 0o644] {
        let path = room.file(&format!("{mode:o}"), &key().to_hex(), mode);
        let error = JobKey::read_file(&path).expect_err("too wide");
        assert_eq!(
            error.to_string(),
            format!("key file {0}: has mode {mode:04o}, must be 0600 or less: chmod 600 {0}", path.display())
        );
    }
    assert!(JobKey::read_file(room.file("400", &key().to_hex(), 0o400)).is_ok());
}

#[test]
fn a_link_counts_as_what_it_leads_to() {
    let room = Room::new();
    let (good, bad) = (room.file("good", &key().to_hex(), 0o600), room.file("bad", &key().to_hex(), 0o644));
    symlink(good, room.0.join("to-good")).expect("a link");
    symlink(bad, room.0.join("to-bad")).expect("a link");
    assert!(JobKey::read_file(room.0.join("to-good")).is_ok());
    assert!(matches!(JobKey::read_file(room.0.join("to-bad")), Err(KeyError::Mode { .. })));
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let room = Room::new();
    let pipe = room.0.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).expect("a pipe");
    assert!(matches!(JobKey::read_file(&pipe), Err(KeyError::NotRegular { .. })));
    assert!(matches!(JobKey::read_file(&room.0), Err(KeyError::NotRegular { .. })));
    assert!(matches!(JobKey::read_file("/dev/zero"), Err(KeyError::NotRegular { .. })));
    assert!(matches!(JobKey::read_file(room.0.join("absent")), Err(KeyError::File { .. })));
}

#[test]
fn content_that_is_no_key_is_refused_without_being_shown() {
    let room = Room::new();
    let digits = key().to_hex().to_string();
    for (name, end) in [("none", ""), ("unix", "\n"), ("dos", "\r\n")] {
        assert!(JobKey::read_file(room.file(name, &format!("{digits}{end}"), 0o600)).is_ok(), "{name}");
    }
    for (name, content) in [
        ("empty", String::new()),
        ("short", digits[1..].to_owned()),
        ("long", format!("{digits}0")),
        ("two", format!("{digits}\n{digits}\n")),
        ("words", "z".repeat(64)),
        ("huge", "5a".repeat(100_000)),
    ] {
        let error = JobKey::read_file(room.file(name, &content, 0o600)).expect_err(name);
        assert!(matches!(error, KeyError::Content { .. }), "{name}: {error}");
        assert!(!error.to_string().contains("5a5a"), "{error}");
    }
    for (name, told) in [("short", "has 63 of 64 digits"), ("huge", "is longer than 64 digits")] {
        let error = JobKey::read_file(room.0.join(name)).expect_err(name).to_string();
        assert!(error.ends_with(&format!(": {told}, must be 64 hexadecimal digits")), "{error}");
    }
}

#[test]
fn a_sealed_file_is_inherited_by_number_and_cannot_be_changed() {
    use std::os::fd::AsRawFd;

    use rustix::io::Errno;

    let fd = key().to_memfd().expect("a memfd");
    let number = u32::try_from(fd.as_raw_fd()).expect("not negative");
    for _ in 0..2 {
        assert_eq!(*JobKey::inherit(number).expect("a key").to_hex(), *key().to_hex());
    }
    assert_eq!(rustix::io::pwrite(&fd, b"0", 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
    assert!(rustix::io::fcntl_getfd(&fd).expect("open").contains(rustix::io::FdFlags::CLOEXEC));
    let closed = JobKey::inherit(1 << 20).expect_err("not open");
    assert!(matches!(closed, KeyError::Closed { fd: 1_048_576 }), "{closed:?}");
    assert!(closed.to_string().starts_with("descriptor 1048576 is not open: "), "{closed}");
}

#[test]
fn a_child_finds_the_key_in_the_descriptor_it_was_given() {
    // Standard input is the one number that a child gets without help.
    let fd = key().to_memfd().expect("a memfd");
    let output = std::process::Command::new("cat").arg("/proc/self/fd/0").stdin(fd).output().expect("cat");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{}\n", *key().to_hex()));
}
