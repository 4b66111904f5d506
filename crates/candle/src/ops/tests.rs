//! Gradients against finite differences in `f64`, and the fused forms against those made of basic operations.

use candle_core::{DType, Device, Result, Tensor, Var};

use super::*;

fn random(seed: u64, shape: &[usize], dtype: DType) -> Var {
    let mut draw = fastrand::Rng::with_seed(seed);
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| draw.f64() * 4.0 - 2.0).collect();
    let tensor = Tensor::from_vec(values, shape, &Device::Cpu).and_then(|tensor| tensor.to_dtype(dtype));
    Var::from_tensor(&tensor.expect("a tensor")).expect("a variable")
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).and_then(|all| all.flatten_all()?.to_vec1()).expect("values")
}

/// A scalar that weighs every element of the output differently.
fn weighed(output: &Tensor) -> Result<Tensor> {
    let weights = random(99, output.dims(), output.dtype());
    output.mul(&weights.as_detached_tensor())?.sum_all()
}

type Op<'a> = &'a dyn Fn(&[&Tensor]) -> Result<Tensor>;

fn gradients(op: Op<'_>, inputs: &[Var]) -> Vec<Vec<f64>> {
    let tensors: Vec<&Tensor> = inputs.iter().map(|input| input.as_tensor()).collect();
    let grads = weighed(&op(&tensors).expect("forward")).and_then(|loss| loss.backward()).expect("backward");
    inputs.iter().map(|input| values(grads.get(input).expect("a gradient"))).collect()
}

/// The op in `f64` against central differences, and in `f32` against itself in `f64`.
fn check(op: Op<'_>, shapes: &[&[usize]]) {
    let at = |dtype| -> Vec<Var> { (1..).zip(shapes).map(|(seed, shape)| random(seed, shape, dtype)).collect() };
    let wide = at(DType::F64);
    let exact = gradients(op, &wide);
    for (which, input) in wide.iter().enumerate() {
        for (element, exact) in exact[which].iter().enumerate() {
            let loss = |shift: f64| {
                let mut moved = values(input);
                moved[element] += shift;
                let moved = Tensor::from_vec(moved, input.shape(), &Device::Cpu).expect("a tensor");
                let mut tensors: Vec<&Tensor> = wide.iter().map(|input| input.as_tensor()).collect();
                tensors[which] = &moved;
                let loss = weighed(&op(&tensors).expect("forward")).and_then(|loss| loss.to_scalar::<f64>());
                loss.expect("a number")
            };
            let expected = (loss(1e-5) - loss(-1e-5)) / 2e-5;
            assert!((exact - expected).abs() < 1e-5, "input {which}, element {element}: {exact}, not {expected}");
        }
    }
    let narrow = at(DType::F32);
    let tensors = |inputs: &[Var]| {
        values(&op(&inputs.iter().map(|input| input.as_tensor()).collect::<Vec<_>>()).expect("forward"))
    };
    assert_close(&tensors(&narrow), &tensors(&wide));
    gradients(op, &narrow).iter().zip(&exact).for_each(|(narrow, wide)| assert_close(narrow, wide));
}

fn assert_close(narrow: &[f64], wide: &[f64]) {
    assert_eq!(narrow.len(), wide.len());
    for (narrow, wide) in narrow.iter().zip(wide) {
        assert!((narrow - wide).abs() <= 2e-6 * wide.abs().max(4.0), "{narrow}, not {wide}");
    }
}

#[test]
fn norms_have_their_gradients() {
    for width in [1, 5, 37] {
        check(&|inputs| layer_norm(inputs[0], inputs[1], 1e-2), &[&[2, 3, width], &[width]]);
        check(&|inputs| rms_norm(inputs[0], inputs[1], 1e-2), &[&[2, 3, width], &[width]]);
    }
}

#[test]
fn softmax_has_its_gradient() {
    check(&|inputs| softmax(inputs[0]), &[&[3, 19]]);
    check(&|inputs| causal_softmax(inputs[0], 0.7), &[&[2, 5, 5]]);
    // The largest of what is scaled, not of what is given: beside the smallest all others would be infinite.
    check(&|inputs| causal_softmax(inputs[0], -90.0), &[&[1, 3, 3]]);
}

#[test]
fn nothing_of_the_future_is_seen() {
    let seen = causal_softmax(&random(1, &[4, 4], DType::F32), 1.0).expect("a softmax").to_vec2::<f32>().expect("rows");
    for (row, columns) in seen.iter().enumerate() {
        assert!(columns[row + 1..].iter().all(|share| *share == 0.0));
        assert!((columns.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }
}

#[test]
fn gelu_and_linear_have_their_gradients() {
    check(&|inputs| gelu(inputs[0]), &[&[40]]);
    check(&|inputs| linear(inputs[0], inputs[1]), &[&[2, 3, 4], &[5, 4]]);
}

#[test]
fn rope_has_its_gradient_and_keeps_lengths() {
    let (cos, sin) = rope_tables(3, 6, 100.0, &Device::Cpu).expect("tables");
    check(&|inputs| rope(inputs[0], &cos, &sin), &[&[2, 3, 6]]);
    let x = random(1, &[3, 6], DType::F64);
    let length = |x: &Tensor| values(&x.sqr().and_then(|x| x.sum(1)).expect("sums"));
    let turned = rope(&x, &cos, &sin).expect("turned");
    assert_close(&length(&turned), &length(&x));
    assert_eq!(values(&turned)[..6], values(&x)[..6]);
}

#[test]
fn cross_entropy_has_its_gradient() {
    let targets = Tensor::new(&[0_u32, 6, 3], &Device::Cpu).expect("targets");
    check(&|inputs| cross_entropy(inputs[0], &targets), &[&[3, 7]]);
    let even = Tensor::zeros((3, 7), DType::F32, &Device::Cpu).and_then(|logits| cross_entropy(&logits, &targets));
    assert!((values(&even.expect("a loss"))[0] - 7.0_f64.ln()).abs() < 1e-6);
}

#[test]
fn sixteen_bits_are_widened_and_narrowed() {
    let (x, weight) = (random(1, &[3, 8], DType::BF16), random(2, &[8], DType::BF16));
    for output in [softmax(&x), gelu(&x), layer_norm(&x, &weight, 1e-5), rms_norm(&x, &weight, 1e-5)] {
        let output = output.expect("forward");
        assert_eq!(output.dtype(), DType::BF16);
        let grads = output.sum_all().and_then(|loss| loss.backward()).expect("backward");
        assert_eq!(grads.get(&x).expect("a gradient").dtype(), DType::BF16);
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let x = random(1, &[2, 3], DType::F32);
    let targets = |values: &[u32]| Tensor::new(values, &Device::Cpu).expect("targets");
    let refused = [
        (layer_norm(&x, &random(2, &[2], DType::F32), 1e-5), "norm: the weight is [2]"),
        (causal_softmax(&x, 1.0), "2 rows and 3 columns"),
        (linear(&x, &random(2, &[2, 2], DType::F32)), "a weight of [2, 2]"),
        (cross_entropy(&x, &targets(&[0])), "1 targets for 2 rows"),
        (cross_entropy(&x, &targets(&[0, 3])), "target 3 of 3 classes"),
        (rope(&x, &x, &x), "rope: 2 positions of 3"),
    ];
    for (refused, why) in refused {
        let told = refused.expect_err("refused").to_string();
        assert!(told.contains(why), "{told}");
    }
}
