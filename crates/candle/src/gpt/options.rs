//! How large a GPT is.

use crate::error::{Error, Result};

/// The sizes of a [`Gpt`](super::Gpt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GptOptions {
    /// How many tokens there are.
    pub vocabulary: usize,
    /// How many tokens it looks back at, the present one included.
    pub context: usize,
    /// How many numbers a position has between blocks.
    pub width: usize,
    /// How many blocks there are.
    pub layers: usize,
    /// Among how many heads the width is divided.
    pub heads: usize,
}

impl GptOptions {
    /// Refuses what cannot be.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`], which names the size.
    pub fn check(&self) -> Result<()> {
        let refuse = |why: String| Err(Error::Usage(why));
        let sizes = [
            ("vocabulary", self.vocabulary),
            ("context", self.context),
            ("width", self.width),
            ("layers", self.layers),
            ("heads", self.heads),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return refuse(format!("{name} is 0: must be at least 1"));
        }
        if !self.width.is_multiple_of(self.heads) {
            return refuse(format!("width is {}: must be a multiple of heads, which is {}", self.width, self.heads));
        }
        Ok(())
    }

    /// How many parameters it has.
    pub fn parameters(&self) -> usize {
        let block = 12 * self.width * self.width + 2 * self.width;
        (2 * self.vocabulary + self.context + 1) * self.width + self.layers * block
    }
}
