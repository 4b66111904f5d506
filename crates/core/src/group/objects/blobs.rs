//! Blobs: bytes of any length, for callers with a format of their own. The receivers need not know how many come.

use super::exchange::{Exchange, Gift, check_root};
use crate::group::Group;
use crate::{Error, OpKind, Result, Site};

impl Group {
    /// Every rank gets `root`'s bytes; what other ranks give is not looked at. As
    /// [`broadcast_object`](Group::broadcast_object), for bytes.
    ///
    /// # Errors
    ///
    /// As [`broadcast_object`](Group::broadcast_object), where bytes are a type of their own and always readable.
    #[track_caller]
    pub fn broadcast_bytes(&self, value: Option<Vec<u8>>, root: usize) -> Result<Vec<u8>> {
        let exchange = self.blobs(OpKind::Broadcast, root, Site::caller())?;
        exchange.broadcast(given_at(self, OpKind::Broadcast, root, value.map(Gift::Bytes)))
    }

    /// Every rank gets all ranks' bytes, in rank order. As [`all_gather_object`](Group::all_gather_object), for bytes.
    ///
    /// # Errors
    ///
    /// As [`all_gather_object`](Group::all_gather_object) and [`broadcast_bytes`](Group::broadcast_bytes).
    #[track_caller]
    pub fn all_gather_bytes(&self, value: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.blobs(OpKind::AllGather, 0, Site::caller())?.all_gather(Gift::Bytes(value.to_vec()))
    }

    /// `root` gets all ranks' bytes, in rank order; the others get none. As [`gather_object`](Group::gather_object), for
    /// bytes.
    ///
    /// # Errors
    ///
    /// As [`gather_object`](Group::gather_object) and [`broadcast_bytes`](Group::broadcast_bytes).
    #[track_caller]
    pub fn gather_bytes(&self, value: &[u8], root: usize) -> Result<Option<Vec<Vec<u8>>>> {
        self.blobs(OpKind::Gather, root, Site::caller())?.gather(Gift::Bytes(value.to_vec()))
    }

    /// Every rank gets the bytes that `root` has for it; what other ranks give is not looked at. As
    /// [`scatter_objects`](Group::scatter_objects), for bytes.
    ///
    /// # Errors
    ///
    /// As [`scatter_objects`](Group::scatter_objects) and [`broadcast_bytes`](Group::broadcast_bytes).
    #[track_caller]
    pub fn scatter_bytes(&self, values: Option<&[&[u8]]>, root: usize) -> Result<Vec<u8>> {
        let exchange = self.blobs(OpKind::Scatter, root, Site::caller())?;
        let gift = values.map(|values| each(self, values, |value| Ok(value.to_vec())));
        exchange.scatter(given_at(self, OpKind::Scatter, root, gift))
    }

    fn blobs(&self, kind: OpKind, root: usize, site: Site) -> Result<Exchange<'_>> {
        check_root(self, kind, root)?;
        Ok(Exchange { group: self, kind, root, type_name: BLOB, site, began: self.shared.backend.now() })
    }
}

/// What a rank gives where only `root` does, and must.
pub(super) fn given_at(group: &Group, kind: OpKind, root: usize, gift: Option<Gift>) -> Gift {
    match gift {
        _ if group.rank() != root => Gift::Nothing,
        Some(gift) => gift,
        None => Gift::Refused(Error::usage(kind, "value", "none", "must be given by the root")),
    }
}

/// One for each rank, or why not.
pub(super) fn each<T>(group: &Group, values: &[T], bytes: impl Fn(&T) -> Result<Vec<u8>>) -> Gift {
    let listed = crate::group::check::check_list(OpKind::Scatter, "values", values.len(), group.size());
    let all = listed.and_then(|()| values.iter().map(bytes).collect());
    all.map_or_else(Gift::Refused, Gift::Each)
}

/// What the type of blobs is called. No type of Rust's has such a name.
pub(super) const BLOB: &str = "bytes";
