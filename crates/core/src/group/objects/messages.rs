//! Objects and blobs from one rank to another: two messages under one tag, what comes and then the bytes.

use std::any::type_name;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::blobs::BLOB;
use super::exchange::{Verdict, zeroed};
use super::header::{Given, Header};
use super::{read, written};
use crate::call::Call;
use crate::error::{Stuck, Waiting};
use crate::group::Group;
use crate::player::Data;
use crate::{DType, Error, Op, OpKind, Result, Scope, Site};

impl Group {
    /// Sends a value to a rank, which receives it as an object of the same type under the same tag.
    ///
    /// It travels as two messages: let only one thread of the receiver ask for objects under one tag at a time.
    ///
    /// # Errors
    ///
    /// As [`send`](Group::send). Refused too are a value that cannot be written, and one that is longer than
    /// [`GroupOptions::largest_object`](crate::GroupOptions::largest_object).
    #[track_caller]
    pub fn send_object<T: Serialize>(&self, value: &T, to: usize, tag: u32) -> Result<()> {
        self.send_blob(&written(OpKind::Send, value)?, type_name::<T>(), to, tag, Site::caller())
    }

    /// Receives the next object of `from`, or of whichever rank sends first, under this tag. Returns the sender too.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). The group goes on, and the object is gone: [`Desync`](Error::Desync) where it is of another type,
    /// [`Usage`](Error::Usage) where it is longer than
    /// [`GroupOptions::largest_object`](crate::GroupOptions::largest_object) or cannot be read.
    #[track_caller]
    pub fn recv_object<T: DeserializeOwned>(&self, from: impl Into<Option<usize>>, tag: u32) -> Result<(T, usize)> {
        let (bytes, from) = self.recv_blob(type_name::<T>(), from.into(), tag, Site::caller())?;
        Ok((read(OpKind::Recv, self.members()[from], &bytes)?, from))
    }

    /// Sends bytes to a rank that need not know how many come. As [`send_object`](Group::send_object), for bytes.
    ///
    /// # Errors
    ///
    /// As [`send_object`](Group::send_object).
    #[track_caller]
    pub fn send_bytes(&self, value: &[u8], to: usize, tag: u32) -> Result<()> {
        self.send_blob(value, BLOB, to, tag, Site::caller())
    }

    /// Receives bytes that were [sent](Group::send_bytes) as such. As [`recv_object`](Group::recv_object), for bytes.
    ///
    /// # Errors
    ///
    /// As [`recv_object`](Group::recv_object); bytes can always be read, and are no object's.
    #[track_caller]
    pub fn recv_bytes(&self, from: impl Into<Option<usize>>, tag: u32) -> Result<(Vec<u8>, usize)> {
        self.recv_blob(BLOB, from.into(), tag, Site::caller())
    }

    fn send_blob(&self, bytes: &[u8], type_name: &str, to: usize, tag: u32, site: Site) -> Result<()> {
        let largest = self.shared.options.largest_object;
        if bytes.len() > largest {
            let expected = format!("must be at most {largest}, the largest object of the group");
            return Err(Error::usage(OpKind::Send, "value", format!("{} bytes long", bytes.len()), expected));
        }
        let head = Header::new(OpKind::Send, 0, Given::Bytes(bytes.len() as u64), largest, type_name).encode();
        // Alarms may call the group, and are told once others may send to this rank again.
        self.told(self.send_parts([&head, bytes], to, tag, site))
    }

    fn send_parts(&self, parts: [&[u8]; 2], to: usize, tag: u32, site: Site) -> Result<()> {
        let began = self.shared.backend.now();
        let Some(_parcel) = self.shared.parcels.begin(to, self.timeout) else {
            return Err(self.held_up(to, &self.part_call(parts[0], to, tag, site)?));
        };
        for part in parts {
            self.part(began, |group| {
                let call = group.part_call(part, to, tag, site)?;
                group.shared.backend.run(&call, &mut Data { input: part, output: &mut [] })
            })?;
        }
        Ok(())
    }

    fn part_call(&self, part: &[u8], to: usize, tag: u32, site: Site) -> Result<Call> {
        let op = Op::Send { count: part.len(), to, tag };
        self.fits(&op, DType::U8, None, Some(part), &[])?;
        let backend = &self.shared.backend;
        backend.accepts(&op, DType::U8, None)?;
        let number = backend.number(op.kind(), self.timeout)?;
        Ok(self.numbered(op, DType::U8, (None, false), number, site))
    }

    /// The error of an object that could not go in time because its receiver does not take another thread's. The group ends
    /// of it, as of any call that takes too long.
    fn held_up(&self, to: usize, call: &Call) -> Error {
        let error = call.timed_out(vec![Stuck { peer: to, on: Waiting::Taking }]);
        call.end(|| self.shared.backend.now(), Some(&error));
        self.shared.backend.abort(error.clone());
        error
    }

    fn recv_blob(&self, type_name: &str, from: Option<usize>, tag: u32, site: Site) -> Result<(Vec<u8>, usize)> {
        let (mut head, began) = ([0; Header::BYTE_LEN], self.shared.backend.now());
        let (sequence, from) = self.recv_part(&mut head, from, tag, site)?;
        let largest = self.shared.options.largest_object;
        let own = Header::new(OpKind::Send, 0, Given::Nothing, largest, type_name);
        let (kind, rank, members) = (OpKind::Recv, self.rank(), self.members());
        let verdict = Verdict { kind, sequence, rank, members, own: &own, site };
        let theirs = self.told(verdict.decoded(from, &head))?;
        let room =
            verdict.compare(from, &theirs).and_then(|()| verdict.byte_len(from, &theirs, own.largest)).and_then(zeroed);
        match self.told(room) {
            Ok(mut bytes) => {
                self.part(began, |group| group.recv_part(&mut bytes, Some(from), tag, site))?;
                Ok((bytes, from))
            }
            Err(error) => {
                self.part(began, |group| group.drop_part(from, tag, site))?;
                Err(error)
            }
        }
    }

    /// Receives one of the two messages. Returns its number and the sender.
    fn recv_part(&self, room: &mut [u8], from: Option<usize>, tag: u32, site: Site) -> Result<(u32, usize)> {
        let op = Op::Recv { count: room.len(), from, tag };
        let call = self.call(op, DType::U8, None, Some(&[]), room, site)?;
        let source = self.play(&call, Some(&[]), room)?.or(from);
        let unknown = || Error::usage(OpKind::Recv, "from", "any", "must be known once a message came");
        source.map(|from| (call.sequence, from)).ok_or_else(unknown)
    }

    /// Lets the bytes of an object go by that cannot be taken: they are the next message under the tag, and one that does
    /// not fit its room is dropped. That it does not fit is no failure of the group's, and alarms are not told of it.
    fn drop_part(&self, from: usize, tag: u32, site: Site) -> Result<()> {
        let call = self.call(Op::Recv { count: 0, from: Some(from), tag }, DType::U8, None, Some(&[]), &[], site)?;
        match self.shared.backend.run(&call, &mut Data { input: &[], output: &mut [] }) {
            Err(error) if error.scope() != Scope::Call => self.told(Err(error)),
            _ => Ok(()),
        }
    }
}
