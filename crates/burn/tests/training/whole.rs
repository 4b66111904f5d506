//! What each rank keeps whole and nothing trains: integers and booleans are the first rank's.

use burn::module::{Module, Param, ParamId, Quantizer};
use burn::tensor::quantization::{Calibration, QuantScheme, QuantStore, QuantValue, ScaleDtype};
use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use burn_nn::{Linear, LinearConfig};
use phalanx_burn::{Ddp, FullyShard, Policy, Units};
use phalanx_comm::Threads;
use phalanx_core::{Error, ErrorKind, Group};

use crate::model::device;

/// That each rank has ended with the ranks' disagreement, in words that hold all of these.
fn all_are_told(ends: phalanx_core::Result<Vec<Error>>, expected: &[&str]) {
    for told in ends.expect("a world") {
        assert_eq!(told.kind(), ErrorKind::Desync, "{told}");
        for words in expected {
            assert!(told.to_string().contains(words), "{told}");
        }
    }
}

/// A layer beside an order and a mask.
#[derive(Module, Debug)]
struct Ordered {
    layer: Linear,
    order: Param<Tensor<1, Int>>,
    mask: Param<Tensor<1, Bool>>,
}

impl Ordered {
    /// Other values on each rank.
    fn new(rank: usize, len: usize) -> Ordered {
        let order: Vec<i64> = (0..len).map(|at| (at + 10 * rank) as i64).collect();
        let mask: Vec<bool> = (0..len).map(|at| at % 2 == rank).collect();
        let order = Tensor::from_data(TensorData::new(order, [len]), &device());
        let mask = Tensor::from_data(TensorData::new(mask, [len]), &device());
        Ordered {
            layer: LinearConfig::new(2, 3).init(&device()),
            order: Param::initialized(ParamId::new(), order),
            mask: Param::initialized(ParamId::new(), mask),
        }
    }

    fn values(&self) -> [TensorData; 2] {
        [self.order.to_data(), self.mask.to_data()]
    }
}

#[test]
fn integers_and_booleans_are_the_first_ranks() {
    let whole = |group: Group| {
        let model = Ordered::new(group.rank(), 5);
        Ddp::new(group, model).expect("a model").1.values()
    };
    let sharded = |group: Group| {
        let mut units = Units::new();
        let unit = units.add("unit", Ordered::new(group.rank(), 5));
        let mut model = FullyShard::new(group, Policy::default(), units).expect("a model");
        model.module(unit).expect("a module").values()
    };
    let wanted = Ordered::new(0, 5).values();
    for ends in [Threads::new(2).run(whole), Threads::new(2).run(sharded)] {
        assert_eq!(ends.expect("a world"), [wanted.clone(), wanted.clone()]);
    }
}

#[test]
fn integers_of_another_shape_are_told_by_name() {
    let ends = Threads::new(2).run(|group| {
        let mut units = Units::new();
        units.add("unit", Ordered::new(0, 5 + group.rank()));
        FullyShard::new(group, Policy::default(), units).expect_err("an error")
    });
    all_are_told(ends, &["\"unit.order\" of unit \"unit\", [5]"]);
}

/// A layer beside a table.
#[derive(Module, Debug)]
struct Tabled {
    layer: Linear,
    table: Param<Tensor<2, Int>>,
}

/// Each has as many bytes as the others.
#[test]
fn integers_of_another_shape_or_type_are_told_by_name_where_models_are_whole() {
    let tables = [([2_usize, 3], DType::I64), ([3, 2], DType::I64), ([3, 4], DType::I32)];
    for odd in [1, 2] {
        let ends = Threads::new(2).run(|group| {
            let (shape, dtype) = tables[group.rank() * odd];
            let table = Tensor::<2, Int>::zeros(shape, (&device(), dtype));
            let layer = LinearConfig::new(2, 3).init(&device());
            let model = Tabled { layer, table: Param::initialized(ParamId::new(), table) };
            Ddp::new(group, model).map(drop).expect_err("an error")
        });
        all_are_told(ends, &["\"table\", [2, 3] i64, Ignored"]);
    }
}

/// A frozen one is the first rank's too.
#[test]
fn frozen_parameters_of_another_shape_are_told_by_name_where_models_are_whole() {
    let ends = Threads::new(2).run(|group| {
        let [rows, columns] = if group.rank() == 0 { [2, 3] } else { [3, 2] };
        let frozen = LinearConfig::new(rows, columns).with_bias(false).init(&device()).freeze();
        let model: (Linear, Linear) = (LinearConfig::new(2, 3).init(&device()), frozen);
        Ddp::new(group, model).map(drop).expect_err("an error")
    });
    all_are_told(ends, &["weight\", [2, 3] f32, Frozen"]);
}

/// Its gradients are averaged in the same type.
#[test]
fn trained_parameters_of_another_type_are_told_by_name_where_models_are_whole() {
    let ends = Threads::new(2).run(|group| {
        let layer = LinearConfig::new(2, 3).with_bias(false).init(&device());
        let dtype = if group.rank() == 0 { DType::F32 } else { DType::BF16 };
        let layer = Linear { weight: layer.weight.map(|weight| weight.cast(dtype).detach().require_grad()), ..layer };
        Ddp::new(group, layer).map(drop).expect_err("an error")
    });
    let own = |dtype: &str| format!("\"weight as it is computed with\", [2, 3] {dtype}");
    all_are_told(ends, &[&own("f32"), &own("bf16")]);
}

/// A layer beside packed weights, with a scale for each row of them, or for each column: as many bytes.
fn packed(has_rows: bool) -> (Linear, Linear) {
    let block = if has_rows { [1_u8, 32] } else { [32, 1] };
    let scheme = QuantScheme::default().with_value(QuantValue::Q8S).with_store(QuantStore::Native);
    let mut quantizer = Quantizer::new(Calibration::MinMax, scheme.per_block(block, ScaleDtype::F32));
    let base: Linear = LinearConfig::new(32, 32).with_bias(false).init(&device());
    (LinearConfig::new(2, 3).init(&device()), base.freeze().quantize_weights(&mut quantizer))
}

#[test]
fn weights_that_are_packed_in_another_way_are_told_by_name() {
    let whole = |group: Group| {
        let model = packed(group.rank() == 0);
        Ddp::new(group, model).map(drop).expect_err("an error")
    };
    let sharded = |group: Group| {
        let mut units = Units::new();
        units.add("unit", packed(group.rank() == 0));
        FullyShard::new(group, Policy::default(), units).map(drop).expect_err("an error")
    };
    for ends in [Threads::new(2).run(whole), Threads::new(2).run(sharded)] {
        all_are_told(ends, &["weight, packed by QuantScheme"]);
    }
}

#[test]
fn weights_that_are_packed_alike_are_the_first_ranks() {
    let whole = |group: Group| {
        let (_, (_, base)) = Ddp::new(group, packed(true)).expect("a model");
        base.weight.to_data()
    };
    let ends = Threads::new(2).run(whole).expect("a world");
    assert_eq!(ends[0], ends[1]);
}
