//! Operations whose memory is not the host's: checked, numbered and recorded like all others, and then carried out by whoever has the
//! memory.

use super::check::{self, Lens};
use super::{Group, Result};
use crate::call::Call;
use crate::reduce::Factor;
use crate::{DType, Error, Op, Site};

impl Group {
    /// The call of an operation over memory that the group's own backend holds and this group does not see: buffers of so many
    /// elements, the input absent where it works in place. Whoever makes it [ends](Call::end) it.
    ///
    /// # Errors
    ///
    /// [`Usage`](crate::ErrorKind::Usage) where the operation may not be called like this, and of what the group failed.
    #[track_caller]
    pub fn call_elsewhere(
        &self,
        op: Op,
        dtype: DType,
        factor: Option<Factor>,
        input: Option<usize>,
        output: usize,
    ) -> Result<Call> {
        check::check(&op, dtype, factor, &self.shared.layout, Lens { input, output })?;
        let call = self.number(op, dtype, factor, input.is_none(), Site::caller())?;
        call.open(self.shared.backend.now());
        Ok(call)
    }

    /// The failure of such a call as its caller gets it, of which the group's alarms are told.
    pub fn failed_elsewhere(&self, error: Error) -> Error {
        self.failed(error)
    }
}
