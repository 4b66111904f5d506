//! Saves that are stopped at every step.

use std::fs;

use crate::disks::{Asking, Stop};
use crate::{Place, assert_holds, latest, save, save_on};

/// Saves step 3 after 1 and 2 with a disk that stops; whether it did.
fn stop_a_save(world: usize, after: usize) -> bool {
    let place = Place::new();
    save(&place.0, world, &[1, 2]);
    let stop = Stop::after(after);
    let saved = save_on(&Asking::stopped_by(&stop), &place.0, world, &[3]);
    assert!(saved.is_ok() || stop.did_stop(), "after {after}: {saved:?}");
    let mut checkpoint = latest(&place.0).expect("a checkpoint");
    let step = checkpoint.step();
    assert!(step == 3 || (step == 2 && saved.is_err()), "after {after}: step {step}, {saved:?}");
    assert_holds(&mut checkpoint, step, 3);
    // Training goes on from there, and saves again.
    save(&place.0, world, &[step + 1]);
    assert_holds(&mut latest(&place.0).expect("a checkpoint"), step + 1, 1);
    stop.did_stop()
}

/// Saves step 2 again where it is the only checkpoint, by a disk that stops; whether it did.
fn stop_saving_again(world: usize, after: usize) -> bool {
    let place = Place::new();
    save(&place.0, world, &[2]);
    let stop = Stop::after(after);
    let saved = save_on(&Asking::stopped_by(&stop), &place.0, world, &[2]);
    assert!(saved.is_ok() || stop.did_stop(), "after {after}: {saved:?}");
    assert_holds(&mut latest(&place.0).expect("a checkpoint"), 2, 3);
    save(&place.0, world, &[2]);
    assert_holds(&mut latest(&place.0).expect("a checkpoint"), 2, 1);
    // Nothing is left of the saves before.
    assert_eq!(fs::read_dir(place.0.join("step-000000000002")).expect("names").count(), world + 1);
    stop.did_stop()
}

#[test]
fn stopped_anywhere_a_step_that_is_saved_again_stays_what_it_was() {
    for world in [1, 2] {
        let boundaries = (0..).take_while(|after| stop_saving_again(world, *after)).count();
        assert!(boundaries > 15, "{boundaries} boundaries among {world}");
    }
}

#[test]
fn stopped_anywhere_a_save_leaves_the_checkpoint_before_it() {
    for world in [1, 2] {
        let boundaries = (0..).take_while(|after| stop_a_save(world, *after)).count();
        // Directory, files with a header and four tensors, index, and what is removed.
        assert!(boundaries > 15, "{boundaries} boundaries among {world}");
    }
}
