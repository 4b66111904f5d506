//! What the Python package `phalanx` is made of below Python: groups, works and stores, called with addresses of memory.
//!
//! Nothing of PyTorch is known here: tensors, their dtypes and PyTorch's classes are the business of the package's Python
//! sources, in `python/phalanx`. The one room with unsafe code is `memory`.

mod callsite;
mod completion;
mod failure;
mod group;
mod held;
mod joining;
mod keys;
mod manner;
mod memory;
mod module;
mod operation;
mod presence;
mod served;
mod shared;
mod store;
mod work;
mod world;
