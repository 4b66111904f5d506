//! Which checkpoint is the newest where some are damaged: the same for all ranks, and nobody is left to wonder.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use phalanx_checkpoint::{Checkpoint, Disk, Error, Result, Saver, SystemDisk};
use phalanx_comm::Threads;

use crate::disks::Asking;
use crate::memory::Memory;
use crate::{Place, assert_holds, assert_values, latest, pieces, progress, save, save_on};

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
    sealed["index"]["tensors"] = "elsewhere".into();
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

/// A damaged one may be mended; it is not one of those that are kept in its place.
#[test]
fn one_that_is_damaged_does_not_count_among_those_that_are_kept() {
    let place = Place::new();
    save(&place.0, 2, &[1, 2]);
    cut(&file_of(&place.0, 2, "rank-1-of-2"));
    save(&place.0, 2, &[3]);
    let steps = || {
        let mut names = SystemDisk.list(&place.0).expect("names");
        names.sort();
        names.iter().map(|name| name.trim_start_matches("step-").parse().expect("a step")).collect::<Vec<u64>>()
    };
    assert_eq!(steps(), [1, 2, 3]);
    cut(&file_of(&place.0, 3, "rank-0-of-2"));
    assert_holds(&mut latest(&place.0).expect("a checkpoint"), 1, 2);
    // With two that are whole the damaged ones are too old.
    save(&place.0, 2, &[4, 5]);
    assert_eq!(steps(), [4, 5]);
}

/// As of a run that goes on from an older checkpoint in the same place: what was given up would stay the newest.
#[test]
fn no_step_is_saved_before_one_that_is_whole() {
    let place = Place::new();
    save(&place.0, 2, &[100, 300]);
    let saved = Threads::new(2).run(|group| {
        let rank = group.rank();
        let mut saver = Saver::new(&place.0).group(group);
        saver.save(150, pieces(150, rank, 2), progress(150))?;
        saver.finish()
    });
    let [first, second] = saved.expect("a world").try_into().expect("two ranks");
    assert!(matches!(&first, Err(Error::Later { step: 150, .. })), "{first:?}");
    let later = place.0.join("step-000000000300");
    let how = "later than step 150, which is to be saved: remove it, or save elsewhere";
    let told = format!("{}: {how}", later.display());
    assert_eq!(
        [first, second].map(|refused| refused.expect_err("refused").to_string()),
        [told.clone(), format!("rank 0 could not save: {told}")]
    );
    assert!(!place.0.join("step-000000000150").exists());
    // It may be saved again itself, and one that is damaged or gone is in nobody's way.
    save(&place.0, 2, &[300]);
    cut(&file_of(&place.0, 300, "rank-1-of-2"));
    save(&place.0, 2, &[150]);
    assert_holds(&mut latest(&place.0).expect("a checkpoint"), 150, 2);
    fs::remove_dir_all(&later).expect("removed");
    save(&place.0, 2, &[200]);
    assert_holds(&mut latest(&place.0).expect("a checkpoint"), 200, 2);
}

/// A first rank that is left over from a save that all others have given up, as after a restart.
#[test]
fn one_that_another_save_has_overtaken_does_not_take_its_place() {
    for act in ["create", "rename"] {
        let (disk, root) = (Arc::new(Memory::at(Path::new("root"))), Path::new("root"));
        let (other, is_first) = (disk.clone(), AtomicBool::new(true));
        let slow = Asking::new(disk.clone(), move |asked, path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if asked == act && name.starts_with("index") && is_first.swap(false, Ordering::Relaxed) {
                save_on(&other, root, 2, 2, &[(7, 9)]).expect("saved");
            }
            Ok(())
        });
        let late = save_on(&slow, root, 2, 2, &[(7, 8)]);
        let mut checkpoint = Checkpoint::latest_on(disk.clone(), root).expect("readable").expect("a checkpoint");
        // Either may be the last. What is there is whole, and what a save said of itself is true.
        let values = if checkpoint.progress() == &progress(9) { 9 } else { 8 };
        assert!(values == 9 || late.is_ok(), "before {act}: {late:?}");
        assert_values(&mut checkpoint, values, 2);
    }
}
