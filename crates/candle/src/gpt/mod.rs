//! A small GPT to try training with: the model of `phalanx train`.

mod initial;
mod model;
mod options;

pub use initial::initial;
pub use model::Gpt;
pub use options::GptOptions;
