//! Saves that are stopped at every step, by `kill -9` or a loss of power.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use phalanx_checkpoint::{Checkpoint, Disk};

use crate::disks::{Asking, Stop};
use crate::memory::Memory;
use crate::{assert_holds, assert_values, progress, save_on};

/// What is there before a save, and the save that is stopped.
struct Scene {
    steps: &'static [u64],
    step: u64,
    keep: usize,
}

/// The values that the save brings, also where it is of a step that has others.
const NEW: u64 = 9;

impl Scene {
    /// Stops the save after so many things were done to the disk; whether it did stop.
    fn stop(&self, world: usize, after: usize) -> bool {
        let root = Path::new("root");
        let disk = Arc::new(Memory::at(root));
        save_on(&disk, root, world, self.keep, &plain(self.steps)).expect("saved");
        let stop = Stop::after(after);
        let saved = save_on(&Asking::stopped_by(disk.clone(), &stop), root, world, self.keep, &[(self.step, NEW)]);
        assert!(saved.is_ok() || stop.did_stop(), "after {after}: {saved:?}");
        let mut random = Rng::with_seed(after as u64);
        for _ in 0..4 {
            self.assert_holds_one(&Arc::new(disk.after_loss_of_power(&mut random)), world, saved.is_ok());
        }
        self.assert_holds_one(&disk, world, saved.is_ok());
        stop.did_stop()
    }

    /// That the newest checkpoint is the one before the save or that of the save, that all are whole, and that training goes on from there.
    fn assert_holds_one(&self, disk: &Arc<Memory>, world: usize, is_saved: bool) {
        let root = Path::new("root");
        let newest = || Checkpoint::latest_on(disk.clone(), root).expect("a readable directory").expect("a checkpoint");
        let (step, is_new) = (newest().step(), newest().progress() == &progress(NEW));
        assert!(is_new || !is_saved, "step {step} is not what was saved");
        assert_eq!(Some(step), if is_new { Some(self.step) } else { self.steps.iter().copied().max() });
        for directory in disk.list(root).expect("names").iter().map(|name| root.join(name)) {
            if disk.has(&directory.join("index.json")).expect("an answer") {
                let mut checkpoint = Checkpoint::open_on(disk.clone(), &directory).expect("a checkpoint");
                let is_new = checkpoint.progress() == &progress(NEW);
                let values = if is_new { NEW } else { checkpoint.step() };
                assert_values(&mut checkpoint, values, 3);
            }
        }
        for step in [step, step + 1] {
            save_on(disk, root, world, self.keep, &[(step, step)]).expect("saved");
            assert_holds(&mut newest(), step, 1);
        }
    }

    /// Stops the save wherever it can be.
    fn stop_anywhere(&self) {
        for world in [1, 2] {
            let boundaries = (0..).take_while(|after| self.stop(world, *after)).count();
            // Directory, files with a header and four tensors, index, and what is removed.
            assert!(boundaries > 15, "{boundaries} boundaries among {world}");
        }
    }
}

/// Steps with values of their own.
fn plain(steps: &[u64]) -> Vec<(u64, u64)> {
    steps.iter().map(|step| (*step, *step)).collect()
}

#[test]
fn stopped_anywhere_a_save_leaves_the_checkpoint_before_it() {
    Scene { steps: &[1, 2], step: 3, keep: 2 }.stop_anywhere();
}

#[test]
fn stopped_anywhere_a_save_of_a_step_that_is_saved_leaves_the_one_it_was() {
    Scene { steps: &[7], step: 7, keep: 1 }.stop_anywhere();
    Scene { steps: &[6, 7], step: 7, keep: 2 }.stop_anywhere();
}

/// The directory and those above it are there from the first save on.
#[test]
fn a_save_into_a_directory_that_it_makes_survives_a_loss_of_power() {
    let root = Path::new("root/all/mine");
    let mut random = Rng::with_seed(1);
    for world in [1, 2] {
        let disk = Arc::new(Memory::at(Path::new("root")));
        save_on(&disk, root, world, 2, &[(1, 1)]).expect("saved");
        for _ in 0..32 {
            let left = Arc::new(disk.after_loss_of_power(&mut random));
            let found = Checkpoint::latest_on(left, root).expect("a readable directory");
            assert_holds(&mut found.expect("a checkpoint"), 1, world);
        }
    }
}
