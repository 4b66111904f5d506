//! Saved by some ranks, loaded by others; stopped at every step of a save; damaged in every way that is noticed.

mod crafted;
mod disks;
mod failed;
mod memory;
mod newest;
mod stopped;
#[cfg(unix)]
mod strange;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use phalanx_checkpoint::{Checkpoint, Disk, Dtype, Error, Piece, Progress, Result, Saver, SystemDisk};
use phalanx_comm::Threads;
use phalanx_core::GroupOptions;

use crate::disks::{Asking, Stop};

/// A directory that is removed in the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let name = format!("phalanx-checkpoint-{}-{:016x}", std::process::id(), fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a directory");
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Names, shapes and which step the values are of.
const TENSORS: [(&str, &[usize]); 4] = [("weight", &[7, 3]), ("bias", &[5]), ("scalar", &[]), ("wide", &[2, 40])];

fn values(name: &str, shape: &[usize], step: u64) -> Vec<f32> {
    let mut draw = fastrand::Rng::with_seed(step * 1000 + name.len() as u64);
    // Any bits: also those of numbers that are none.
    (0..shape.iter().product()).map(|_| f32::from_bits(draw.u32(..))).collect()
}

/// Rows as the sharding has them: as many for each rank, the last with fewer or none.
fn elements(shape: &[usize], rank: usize, world: usize) -> std::ops::Range<usize> {
    let (rows, row_len) = (shape.first().copied().unwrap_or(1), shape.iter().skip(1).product::<usize>());
    let each = rows.div_ceil(world);
    (rank * each).min(rows) * row_len..((rank + 1) * each).min(rows) * row_len
}

fn pieces(step: u64, rank: usize, world: usize) -> Vec<Piece> {
    let piece = |(name, shape): (&str, &[usize])| {
        let own = elements(shape, rank, world);
        Piece::floats(name, shape, own.start, &values(name, shape, step)[own])
    };
    TENSORS.map(piece).to_vec()
}

fn progress(step: u64) -> Progress {
    Progress::from([("data".to_owned(), format!("after {step}"))])
}

/// Saves steps among so many ranks.
fn save(root: &Path, world: usize, steps: &[u64]) {
    let steps: Vec<(u64, u64)> = steps.iter().map(|step| (*step, *step)).collect();
    save_on(&Arc::new(SystemDisk), root, world, 2, &steps).expect("saved");
}

/// Saves steps on some disk, each with the values of a step. All ranks come to the same end; what the first says of it.
fn save_on(
    disk: &Arc<impl Disk + 'static>,
    root: &Path,
    world: usize,
    keep: usize,
    steps: &[(u64, u64)],
) -> Result<()> {
    let saved = Threads::new(world).run(|group| {
        let rank = group.rank();
        let mut saver = Saver::new(root).group(group).disk(disk.clone()).keep(keep);
        let mut save = |step, of| saver.save(step, pieces(of, rank, world), progress(of));
        steps.iter().try_for_each(|(step, of)| save(*step, *of))?;
        saver.finish()
    });
    let saved = saved.expect("a world");
    assert!(saved.iter().all(|end| end.is_ok() == saved[0].is_ok()), "{saved:?}");
    saved.into_iter().next().expect("a rank")
}

/// That a checkpoint is that of a step, for ranks of a world.
fn assert_holds(checkpoint: &mut Checkpoint, step: u64, world: usize) {
    assert_eq!(checkpoint.step(), step);
    assert_values(checkpoint, step, world);
}

/// That a checkpoint has the values of a step.
fn assert_values(checkpoint: &mut Checkpoint, step: u64, world: usize) {
    assert_eq!(checkpoint.progress(), &progress(step));
    for rank in 0..world {
        for (name, shape) in TENSORS {
            let own = elements(shape, rank, world);
            let loaded = checkpoint.floats(name, shape, own.clone()).expect("loaded");
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&loaded), bits(&values(name, shape, step)[own]), "{name} of rank {rank} of {world}");
        }
    }
}

fn latest(root: &Path) -> Option<Checkpoint> {
    Checkpoint::latest(root).expect("a readable directory")
}

