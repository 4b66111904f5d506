//! Collectives by an algorithm of the caller's choice.

use crate::case::Case;
use crate::collectives::{Kind, begin, play};
use crate::setting::{Setting, WORLDS};

pub(crate) fn wished(setting: &Setting) {
    for size in WORLDS {
        setting.run(size, |group| {
            for (kind, len) in Kind::ALL.into_iter().flat_map(|kind| [0, 1, 7, 1001].map(|len| (kind, len))) {
                let case = Case::new(len as u64, size, len);
                play::<u32>(kind, group, &case);
                begin::<f32>(kind, group, &case)();
            }
            play::<i64>(Kind::AllReduce, group, &Case::new(1, size, 50_000));
        });
    }
}
