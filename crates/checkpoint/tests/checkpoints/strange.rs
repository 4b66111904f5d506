//! Files that have no end, or another one than was written, in the place of those of a checkpoint: none of them is read to find that out.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use phalanx_checkpoint::{Checkpoint, Disk, SystemDisk};

use crate::disks::Asking;
use crate::{Place, TENSORS, file_of, save};

/// Why a checkpoint of step 1 cannot be loaded, told within a minute.
fn refusal(disk: Arc<impl Disk + 'static>, root: &Path) -> String {
    let (tell, told) = mpsc::channel();
    let directory = root.join("step-000000000001");
    thread::spawn(move || {
        let loaded = Checkpoint::open_on(disk, &directory).and_then(|mut checkpoint| {
            let mut all = TENSORS.iter().map(|(name, shape)| (name, shape.iter().product()));
            all.try_for_each(|(name, len)| checkpoint.bytes(name, 0..len).map(drop))
        });
        tell.send(loaded.expect_err("refused").to_string())
    });
    told.recv_timeout(Duration::from_secs(60)).expect("an answer")
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let pipe = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
    let endless = |path: &Path| symlink("/dev/zero", path).expect("a link");
    for name in ["rank-1-of-2", "index.json"] {
        for put in [&pipe as &dyn Fn(&Path), &endless] {
            let place = Place::new();
            save(&place.0, 2, &[1]);
            let file = file_of(&place.0, name);
            fs::remove_file(&file).expect("a file");
            put(&file);
            let told = refusal(Arc::new(SystemDisk), &place.0);
            assert!(told.contains(name) && told.ends_with("it is no regular file"), "{told}");
        }
    }
}

/// An older checkpoint is not taken for the newest because nobody could look at a newer one.
#[test]
fn an_index_that_cannot_be_looked_at_is_not_missing() {
    let place = Place::new();
    save(&place.0, 2, &[1, 2]);
    let index = place.0.join("step-000000000002/index.json");
    fs::remove_file(&index).expect("a file");
    symlink(&index, &index).expect("a link to itself");
    let told = Checkpoint::latest(&place.0).expect_err("refused").to_string();
    assert!(told.starts_with(&format!("{}: ", index.display())), "{told}");
}

#[test]
fn a_file_of_another_length_is_refused_unread() {
    let place = Place::new();
    save(&place.0, 2, &[1]);
    let file = file_of(&place.0, "rank-1-of-2");
    // Of zeros that take no room.
    File::options().write(true).open(&file).and_then(|file| file.set_len(1 << 40)).expect("a long file");
    let disk = Asking::new(Arc::new(SystemDisk), move |act, path| match act {
        "read" if path == file => Err(io::Error::other("read")),
        _ => Ok(()),
    });
    let told = refusal(disk, &place.0);
    assert!(told.contains("rank-1-of-2") && told.contains("1099511627776 bytes, must be"), "{told}");
}