#[test]
fn saved_by_four_loaded_by_any() {
    let place = Place::new();
    save(&place.0, 4, &[12]);
    for world in [1, 2, 3, 4, 8] {
        let mut checkpoint = latest(&place.0).expect("a checkpoint");
        assert_eq!(checkpoint.world(), 4);
        assert_holds(&mut checkpoint, 12, world);
    }
}

#[test]
fn one_plain_file_holds_the_same() {
    let place = Place::new();
    save(&place.0, 4, &[12]);
    let file = place.0.join("whole.safetensors");
    latest(&place.0).expect("a checkpoint").write_whole(&file).expect("written");
    assert_holds(&mut Checkpoint::open(&file).expect("a file"), 12, 3);
    let bytes = fs::read(&file).expect("a file");
    let header_len = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    assert!(header_len.is_multiple_of(8) && bytes.len() as u64 > header_len);
}

#[test]
fn progress_may_have_any_name_in_a_plain_file() {
    let place = Place::new();
    let said = Progress::from([("step".to_owned(), "warming up".to_owned())]);
    let mut saver = Saver::new(&place.0);
    saver.save(12, pieces(12, 0, 1), said.clone()).and_then(|()| saver.finish()).expect("saved");
    let file = place.0.join("whole.safetensors");
    latest(&place.0).expect("a checkpoint").write_whole(&file).expect("written");
    let whole = Checkpoint::open(&file).expect("a file");
    assert_eq!((whole.step(), whole.progress()), (12, &said));
}

/// Headers count bytes, of which a letter may have several, and have no bound that a model of many parameters comes to.
#[test]
fn names_may_be_of_any_letters_and_as_many_as_there_are() {
    let place = Place::new();
    let names: Vec<String> = (0..2_000).map(|number| format!("блок.{number}.β.weight")).collect();
    let pieces = names.iter().zip(0_u8..=u8::MAX).map(|(name, value)| Piece::floats(name, &[1], 0, &[value.into()]));
    let said = Progress::from([("façade".to_owned(), "données".to_owned())]);
    let mut saver = Saver::new(&place.0);
    let pieces = pieces.chain(names[256..].iter().map(|name| Piece::floats(name, &[1], 0, &[0.5]))).collect();
    saver.save(12, pieces, said.clone()).and_then(|()| saver.finish()).expect("saved");
    let holds = |mut checkpoint: Checkpoint| {
        assert_eq!(checkpoint.progress(), &said);
        for (name, value) in [(&names[0], 0.0), (&names[255], 255.0), (&names[1_999], 0.5)] {
            assert_eq!(checkpoint.floats(name, &[1], 0..1).expect("loaded"), [value]);
        }
    };
    holds(latest(&place.0).expect("a checkpoint"));
    let file = place.0.join("whole.safetensors");
    latest(&place.0).expect("a checkpoint").write_whole(&file).expect("written");
    holds(Checkpoint::open(&file).expect("a file"));
}

/// Once the step stood under that name.
#[test]
fn a_plain_file_of_before_has_its_step() {
    let place = Place::new();
    let file = place.0.join("whole.safetensors");
    let header = r#"{"__metadata__":{"step":"12"},"bias":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &1.0_f32.to_le_bytes()].concat();
    fs::write(&file, bytes).expect("a file");
    assert_eq!(Checkpoint::open(&file).expect("a file").step(), 12);
}

#[test]
fn the_last_two_are_kept() {
    let place = Place::new();
    save(&place.0, 2, &[10, 20, 30]);
    // What a save that was stopped has left.
    fs::create_dir(place.0.join("step-000000000025")).expect("a directory");
    save(&place.0, 3, &[40]);
    let mut names = SystemDisk.list(&place.0).expect("names");
    names.sort();
    assert_eq!(names, ["step-000000000030", "step-000000000040"]);
    assert_holds(&mut latest(&place.0).expect("a checkpoint"), 40, 2);
}

#[test]
fn what_others_have_put_beside_is_left_alone() {
    let place = Place::new();
    let (directory, file) = (place.0.join("step-7"), place.0.join("step-000000000001"));
    fs::create_dir(&directory).expect("a directory");
    fs::write(&file, "notes").expect("a file");
    for step in [7, 8, 9] {
        save(&place.0, 2, &[step]);
        assert_holds(&mut latest(&place.0).expect("a checkpoint"), step, 2);
    }
    assert!(directory.is_dir() && file.is_file());
}

