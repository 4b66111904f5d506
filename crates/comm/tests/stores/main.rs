//! Conformance of stores: one suite for every home, written against [`Store`](phalanx_core::store::Store) alone. A home
//! joins by one line below, which says how a store is made and how it is reached once more.

mod contention;
mod limits;
mod lockstep;
mod operations;
mod processes;
mod setting;
mod waiting;

use phalanx_comm::store::Speech;
use setting::{Setting, file, local, served};

/// The suite for each home, as a module of its name.
macro_rules! conformance {
    ($($home:ident $(($mark:ident))? => $make:expr),* $(,)?) => {$(
        mod $home {
            use super::*;

            const SETTING: Setting = Setting { make: $make };

            conformance!(@tests operations: values, presence, counters, compare_set, append, queues, barriers, bytes, scopes);
            conformance!(@tests waiting: woken_by_every_change, seen_one_after_the_other, values_of_one_moment, deadlines,
                a_time_of_zero, many_who_wait, given_up);
            conformance!(@tests contention: adding, comparing, appending, popping, meeting, pairs);
            conformance!(@tests lockstep: a_thousand_operations);
            conformance!(@limits $($mark)?);
        }
    )*};
    (@limits) => { conformance!(@tests limits: keys, values, messages, clients, whole, numbers, arguments); };
    // Words in which nothing can be refused.
    (@limits wordless) => {};
    (@tests $room:ident: $($test:ident),* $(,)?) => {
        mod $room {
            $(#[test]
            fn $test() {
                crate::$room::$test(&super::SETTING);
            })*
        }
    };
}

conformance! {
    in_memory => |limits| local(limits),
    in_a_file => |limits| file(limits),
    behind_a_server => |limits| served(limits, Speech::Either, false),
    behind_a_server_encrypted => |limits| served(limits, Speech::Either, true),
    behind_a_server_in_pytorchs_words (wordless) => |limits| served(limits, Speech::PyTorch, false),
}
