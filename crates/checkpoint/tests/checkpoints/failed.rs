//! Saves that come to nothing: all ranks are told, and what they had begun is gone.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use phalanx_checkpoint::{Disk, Error, Progress, Result, Saver, SystemDisk};
use phalanx_comm::Threads;
use phalanx_core::GroupOptions;

use crate::disks::Asking;
use crate::{Place, assert_holds, latest, pieces, progress, save};

/// What both ranks, which are the world's 4 and 7, say of a save whose second rank saves this.
fn apart(root: &Path, step: u64, said: &Progress) -> Vec<Result<()>> {
    let saved = Threads::new(2).options(GroupOptions::default().members([4, 7])).run(|group| {
        let rank = group.rank();
        let mut saver = Saver::new(root).group(group).keep(1);
        let (step, said) = if rank == 0 { (3, &progress(3)) } else { (step, said) };
        saver.save(step, pieces(3, rank, 2), said.clone())?;
        saver.finish()
    });
    saved.expect("a world")
}

#[test]
fn ranks_that_save_different_things_write_nothing() {
    let more = Progress::from([("data".to_owned(), "after 3".to_owned()), ("random".to_owned(), "7".to_owned())]);
    for (step, said, why) in [
        (4, progress(3), "step 4, not 3"),
        (3, progress(4), r#""after 4" as progress "data", not "after 3""#),
        (3, more, r#""7" as progress "random", not nothing"#),
    ] {
        let place = Place::new();
        save(&place.0, 2, &[2]);
        for end in apart(&place.0, step, &said) {
            let error = end.expect_err("refused");
            assert!(matches!(error, Error::Apart { rank: 7, .. }) && error.to_string().ends_with(why), "{error}");
        }
        assert!(SystemDisk.list(&place.0.join("step-000000000003")).expect("names").is_empty());
        assert_holds(&mut latest(&place.0).expect("a checkpoint"), 2, 2);
    }
}

#[test]
fn progress_may_be_left_to_the_first_rank() {
    let place = Place::new();
    assert!(apart(&place.0, 3, &Progress::new()).iter().all(Result::is_ok));
    assert_holds(&mut latest(&place.0).expect("a checkpoint"), 3, 2);
}

/// Saves step 2 on such a disk; what both ranks say.
fn save_on(disk: &Arc<impl Disk + 'static>, root: &Path) -> Vec<Result<()>> {
    let saved = Threads::new(2).run(|group| {
        let rank = group.rank();
        let mut saver = Saver::new(root).group(group).disk(disk.clone());
        saver.save(2, pieces(2, rank, 2), progress(2))?;
        saver.finish()
    });
    saved.expect("a world")
}

/// Saves step 2 where a disk refuses something, that file names begin so included; what both ranks say, and what is in its directory.
fn refused(act: &'static str, name: &'static str, removes: bool) -> (Vec<String>, BTreeSet<String>) {
    let place = Place::new();
    save(&place.0, 2, &[1]);
    let disk = Asking::new(Arc::new(SystemDisk), move |asked, path: &Path| {
        let is_it = asked == act && path.file_name().is_some_and(|found| found.to_string_lossy().starts_with(name));
        match is_it || (asked == "remove_file" && !removes) {
            true => Err(io::Error::other("no room")),
            false => Ok(()),
        }
    });
    let told = save_on(&disk, &place.0).into_iter().map(|end| end.expect_err("refused").to_string()).collect();
    let names = SystemDisk.list(&place.0.join("step-000000000002")).expect("names");
    (told, names.into_iter().collect())
}

#[test]
fn a_save_that_finds_no_room_leaves_none_of_its_files() {
    for (act, name) in [
        ("create", "rank-1"),
        ("append", "rank-1"),
        ("sync", "rank-1"),
        ("rename", "rank-1"),
        ("append", "rank-0"),
        ("create", "index"),
        ("append", "index"),
        ("sync", "index"),
    ] {
        let (told, left) = refused(act, name, true);
        assert!(left.is_empty(), "{act} of {name}: {left:?} stays");
        let (same, left) = refused(act, name, false);
        assert!(act == "create" || !left.is_empty(), "{act} of {name}");
        let why = |told: &[String]| told.iter().map(|told| told.ends_with(": no room")).collect::<Vec<_>>();
        assert_eq!((why(&told), why(&same)), (vec![true; 2], vec![true; 2]), "{told:?}, {same:?}");
    }
}

/// The directory may not be synced, but the index is there and lists them.
#[test]
fn files_that_an_index_lists_stay() {
    let place = Place::new();
    let disk = Asking::new(Arc::new(SystemDisk), move |act, path: &Path| {
        match act == "sync" && path.join("index.json").exists() {
            true => Err(io::Error::other("no answer")),
            false => Ok(()),
        }
    });
    assert!(save_on(&disk, &place.0).iter().all(Result::is_err));
    assert_holds(&mut latest(&place.0).expect("a checkpoint"), 2, 2);
}
