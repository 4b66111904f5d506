//! Which checkpoint is the newest where some are damaged: the same for all ranks, and nobody is left to wonder.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use phalanx_checkpoint::{Checkpoint, Disk, Error, Result, SystemDisk};
use phalanx_comm::Threads;

use crate::disks::Asking;
use crate::{Place, assert_holds, latest, save};

/// The file of a step whose name begins so.
fn file_of(root: &Path, step: u64, name: &str) -> std::path::PathBuf {
    let directory = root.join(format!("step-{step:012}"));
    let names = SystemDisk.list(&directory).expect("names");
    directory.join(names.iter().find(|found| found.starts_with(name)).expect("a file"))
}

fn cut(file: &Path) {
    let len = fs::metadata(file).expect("a file").len();
    fs::File::options().write(true).open(file).and_then(|file| file.set_len(len / 2)).expect("shorter");
}

fn remove(file: &Path) {
    fs::remove_file(file).expect("a file");
}

#[test]
fn one_that_is_damaged_is_passed_over_and_told_of() {
    for (name, damage) in [("index.json", cut as fn(&Path)), ("rank-1-of-2", cut), ("rank-0-of-2", remove)] {
        let place = Place::new();
        save(&place.0, 2, &[1, 2]);
        assert!(latest(&place.0).expect("a checkpoint").passed_over().is_empty());
        let file = file_of(&place.0, 2, name);
        damage(&file);
        let mut checkpoint = latest(&place.0).expect("a checkpoint");
        let [told] = checkpoint.passed_over() else { panic!("{:?}", checkpoint.passed_over()) };
        assert!(told.to_string().starts_with(&format!("{}: ", file.display())), "{told}");
        assert_holds(&mut checkpoint, 1, 2);
        // Nothing is begun anew where something was saved.
        let older = file_of(&place.0, 1, name);
        damage(&older);
        let told = Checkpoint::latest(&place.0).expect_err("none is whole").to_string();
        assert!(told.starts_with(&format!("{}: ", file.display())), "{told}");
    }
}

/// What another rank may see otherwise, or another version would read, is no damage.
#[test]
fn one_that_cannot_be_read_now_is_not_passed_over() {
    let place = Place::new();
    save(&place.0, 2, &[1, 2]);
    let index = file_of(&place.0, 2, "index.json");
    for act in ["has", "read"] {
        let refused_index = index.clone();
        let disk = Asking::new(Arc::new(SystemDisk), move |asked, path| match path == refused_index {
            true if asked == act => Err(io::Error::other("the server does not answer")),
            _ => Ok(()),
        });
        let refused = Checkpoint::latest_on(disk, &place.0).expect_err("refused");
        assert!(matches!(&refused, Error::Disk { file, .. } if *file == index), "{act}: {refused}");
    }
    let text = fs::read_to_string(&index).expect("an index");
    let mut sealed: serde_json::Value = serde_json::from_str(&text).expect("an index");
    sealed["index"]["format"] = 2.into();
    sealed["crc32c"] = crc32c::crc32c(sealed["index"].to_string().as_bytes()).into();
    fs::write(&index, sealed.to_string()).expect("a file");
    let refused = Checkpoint::latest(&place.0).expect_err("refused");
    assert!(matches!(refused, Error::Format { found: 2, must: 1, .. }), "{refused}");
    assert!(refused.to_string().ends_with("index.json: format 2, must be 1"), "{refused}");
}

#[test]
fn all_ranks_take_the_one_that_the_first_finds() {
    let place = Place::new();
    let found = |root: &Path| {
        let all = Threads::new(3).run(|group| Checkpoint::latest_among(&group, root));
        all.expect("a world").into_iter().map(|found| found.map(Vec::from_iter)).collect::<Result<Vec<_>>>()
    };
    assert!(found(&place.0).expect("a readable directory").iter().all(Vec::is_empty));
    save(&place.0, 2, &[1, 2]);
    cut(&file_of(&place.0, 2, "rank-1-of-2"));
    for (rank, checkpoints) in found(&place.0).expect("a readable directory").iter_mut().enumerate() {
        let [checkpoint] = &mut checkpoints[..] else { panic!("{checkpoints:?}") };
        assert_holds(checkpoint, 1, 3);
        // Told once.
        assert_eq!(checkpoint.passed_over().len(), usize::from(rank == 0));
    }
    cut(&file_of(&place.0, 1, "index.json"));
    let all = Threads::new(2).run(|group| Checkpoint::latest_among(&group, &place.0).map(drop));
    let told: Vec<String> = all.expect("a world").into_iter().map(|end| end.expect_err("none").to_string()).collect();
    assert_eq!(told[1], format!("rank 0 found no checkpoint: {}", told[0]));
}