#[test]
fn what_cannot_be_removed_makes_no_save_fail() {
    let place = Place::new();
    assert_spares_the_first(&place.0, |act, path| act == "remove_directory" && path.ends_with("step-000000000001"));
}

#[test]
fn what_cannot_be_looked_at_is_not_removed() {
    let place = Place::new();
    assert_spares_the_first(&place.0, |act, path| act == "has" && path.ends_with("step-000000000001/index.json"));
    let mut first = Checkpoint::open(&place.0.join("step-000000000001")).expect("a checkpoint");
    assert_holds(&mut first, 1, 2);
}

/// That of four steps the first stays beside the last two, on a disk that refuses this.
fn assert_spares_the_first(root: &Path, refuses: impl Fn(&str, &Path) -> bool + Send + Sync + 'static) {
    let disk = Asking::new(Arc::new(SystemDisk), move |act, path| match refuses(act, path) {
        true => Err(io::Error::other("refused")),
        false => Ok(()),
    });
    save_on(&disk, root, 2, 2, &[(1, 1), (2, 2), (3, 3), (4, 4)]).expect("saved");
    let mut names = SystemDisk.list(root).expect("names");
    names.sort();
    assert_eq!(names, ["step-000000000001", "step-000000000003", "step-000000000004"]);
    assert_holds(&mut latest(root).expect("a checkpoint"), 4, 2);
}

#[test]
fn a_step_that_is_saved_again_replaces_what_it_was() {
    let place = Place::new();
    save(&place.0, 4, &[7]);
    let directory = place.0.join("step-000000000007");
    fs::write(directory.join("config.json"), "of somebody else").expect("a file");
    save(&place.0, 2, &[7]);
    let mut checkpoint = latest(&place.0).expect("a checkpoint");
    assert_eq!(checkpoint.world(), 2);
    assert_holds(&mut checkpoint, 7, 4);
    let names = SystemDisk.list(&directory).expect("names");
    let (of_ranks, mut others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.starts_with("rank-"));
    others.sort();
    assert_eq!((of_ranks.len(), &others[..]), (2, &["config.json".to_owned(), "index.json".to_owned()][..]));
}

#[test]
fn what_was_saved_before_names_had_marks_is_loaded_and_replaced() {
    let place = Place::new();
    let directory = place.0.join("step-000000000007");
    fs::create_dir(&directory).expect("a directory");
    fs::write(directory.join("index.json"), WITHOUT_MARKS).expect("a file");
    let header = format!("{:64}", r#"{"bias":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}"#);
    let values = [1.0, -2.0, 0.5_f32];
    let file = [&64_u64.to_le_bytes(), header.as_bytes(), values.map(f32::to_le_bytes).as_flattened()].concat();
    fs::write(directory.join("rank-0-of-1.safetensors"), file).expect("a file");
    fs::write(directory.join("config.json"), "of others").expect("a file");
    let mut checkpoint = latest(&place.0).expect("a checkpoint");
    assert_eq!(checkpoint.floats("bias", &[3], 0..3).expect("loaded"), values);
    save(&place.0, 1, &[7]);
    assert_holds(&mut latest(&place.0).expect("a checkpoint"), 7, 1);
    assert!(!directory.join("rank-0-of-1.safetensors").exists() && directory.join("config.json").exists());
}

const WITHOUT_MARKS: &str = r#"{
  "crc32c": 2233307916,
  "index": {
    "files": {"rank-0-of-1.safetensors": {"bytes": 84, "crc32c": 640370556}},
    "format": 1,
    "progress": {"data": "after 7"},
    "step": 7,
    "tensors": {
      "bias": {"dtype": "F32", "pieces": [{"file": "rank-0-of-1.safetensors", "len": 3, "start": 0}], "shape": [3]}
    },
    "world": 1
  }
}"#;

/// A rank that is left over from a save that did not end may still be writing to what that save had begun.
#[test]
fn no_two_saves_write_to_the_same_file() {
    let place = Place::new();
    let written = Arc::new(Mutex::new(vec![]));
    for after in 0..8 {
        let (stop, written) = (Stop::after(after), written.clone());
        let disk = Asking::new(Arc::new(SystemDisk), move |act, path| {
            if act == "create" {
                written.lock().expect("paths").push(path.to_owned());
            }
            stop.ask()
        });
        assert!(save_on(&disk, &place.0, 1, 1, &[(7, 7)]).is_err(), "stopped after {after}");
    }
    let written = written.lock().expect("paths");
    let distinct: BTreeSet<_> = written.iter().collect();
    assert!(written.len() > 4 && distinct.len() == written.len(), "{written:?}");
}

