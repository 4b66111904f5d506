//! What an optimizer remembers of each part, and of which parts that is: the values of one rank say nothing to another.

use phalanx_fsdp::Part;

use crate::error::{Error, Result};
use crate::model::Model;

/// One quantity or more of each part of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct PartMemory<Q> {
    parts: Vec<Part>,
    of_parts: Vec<Q>,
}

impl<Q: Default> PartMemory<Q> {
    /// What is remembered of this model's parts, in their order, to go on with. `make` makes room for a part that is trained.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where it is of other parts.
    pub(super) fn go_on(&mut self, optimizer: &str, model: &Model, make: impl Fn(usize) -> Q) -> Result<&mut [Q]> {
        if self.is_of_others(model) {
            let told = self.difference(model);
            let why = format!(
                "step: what {optimizer} remembers is of {told}: resume it from a checkpoint, or take a new one"
            );
            return Err(Error::Usage(why));
        }
        Ok(self.begin(model, make))
    }

    /// The same, where that of other parts is forgotten.
    pub(super) fn begin(&mut self, model: &Model, make: impl Fn(usize) -> Q) -> &mut [Q] {
        if !self.is_of(model) {
            let room = |part: &Part| if part.is_trained { make(part.elements.len()) } else { Q::default() };
            self.parts = model.parts().to_vec();
            self.of_parts = self.parts.iter().map(room).collect();
        }
        &mut self.of_parts
    }

    /// Whether what is remembered is of other parts.
    pub(super) fn is_of_others(&self, model: &Model) -> bool {
        !self.parts.is_empty() && !self.is_of(model)
    }

    /// Whether the parts are the same. Whether the values are those that the optimizer had stepped to, nothing here says.
    fn is_of(&self, model: &Model) -> bool {
        self.parts.len() == model.parts().len() && self.apart(model).is_none()
    }

    /// The first part that is another than the model's.
    fn apart<'a>(&'a self, model: &'a Model) -> Option<(&'a Part, &'a Part)> {
        // Who writes it down is no matter here: where all ranks hold everything, another may be the first after a change.
        let of = |part: &'a Part| (&part.name, &part.shape, &part.elements, part.is_trained);
        self.parts.iter().zip(model.parts()).find(|(own, given)| of(own) != of(given))
    }

    fn difference(&self, model: &Model) -> String {
        let named = |part: &Part| format!("elements {:?} of {} {:?}", part.elements, part.name, part.shape);
        match self.apart(model) {
            Some((own, given)) => format!("{}, and the model has {}", named(own), named(given)),
            None => format!("{} parts, and the model has {}", self.parts.len(), model.parts().len()),
        }
    }
}
