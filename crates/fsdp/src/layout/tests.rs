//! Divisions and rows by their numbers.

use super::*;

fn rows(shape: &[usize], world: usize) -> Vec<usize> {
    let division = Division::new(shape, world).expect("a length");
    (0..world).map(|rank| division.rows(rank).len()).collect()
}

#[test]
fn rows_are_divided_as_evenly_as_whole_chunks_go() {
    assert_eq!(rows(&[8, 3], 4), [2, 2, 2, 2]);
    assert_eq!(rows(&[7, 3], 4), [2, 2, 2, 1]);
    assert_eq!(rows(&[5, 3], 4), [2, 2, 1, 0]);
    assert_eq!(rows(&[2, 3], 4), [1, 1, 0, 0]);
    assert_eq!(rows(&[], 3), [1, 0, 0]);
    assert_eq!(rows(&[0, 3], 2), [0, 0]);
    assert_eq!(rows(&[9], 1), [9]);
    assert!(Division::new(&[9, 2], 4).expect("a length").elements(usize::MAX).is_empty());
}

#[test]
fn shares_of_all_ranks_are_the_whole_in_order() {
    let shapes: [&[usize]; 7] = [&[], &[1], &[17, 57], &[64, 31, 2], &[3, 0], &[0], &[5, 1]];
    for (shape, world) in shapes.into_iter().flat_map(|shape| (1..=9).map(move |world| (shape, world))) {
        let division = Division::new(shape, world).expect("a length");
        let mut end = 0;
        for rank in 0..world {
            let own = division.elements(rank);
            assert!(own.start == end && own.len() <= division.padded_len(), "{shape:?} among {world}");
            end = own.end;
        }
        assert_eq!(end, shape.iter().product::<usize>());
        assert_eq!((division.full_len(), division.world()), (end, world));
        assert!(division.padded_len() * world < end + world * shape.iter().skip(1).product::<usize>().max(1));
    }
}

#[test]
fn lengths_beyond_memory_are_none() {
    assert!(Division::new(&[usize::MAX, 2], 1).is_none());
    assert!(Division::new(&[2, usize::MAX], 1).is_none());
    assert!(Division::new(&[usize::MAX / 8], 2).is_none());
    assert!(Division::new(&[usize::MAX], 3).is_none());
    assert!(Division::new(&[3], 0).is_none());
}

/// Parameters of any types in one row: each aligned, none over another, in order, and no more than the padding between.
#[test]
fn parameters_of_several_types_lie_apart_and_aligned() {
    let dtypes = [DType::F64, DType::F32, DType::F16, DType::BF16];
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(1..7);
        let shape = |random: &mut fastrand::Rng| [random.usize(..9), random.usize(1..5)];
        let params: Vec<_> = (0..count)
            .map(|index| ParamSpec::new(format!("p{index}"), &shape(&mut random), dtypes[random.usize(..4)]))
            .collect();
        let unit = UnitSpec::new("unit", params);
        let terms = Terms { world: random.usize(1..6), smaller: None, compute: None, reduce: Some(DType::F32) };
        let layout = UnitLayout::new(&unit, terms).expect("a layout");
        let (row, mut end) = (&layout.gather, 0);
        for (index, span) in row.spans() {
            let size = unit.params[index].dtype.byte_len();
            for rank in 0..terms.world {
                let (piece, padding) = (row.piece(&span, rank), row.padding(&span, rank));
                assert!(row.of(rank).contains(&piece.start) || row.of(rank).end == piece.start, "seed {seed}");
                assert!(piece.start % size == 0 && piece.end == padding.start, "seed {seed}");
                assert!(padding.end <= row.of(rank).end, "seed {seed}");
                assert_eq!(padding.end - piece.start, span.division.padded_len() * size, "seed {seed}");
            }
            assert!(row.piece(&span, 0).start >= end && row.piece(&span, 0).start < end + 8, "seed {seed}");
            end = row.padding(&span, 0).end;
        }
        assert_eq!(row.total(), row.byte_len * terms.world);
        assert_eq!(layout.reduce.byte_len, layout.divisions.iter().map(|own| own.padded_len() * 4).sum::<usize>());
        let one = unit.params.iter().all(|param| param.dtype == unit.params[0].dtype);
        assert_eq!(row.dtype.is_some(), one, "seed {seed}");
    }
}

#[test]
fn tied_and_ignored_parameters_take_no_room() {
    let param = |name: &str| ParamSpec::new(name, &[4, 2], DType::F32);
    let alone = UnitSpec::new("unit", vec![param("a"), param("b").trainable(false)]);
    // What is left alone may be of any type.
    let ignored = ParamSpec::new("d", &[4, 2], DType::I64).ignored();
    let more = vec![param("a"), param("c").tied_to("a"), ignored, param("b").trainable(false)];
    let more = UnitSpec::new("unit", [more, vec![param("e").tied_to("c")]].concat());
    let terms = Terms { world: 2, smaller: Some(1), compute: Some(DType::BF16), reduce: Some(DType::F32) };
    let [alone, more] = [alone, more].map(|unit| UnitLayout::new(&unit, terms).expect("a layout"));
    assert_eq!(more.owners, [Some(0), Some(0), None, Some(3), Some(0)]);
    assert_eq!((alone.gather.byte_len, more.gather.byte_len), (16, 16));
    assert_eq!((alone.reduce.byte_len, more.reduce.byte_len), (16, 16));
    assert_eq!(more.gathered(true).byte_len, 32);
    assert_eq!(more.gathered(false).byte_len, 16);
}

#[test]
fn units_beyond_memory_are_refused() {
    let param = |name: &str| ParamSpec::new(name, &[usize::MAX / 32], DType::F32);
    let terms = Terms { world: 1, smaller: None, compute: None, reduce: None };
    let one = UnitSpec::new("unit", vec![param("a")]);
    assert!(UnitLayout::new(&one, terms).is_ok());
    let many = UnitSpec::new("unit", ["a", "b", "c", "d", "e", "f", "g", "h"].map(param).to_vec());
    let error = UnitLayout::new(&many, terms).expect_err("a refusal");
    assert_eq!(error.to_string(), "Sharded::new: unit is \"unit\", must have parameters that fit into memory together");
}
