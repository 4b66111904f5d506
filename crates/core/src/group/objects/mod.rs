//! Objects: values of any type that serde can write and read, between ranks that need not know how long they are. What comes
//! is read as data of the type that was asked for, within bounds, and never as code.

mod blobs;
mod depth;
mod exchange;
mod header;
mod messages;
mod parcel;

use std::any::type_name;

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::blobs::{each, given_at};
use self::exchange::{Exchange, Gift, check_root};
pub(super) use self::parcel::Parcels;
use super::Group;
use crate::{Error, OpKind, Result, Site};

impl Group {
    /// Every rank gets `root`'s value; what other ranks give is not looked at.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); refused is a `root` that is no rank of the group. On every rank, and the group goes on:
    /// [`Desync`](Error::Desync) where ranks ask for different types, or `root` has nothing to give or cannot write it, which gets
    /// [`Usage`](Error::Usage) itself; `Usage` where the value is longer than
    /// [`GroupOptions::largest_object`](crate::GroupOptions::largest_object). On a rank that cannot read what has come, as
    /// it is nested deeper than 128 levels or not of the type: `Usage`.
    #[track_caller]
    pub fn broadcast_object<T: Serialize + DeserializeOwned>(&self, value: Option<T>, root: usize) -> Result<T> {
        let exchange = self.objects::<T>(OpKind::Broadcast, root, Site::caller())?;
        let gift = value.as_ref().map(|value| one(OpKind::Broadcast, value));
        let bytes = exchange.broadcast(given_at(self, OpKind::Broadcast, root, gift))?;
        match value {
            Some(value) if self.rank() == root => Ok(value),
            _ => read(OpKind::Broadcast, self.members()[root], &bytes),
        }
    }

    /// Every rank gets all ranks' values, in rank order.
    ///
    /// # Errors
    ///
    /// As [`broadcast_object`](Group::broadcast_object), where every rank is one that gives.
    #[track_caller]
    pub fn all_gather_object<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<Vec<T>> {
        let exchange = self.objects::<T>(OpKind::AllGather, 0, Site::caller())?;
        read_all(OpKind::AllGather, self.members(), &exchange.all_gather(one(OpKind::AllGather, value))?)
    }

    /// `root` gets all ranks' values, in rank order; the others get none.
    ///
    /// # Errors
    ///
    /// As [`broadcast_object`](Group::broadcast_object), where every rank is one that gives, and `root` alone reads.
    #[track_caller]
    pub fn gather_object<T: Serialize + DeserializeOwned>(&self, value: &T, root: usize) -> Result<Option<Vec<T>>> {
        let exchange = self.objects::<T>(OpKind::Gather, root, Site::caller())?;
        let all = exchange.gather(one(OpKind::Gather, value))?;
        all.map(|all| read_all(OpKind::Gather, self.members(), &all)).transpose()
    }

    /// Rank `i` gets `root`'s `values[i]`; what other ranks give is not looked at.
    ///
    /// # Errors
    ///
    /// As [`broadcast_object`](Group::broadcast_object), also where `root` has not one for each rank.
    #[track_caller]
    pub fn scatter_objects<T: Serialize + DeserializeOwned>(&self, values: Option<&[T]>, root: usize) -> Result<T> {
        let exchange = self.objects::<T>(OpKind::Scatter, root, Site::caller())?;
        let gift = values.map(|values| each(self, values, |value| written(OpKind::Scatter, value)));
        let bytes = exchange.scatter(given_at(self, OpKind::Scatter, root, gift))?;
        read(OpKind::Scatter, self.members()[root], &bytes)
    }

    fn objects<T>(&self, kind: OpKind, root: usize, site: Site) -> Result<Exchange<'_>> {
        check_root(self, kind, root)?;
        Ok(Exchange { group: self, kind, root, type_name: type_name::<T>(), site, began: self.shared.backend.now() })
    }
}

fn one<T: Serialize>(kind: OpKind, value: &T) -> Gift {
    written(kind, value).map_or_else(Gift::Refused, Gift::Bytes)
}

fn written<T: Serialize>(kind: OpKind, value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value)
        .map_err(|error| Error::usage(kind, "value", type_name::<T>(), format!("must be writable: {error}")))
}

/// The value in the bytes of a rank of the world.
fn read<T: DeserializeOwned>(kind: OpKind, from: usize, bytes: &[u8]) -> Result<T> {
    depth::read(bytes).map_err(|why| {
        let value = format!("{} bytes of rank {from}", bytes.len());
        Error::usage(kind, "value", value, format!("must be readable as {}: {why}", type_name::<T>()))
    })
}

fn read_all<T: DeserializeOwned>(kind: OpKind, members: &[usize], all: &[Vec<u8>]) -> Result<Vec<T>> {
    members.iter().zip(all).map(|(from, bytes)| read(kind, *from, bytes)).collect()
}
