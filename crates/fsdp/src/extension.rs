//! Parameters that are gathered in another form than their elements: quantised ones with their scales, say. How such a form lies in a
//! row is the layout's to say.

use std::fmt;

use phalanx_core::DType;

/// Another form in which a parameter is gathered, of inputs that may differ in type. A value: it holds nothing of any parameter.
pub trait Extension: fmt::Debug + Send + Sync {
    /// What a part of so many elements is gathered as: the type of each input, and how many elements it has. The same on every rank.
    fn inputs(&self, len: usize) -> Vec<(DType, usize)>;

    /// Makes the inputs of this rank's part, which ends in zeros where it is padded.
    fn encode(&self, part: &[f32], inputs: &mut [&mut [u8]]);

    /// Makes the elements of one rank's part of what it was gathered as.
    fn decode(&self, inputs: &[&[u8]], part: &mut [f32]);
}
