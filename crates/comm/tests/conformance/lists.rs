//! Lists: the same elements as over one slice, in parts of any length.

use phalanx_core::{Error, Group, ReduceOp};

use crate::case::Case;
use crate::setting::{SMALL_WORLDS, Setting};

pub(crate) fn of_any_lengths(setting: &Setting) {
    for size in SMALL_WORLDS {
        setting.run(size, |group| {
            for (seed, len) in [0, 1, 7, 3000].into_iter().enumerate() {
                let case = Case::new(seed as u64 + 40, size, len);
                for lens in [case.even(), case.uneven()] {
                    all_gather(group, &case, &lens);
                    reduce_scatter(group, &case, &lens);
                }
                all_to_all(group, &case);
                gather_and_scatter(group, &case);
            }
        });
    }
}

fn all_gather(group: &Group, case: &Case, lens: &[usize]) {
    let input = case.given::<f32>(group.rank(), 0, lens[group.rank()]);
    let mut outputs = stale(case, lens);
    group.all_gather_list(&input, &mut slices_mut(&mut outputs)).unwrap();
    for (from, output) in outputs.iter().enumerate() {
        assert!(*output == case.given::<f32>(from, 0, lens[from]), "{case:?} from {from}");
    }
}

fn reduce_scatter(group: &Group, case: &Case, lens: &[usize]) {
    let me = group.rank();
    let inputs: Vec<Vec<i64>> = lens.iter().enumerate().map(|(to, &len)| case.given(me, to, len)).collect();
    let mut output = case.stale::<i64>(lens[me]);
    group.reduce_scatter_list(&slices(&inputs), &mut output, ReduceOp::Sum).unwrap();
    assert!(output == case.sum::<i64>(me, lens[me]), "{case:?}");
}

fn all_to_all(group: &Group, case: &Case) {
    let (me, table) = (group.rank(), case.uneven_table());
    let inputs: Vec<Vec<u8>> = (0..case.size).map(|to| case.given(me, to, table[me][to])).collect();
    let mut outputs = stale(case, &(0..case.size).map(|from| table[from][me]).collect::<Vec<_>>());
    group.all_to_all_list(&slices(&inputs), &mut slices_mut(&mut outputs)).unwrap();
    for (from, output) in outputs.iter().enumerate() {
        assert!(*output == case.given::<u8>(from, me, table[from][me]), "{case:?} from {from}");
    }
}

fn gather_and_scatter(group: &Group, case: &Case) {
    let (me, root) = (group.rank(), case.root);
    let at_root = if me == root { case.even() } else { vec![] };
    let mut outputs = stale(case, &at_root);
    group.gather_list(&case.given::<f64>(me, 0, case.len), &mut slices_mut(&mut outputs), root).unwrap();
    for (from, output) in outputs.iter().enumerate() {
        assert!(*output == case.given::<f64>(from, 0, case.len), "{case:?} from {from}");
    }
    let inputs: Vec<Vec<u32>> = (0..at_root.len()).map(|to| case.given(root, to, case.len)).collect();
    let mut output = case.stale::<u32>(case.len);
    group.scatter_list(&slices(&inputs), &mut output, root).unwrap();
    assert!(output == case.given::<u32>(root, me, case.len), "{case:?}");
}

/// Every refusal names the entry; nothing is sent, so the group goes on.
pub(crate) fn of_wrong_lengths(setting: &Setting) {
    setting.run(2, |group| {
        let refused = |end: Result<(), Error>, expected: &str| assert_eq!(end.unwrap_err().to_string(), expected);
        let (mut one, mut two, own) = ([0_u8; 1], [0_u8; 2], group.rank());
        let list = "a list of 1, must have one for each of the 2 ranks";
        refused(group.all_gather_list(&[1], &mut [&mut one]), &format!("all_gather: outputs is {list}"));
        let end = group.reduce_scatter_list(&[&one], &mut two, ReduceOp::Sum);
        refused(end, &format!("reduce_scatter: inputs is {list}"));
        refused(group.all_to_all_list(&[&one], &mut [&mut two]), &format!("all_to_all: inputs is {list}"));
        let end = group.all_to_all_list(&[&[0], &[0]], &mut [&mut two]);
        refused(end, &format!("all_to_all: outputs is {list}"));
        let end = group.all_gather_list(&[1; 9], &mut [&mut one, &mut [0]]);
        refused(end, "all_gather: input is 9 elements long, must be 1");
        let end = group.gather_list(&[1], &mut [&mut one, &mut two], own);
        refused(end, "gather: outputs is 2 elements long in entry 1, must be 1");
        refused(
            group.scatter_list(&[&[0], &[0; 3]], &mut two, own),
            "scatter: inputs is 1 elements long in entry 0, must be 2",
        );
        let end = group.scatter_list(&[&[0; 2]], &mut two, 1 - own);
        refused(end, "scatter: inputs is a list of 1, must be empty on all ranks but the root");
        refused(group.gather_list::<u8>(&[1], &mut [], 2), "gather: root is 2, must be below the group size 2");
        group.barrier().unwrap();
    });
}

fn stale<T: crate::case::Sample>(case: &Case, lens: &[usize]) -> Vec<Vec<T>> {
    lens.iter().map(|&len| case.stale(len)).collect()
}

fn slices<T>(parts: &[Vec<T>]) -> Vec<&[T]> {
    parts.iter().map(Vec::as_slice).collect()
}

fn slices_mut<T>(parts: &mut [Vec<T>]) -> Vec<&mut [T]> {
    parts.iter_mut().map(Vec::as_mut_slice).collect()
}
