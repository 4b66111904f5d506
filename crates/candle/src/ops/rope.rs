//! Rotary position embedding: pairs of elements turned by an angle that grows with the position.

use candle_core::{D, Result, Tensor};

/// Turns `x` of `[.., positions, width]`: element `i` of the first half with element `i` of the second, by the angle whose cosine
/// and sine stand in `cos` and `sin` of `[positions, width / 2]`. Made of basic operations, so gradients flow.
///
/// # Errors
///
/// Where the width is odd or the tables do not fit.
pub fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (positions, width) = (x.dim(D::Minus2)?, x.dim(D::Minus1)?);
    let half = width / 2;
    if width % 2 != 0 || cos.dims() != [positions, half] || sin.dims() != cos.dims() {
        candle_core::bail!("rope: {positions} positions of {width} with tables {:?} and {:?}", cos.dims(), sin.dims());
    }
    let (cos, sin) = (cos.to_dtype(x.dtype())?, sin.to_dtype(x.dtype())?);
    let (first, second) = (x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?);
    let turned = (first.broadcast_mul(&cos)? - second.broadcast_mul(&sin)?)?;
    let other = (second.broadcast_mul(&cos)? + first.broadcast_mul(&sin)?)?;
    Tensor::cat(&[turned, other], D::Minus1)
}

/// The cosines and sines of `position / base^(2 i / width)`, each `[positions, width / 2]`.
///
/// # Errors
///
/// Where the device has no room for them.
pub fn rope_tables(
    positions: usize,
    width: usize,
    base: f64,
    device: &candle_core::Device,
) -> Result<(Tensor, Tensor)> {
    let angle = |at: usize| {
        let (position, pair) = ((at / (width / 2)) as f64, (at % (width / 2)) as f64);
        (position / base.powf(2.0 * pair / width as f64)) as f32
    };
    let angles: Vec<f32> = (0..positions * (width / 2)).map(angle).collect();
    let angles = Tensor::from_vec(angles, (positions, width / 2), device)?;
    Ok((angles.cos()?, angles.sin()?))
}
