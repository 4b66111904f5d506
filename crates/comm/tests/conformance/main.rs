//! Conformance: one suite for every backend, written against [`Group`](phalanx_core::Group) alone. A backend joins by
//! one line below, which says how its worlds are made.

mod algorithms;
mod asynchronous;
mod case;
mod coalesced;
mod collectives;
mod lent;
mod lists;
mod matrix;
mod messages;
#[path = "../planted/mistakes.rs"]
mod mistakes;
mod monitored;
mod namespaces;
mod numbers;
mod objects;
mod quarrels;
mod reductions;
mod same_bits;
mod setting;
mod soak;
mod watched;

use phalanx_comm::Protection;
use phalanx_comm::Threads;
use phalanx_core::schedule::Algorithm;
use setting::{Setting, interleaved, rows};
use setting::{connected, joined, key};

/// The suite for each setting, as a module of its name.
macro_rules! conformance {
    ($($setting:ident => $make:expr),* $(,)?) => {$(
        mod $setting {
            use super::*;

            const SETTING: Setting = Setting { make: $make };

            conformance!(@tests collectives: blocking, asynchronous, roots, elements, in_place, to_one_alone);
            conformance!(@tests messages: by_tag, any_source, out_of_order, long, around_the_circle, before_a_collective, batches, batches_with_an_error, futures, failed, from_several_threads);
            conformance!(@tests asynchronous: several_in_flight, dropped_early, leaked, wait_timeout, late_in_the_queue, awaited, taken_twice);
            conformance!(@tests reductions: every_operation_and_type, scaled);
            conformance!(@tests same_bits: floats, halves);
            conformance!(@tests lent: buffers_of_the_group);
            conformance!(@tests lists: of_any_lengths, of_wrong_lengths);
            conformance!(@tests coalesced: as_one, many, of_different_kinds, cut_otherwise);
            conformance!(@tests objects: of_any_size, blobs, in_messages, in_messages_of_two_threads, in_messages_held_up, of_different_types, not_given, too_long);
            conformance!(@tests monitored: all_come, some_are_missing, rank_0_is_missing);
            conformance!(@tests watched: by_hooks, by_alarms, works, for_nan);
            conformance!(@tests quarrels: aborted, aborted_before, given_up, given_up_before, back_in_the_last_moment, beyond_all_memory, every_mistake, queued_before, swapped, messages, messages_of_who_was_told);
            conformance!(@tests matrix: every_shape_in_every_world);
            conformance!(@tests soak: soak, many_short_worlds);
        }
    )*};
    (@tests $room:ident: $($test:ident),*) => {
        mod $room {
            $(#[test]
            fn $test() {
                crate::$room::$test(&super::SETTING);
            })*
        }
    };
}

conformance! {
    windows => |size, options| Threads::new(size).options(options).groups(),
    links => |size, options| Threads::new(size).windows(false).options(options).groups(),
    checksums => |size, options| Threads::new(size).windows(false).checksum(true).options(options).groups(),
    hosts_in_rows => |size, options| Threads::new(size).hosts(rows(size)).options(options).groups(),
    hosts_interleaved => |size, options| Threads::new(size).hosts(interleaved(size)).options(options).groups(),
}

conformance! {
    shm => |size, options| joined(size, |rank| rank.options(options.clone())),
    shm_copies => |size, options| joined(size, |rank| rank.cross_memory(false).options(options.clone())),
    shm_links => |size, options| joined(size, |rank| rank.windows(false).options(options.clone())),
    tcp => |size, options| connected(size, |rank| rank.shared_memory(false).options(options.clone())),
    tcp_encrypted => |size, options| {
        connected(size, |rank| rank.shared_memory(false).key(key()).options(options.clone()))
    },
    tcp_authenticated => |size, options| {
        let rank = |rank: phalanx_comm::Network| rank.shared_memory(false).key(key()).protection(Protection::Authenticated);
        connected(size, |network| rank(network).options(options.clone()))
    },
    tcp_checksums => |size, options| {
        connected(size, |rank| rank.shared_memory(false).checksum(true).options(options.clone()))
    },
    mixed_in_rows => |size, options| connected(size, |rank| rank.hosts(rows(size)).options(options.clone())),
    mixed_interleaved => |size, options| connected(size, |rank| rank.hosts(interleaved(size)).options(options.clone())),
    mixed_on_one_host => |size, options| connected(size, |rank| rank.options(options.clone())),
    mixed_links => |size, options| {
        connected(size, |rank| rank.hosts(interleaved(size)).windows(false).key(key()).options(options.clone()))
    },
}

/// Collectives by each algorithm wherever it can play them, not only where it would be chosen.
macro_rules! algorithms {
    ($($name:ident => $wish:ident),* $(,)?) => {
        mod algorithm {
            use super::*;

            $(#[test]
            fn $name() {
                algorithms::wished(&Setting {
                    make: |size, options| Threads::new(size).algorithm(Algorithm::$wish).options(options).groups(),
                });
                algorithms::wished(&Setting {
                    make: |size, options| {
                        Threads::new(size).hosts(rows(size)).algorithm(Algorithm::$wish).options(options).groups()
                    },
                });
            })*
        }
    };
}

algorithms! {
    ring => Ring,
    halving => Halving,
    doubling => Doubling,
    tree => Tree,
    chain => Chain,
    exchange => Exchange,
    direct => Direct,
    at_once => AtOnce,
    two_level => TwoLevel,
    dissemination => Dissemination,
}