/// The file of step 1 whose name begins so.
fn file_of(root: &Path, name: &str) -> PathBuf {
    let directory = root.join("step-000000000001");
    let names = SystemDisk.list(&directory).expect("names");
    directory.join(names.iter().find(|found| found.starts_with(name)).expect("a file"))
}

/// Why a checkpoint cannot be loaded after one of its files was changed.
fn refusal(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let place = Place::new();
    save(&place.0, 2, &[1]);
    let file = file_of(&place.0, name);
    let mut bytes = fs::read(&file).expect("a file");
    change(&mut bytes);
    fs::write(&file, bytes).expect("a file");
    let loaded = Checkpoint::open(file.parent().expect("a directory")).and_then(|mut checkpoint| {
        TENSORS.iter().try_for_each(|(name, shape)| checkpoint.floats(name, shape, 0..shape.iter().product()).map(drop))
    });
    let error = loaded.expect_err("refused");
    assert!(matches!(error, Error::Damaged { .. }) && error.to_string().contains(name), "{error}");
    error.to_string()
}

#[test]
fn damage_is_told_with_the_file() {
    assert!(refusal("rank-1-of-2", |bytes| bytes.truncate(100)).contains("100 bytes, must be"));
    for at in [0, 20, 300] {
        assert!(refusal("rank-0-of-2", |bytes| bytes[at] ^= 4).contains("its checksum is"));
    }
    assert!(refusal("index.json", |bytes| bytes.truncate(50)).contains("EOF"));
    let moved = |from: &'static str, to: &'static str| {
        move |bytes: &mut Vec<u8>| *bytes = String::from_utf8_lossy(bytes).replacen(from, to, 1).into_bytes()
    };
    assert!(refusal("index.json", moved("\"start\": 12", "\"start\": 13")).contains("its checksum is"));
    assert!(refusal("index.json", moved("\"len\": 3", "\"len\": 4")).contains("its checksum is"));
}

#[test]
fn what_is_not_there_is_named() {
    let place = Place::new();
    assert!(latest(&place.0).is_none() && latest(&place.0.join("nowhere")).is_none());
    save(&place.0, 2, &[1]);
    let mut checkpoint = latest(&place.0).expect("a checkpoint");
    fs::remove_file(file_of(&place.0, "rank-1-of-2")).expect("a file");
    let mut refused =
        |name, shape: &[usize], elements| checkpoint.floats(name, shape, elements).expect_err("refused").to_string();
    assert!(refused("weight", &[7, 3], 20..21).contains("rank-1-of-2"));
    assert!(refused("weights", &[7, 3], 0..1).contains("tensor weights: it is not there"));
    assert!(refused("weight", &[3, 7], 0..1).contains("must be F32 of [3, 7]"));
    assert!(refused("bias", &[5], 4..6).contains("elements 4..6 of 5"));
}

#[test]
fn a_rank_that_cannot_write_is_named_to_all() {
    let place = Place::new();
    let saved = Threads::new(2).run(|group| {
        let rank = group.rank();
        let mut saver = Saver::new(&place.0).group(group);
        if rank == 1 {
            saver = saver.disk(Asking::stopped_by(Arc::new(SystemDisk), &Stop::after(0)));
        }
        saver.save(1, pieces(1, rank, 2), progress(1))?;
        saver.finish()
    });
    let told: Vec<String> =
        saved.expect("a world").into_iter().map(|saved| saved.expect_err("refused").to_string()).collect();
    assert!(told[0].starts_with("rank 1 could not save: ") && told[1].contains("rank-1-of-2"), "{told:?}");
    assert!(latest(&place.0).is_none());
}

