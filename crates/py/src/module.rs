//! What Python finds when it imports `phalanx._native`.

use pyo3::pymodule;

/// The native half of the package `phalanx`. Its functions take addresses and believe them: use the package instead.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::callsite::pass_over;
    #[pymodule_export]
    use crate::failure::{Error, NetworkError};
    #[pymodule_export]
    use crate::group::Group;
    #[pymodule_export]
    use crate::joining::{Door, host_identity, join};
    #[pymodule_export]
    use crate::keys::{DoorKey, OwnKey};
    #[pymodule_export]
    use crate::manner::Manner;
    #[pymodule_export]
    use crate::operation::Op;
    #[pymodule_export]
    use crate::presence::Presence;
    #[pymodule_export]
    use crate::shared::Memory;
    #[pymodule_export]
    use crate::store::{Store, StoreHost};
    #[pymodule_export]
    use crate::work::Work;
    #[pymodule_export]
    use crate::world::{World, init};
}
