//! Variables that several units use: the first unit holds them, the others borrow. What that means for the order of a step, and where
//! the gradients of borrowers go.

use std::collections::HashMap;

use candle_core::Tensor;

use crate::error::{Error, Result};
use crate::unit::{Borrowed, Unit};

/// Who uses what of whom.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// For each unit the last one that uses its parameters, which mostly is itself.
    last_users: Vec<usize>,
    /// Gradients of borrowers by the unit and number of the parameter, until its own come.
    owed: HashMap<(usize, usize), Tensor>,
}

impl Sharing {
    /// Finds the variables that stand in several units, and leaves each to the first.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where one unit has a variable twice, or units do not agree on whether it is trained.
    pub(crate) fn settle(units: &mut [Unit]) -> Result<Sharing> {
        let mut last_users: Vec<usize> = (0..units.len()).collect();
        let mut holders = HashMap::new();
        for index in 0..units.len() {
            let given = std::mem::take(&mut units[index].parameters);
            for parameter in given {
                let at = units[index].parameters.len();
                let (owner, held_at) = *holders.entry(parameter.var.id()).or_insert((index, at));
                if (owner, held_at) == (index, at) {
                    units[index].parameters.push(parameter);
                    continue;
                }
                let held = &units[owner].parameters[held_at];
                let (own, first) = (&parameter.name, &held.name);
                if owner == index {
                    let why = format!("{first} and {own} of unit {} are one variable: give it once", units[index].name);
                    return Err(Error::Usage(format!("Model::new: {why}")));
                }
                if held.is_trained != parameter.is_trained {
                    let why =
                        format!("{first} and {own} are one variable: must be frozen in both units or trained in both");
                    return Err(Error::Usage(format!("Model::new: {why}")));
                }
                units[index].borrowed.push(Borrowed { owner, at: held_at, var: parameter.var });
                last_users[owner] = index;
            }
        }
        Ok(Sharing { last_users, owed: HashMap::new() })
    }

    /// Units before this one whose parameters nobody uses any more once this one has run.
    pub(crate) fn lenders(&self, last_user: usize) -> impl Iterator<Item = usize> + '_ {
        (0..last_user).filter(move |owner| self.last_users[*owner] == last_user)
    }

    /// Whether units after this one use its parameters as well.
    pub(crate) fn lends(&self, unit: usize) -> bool {
        self.last_users[unit] != unit
    }

    /// Forgets gradients of a backward that was not finished.
    pub(crate) fn clear(&mut self) {
        self.owed.clear();
    }

    /// Keeps the gradients that came for what a unit has borrowed.
    pub(crate) fn owe(&mut self, unit: &Unit, gradients: impl IntoIterator<Item = Option<Tensor>>) -> Result<()> {
        for (borrowed, gradient) in unit.borrowed.iter().zip(gradients) {
            let Some(gradient) = gradient else { continue };
            let place = (borrowed.owner, borrowed.at);
            let sum = match self.owed.remove(&place) {
                Some(sum) => (sum + gradient)?,
                None => gradient,
            };
            self.owed.insert(place, sum);
        }
        Ok(())
    }

    /// Adds what borrowers owe to a unit's own gradients.
    pub(crate) fn pay(&mut self, unit: usize, gradients: &mut [Option<Tensor>]) -> Result<()> {
        for (at, gradient) in gradients.iter_mut().enumerate() {
            let Some(owed) = self.owed.remove(&(unit, at)) else { continue };
            *gradient = Some(match gradient.take() {
                Some(own) => (own + owed)?,
                None => owed,
            });
        }
        Ok(())
    }
}