/// What both ranks say of a save in which the second has these pieces for its own of the bias, which are elements 3 and 4.
fn refused_pieces(of_bias: &[Piece]) -> [String; 2] {
    let place = Place::new();
    save(&place.0, 2, &[1]);
    let saved = Threads::new(2).options(GroupOptions::default().members([4, 7])).run(|group| {
        let rank = group.rank();
        let mut pieces = pieces(2, rank, 2);
        if rank == 1 {
            pieces.retain(|piece| piece.name != "bias");
            pieces.extend_from_slice(of_bias);
        }
        let mut saver = Saver::new(&place.0).group(group).keep(1);
        saver.save(2, pieces, progress(2))?;
        saver.finish()
    });
    let [first, second] = saved.expect("a world").try_into().expect("two ranks");
    assert!(matches!(first, Err(Error::Elsewhere { rank: 7, .. })), "{first:?}");
    assert!(matches!(second, Err(Error::Tensor { .. })), "{second:?}");
    assert_holds(&mut latest(&place.0).expect("a checkpoint"), 1, 2);
    assert!(SystemDisk.list(&place.0.join("step-000000000002")).expect("names").is_empty());
    [first, second].map(|refused| refused.expect_err("refused").to_string())
}

#[test]
fn pieces_that_could_not_be_loaded_are_refused_before_anything_is_written() {
    let bias = |shape: &[usize], start, byte_len| Piece {
        bytes: vec![1; byte_len],
        ..Piece::floats("bias", shape, start, &[])
    };
    let room = "must be whole elements of 4 bytes and at most";
    let cases = [
        (vec![bias(&[5], 3, 11)], format!("tensor bias: 11 bytes from element 3 on, {room} 8")),
        (vec![bias(&[5], 3, 12)], format!("tensor bias: 12 bytes from element 3 on, {room} 8")),
        (vec![bias(&[5], 6, 4)], format!("tensor bias: 4 bytes from element 6 on, {room} 0")),
        (vec![bias(&[5], 2, 3)], format!("tensor bias: 3 bytes from element 2 on, {room} 12")),
        (vec![bias(&[usize::MAX, 2], 0, 4)], format!("tensor bias: F32 of {:?} has no size", [usize::MAX, 2])),
        (vec![bias(&[1 << 62], 0, 4)], format!("tensor bias: F32 of {:?} has no size", [1_usize << 62])),
        (vec![Piece { dtype: Dtype::F4, ..bias(&[4], 0, 2) }], "tensor bias: F4 of [4] has no size".to_owned()),
        (vec![bias(&[5], 3, 4), bias(&[5], 4, 4)], "tensor bias: it is there twice".to_owned()),
        (
            vec![Piece { name: "__metadata__".to_owned(), ..bias(&[5], 3, 8) }],
            "tensor __metadata__: safetensors keeps this name for itself".to_owned(),
        ),
    ];
    for (pieces, why) in cases {
        let [first, second] = refused_pieces(&pieces);
        assert!(first.starts_with("rank 7 could not save: ") && first.contains(&why), "{first}, must say {why}");
        assert!(second.contains("step-000000000002") && second.contains(&why), "{second}, must say {why}");
    }
}

#[test]
fn a_saver_that_is_dropped_waits_for_the_save_under_way() {
    let place = Place::new();
    let ended = Threads::new(2).run(|group| {
        let rank = group.rank();
        let mut saver = Saver::new(&place.0).group(group);
        saver.save(1, pieces(1, rank, 2), progress(1)).expect("begun");
        drop(saver);
        latest(&place.0).map(|checkpoint| checkpoint.step())
    });
    assert_eq!(ended.expect("a world"), [Some(1), Some(1)]);
}

#[test]
fn a_save_that_fails_is_told_by_the_next_one_which_is_not_begun() {
    let place = Place::new();
    let is_refused = |path: &Path| path.to_string_lossy().contains("step-000000000002");
    let disk = Asking::new(Arc::new(SystemDisk), move |act, path| match act {
        "create" if is_refused(path) => Err(io::Error::other("refused")),
        _ => Ok(()),
    });
    let ended = Threads::new(2).run(|group| {
        let rank = group.rank();
        let mut saver = Saver::new(&place.0).group(group).disk(disk.clone());
        let mut save = |step| saver.save(step, pieces(step, rank, 2), progress(step));
        [1, 2, 3, 4].map(|step| save(step).is_ok())
    });
    assert_eq!(ended.expect("a world"), [[true, true, false, true]; 2]);
    assert!(!place.0.join("step-000000000003").exists());
    assert_holds(&mut latest(&place.0).expect("a checkpoint"), 4, 2);
}
