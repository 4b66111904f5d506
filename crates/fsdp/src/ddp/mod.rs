//! Every rank holds the whole model: gradients are averaged in buckets while backward goes on. Nothing is sharded here.

mod buckets;

use std::time::Duration;

use phalanx_core::{Class, DType, Element, Error, Group, Op, Result};
use phalanx_mem::Buffer;

use crate::Memory;
use crate::agreement;
use crate::arena::Arena;
use crate::cast::{add, convert, divide, slice, slice_mut};
use crate::factors::Factors;
use crate::flight::Flight;
use crate::groups::Groups;
use crate::hooks::{self, GradientHook, Size};
use crate::memory;
use crate::spec::ParamSpec;
use crate::trace::Trace;
use buckets::{Bucket, Place, plan};

/// How gradients are averaged.
#[derive(Clone, Debug)]
#[must_use]
pub struct DdpOptions {
    bucket_byte_len: usize,
    first_byte_len: usize,
    allows_unused: bool,
}

impl Default for DdpOptions {
    /// Buckets of up to 25 MiB, the first of up to 1 MiB so that it is soon on its way, and no parameter without a gradient.
    fn default() -> DdpOptions {
        DdpOptions { bucket_byte_len: 25 << 20, first_byte_len: 1 << 20, allows_unused: false }
    }
}

impl DdpOptions {
    /// How many bytes of gradients travel together.
    pub fn bucket_byte_len(mut self, byte_len: usize) -> DdpOptions {
        self.bucket_byte_len = byte_len;
        self
    }

    /// The same for the bucket that is full first.
    pub fn first_byte_len(mut self, byte_len: usize) -> DdpOptions {
        self.first_byte_len = byte_len;
        self
    }

    /// Whether a parameter may have no gradient in a backward, which counts as zero.
    pub fn allow_unused(mut self, allow: bool) -> DdpOptions {
        self.allows_unused = allow;
        self
    }
}

/// The gradients of a model that every rank holds.
///
/// Parameters are numbered in the order of forward; their gradients are expected the other way round. Once an operation has failed, so
/// does every later one.
#[derive(Debug)]
pub struct Ddp {
    group: Group,
    options: DdpOptions,
    names: Vec<String>,
    places: Vec<Place>,
    buckets: Vec<Bucket>,
    /// The bucket that has to travel next: all ranks send them in one order.
    next: usize,
    /// How many backwards have brought gradients that travel, those that were given up as well.
    round: usize,
    syncs: bool,
    /// Whether those of the next backward do.
    will_sync: bool,
    hook: Option<Box<dyn GradientHook>>,
    arena: Arena,
    trace: Trace,
    failed: Option<Error>,
}

impl Ddp {
    /// A model of trained parameters: their names, elements and types. All ranks call this: what they say of it is compared.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a type that gradients do not have, [`Desync`](phalanx_core::ErrorKind::Desync) on all
    /// ranks where they do not say the same.
    pub fn new(group: Group, params: &[(&str, usize, DType)], options: DdpOptions) -> Result<Ddp> {
        let spec = |(name, len, dtype): &(&str, usize, DType)| ParamSpec::new(*name, &[*len], *dtype);
        Ddp::of_model(group, &params.iter().map(spec).collect::<Vec<_>>(), options)
    }

    /// The same for a model of which not all is trained. Trained parameters are numbered in their order; the others have no gradient, and what
    /// ranks say of them is compared as well: they are to be the same on all.
    ///
    /// # Errors
    ///
    /// As [`new`](Ddp::new).
    pub fn of_model(group: Group, params: &[ParamSpec], options: DdpOptions) -> Result<Ddp> {
        agreement::reach(&Groups::new(group.clone()), check(params), || told(params, &options))?;
        let trained = || params.iter().filter(|param| param.is_trainable());
        let sizes: Vec<_> = trained().map(|param| (param.shape.iter().product::<usize>(), param.dtype)).collect();
        let (places, buckets) = plan(&sizes, options.first_byte_len, options.bucket_byte_len);
        let names = trained().map(|param| param.name.clone()).collect();
        let (arena, trace) = (Arena::new(group.clone()), Trace::new(false));
        let (syncs, will_sync, hook, failed) = (true, true, None, None);
        Ok(Ddp {
            group,
            options,
            names,
            places,
            buckets,
            next: 0,
            round: 0,
            syncs,
            will_sync,
            hook,
            arena,
            trace,
            failed,
        })
    }

    /// Makes a parameter the same on all ranks: the first rank's. All ranks call this for each.
    ///
    /// # Errors
    ///
    /// Those of the broadcast.
    pub fn broadcast<T: Element>(&mut self, values: &mut [T]) -> Result<()> {
        self.group.broadcast(values, 0)
    }

    /// Takes the gradient of one parameter, once a backward. When those of a bucket are complete, they begin to travel.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a parameter that there is not, another length, and one that came already.
    pub fn gradient<T: Element>(&mut self, param: usize, gradient: &[T]) -> Result<()> {
        self.check_failed()?;
        let place = self.place("gradient", param)?;
        if gradient.len() != place.len {
            let expected = format!("must be {} elements, those of {:?}", place.len, self.names[param]);
            return Err(Error::usage("gradient", "gradient", format!("{} elements", gradient.len()), expected));
        }
        if T::DTYPE.class() != Class::Float {
            return Err(Error::usage("gradient", "dtype", T::DTYPE, "must be f64, f32, f16 or bf16"));
        }
        if self.buckets[place.bucket].came.contains(&param) {
            let value = format!("{:?} once more", self.names[param]);
            return Err(Error::usage("gradient", "param", value, "must come once a backward"));
        }
        let taken = self.take(param, place, bytemuck::cast_slice(gradient), T::DTYPE);
        taken.and_then(|()| self.send_complete()).inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Backward is over: waits until all gradients are averaged. Without sync they wait on this rank for the next backward.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) that names the parameters without gradient where that is not
    /// [allowed](DdpOptions::allow_unused): no rank would know what the others do. Those of the reductions.
    pub fn finish_backward(&mut self) -> Result<()> {
        self.check_failed()?;
        if self.syncs {
            let unused: Vec<&str> = self.unused().iter().map(|param| self.names[*param].as_str()).collect();
            if !self.options.allows_unused && !unused.is_empty() {
                let error = Error::usage("finish_backward", "params", unused.join(", "), "must have gradients");
                return Err(error);
            }
            self.finish().inspect_err(|error| self.failed = Some(error.clone()))?;
        }
        self.buckets.iter_mut().for_each(|bucket| bucket.came.clear());
        self.syncs = self.will_sync;
        Ok(())
    }

    /// Parameters of which this backward, or one whose gradients still wait, brought no gradient so far.
    pub fn unused(&self) -> Vec<usize> {
        let is_unused = |param: &usize| {
            let bucket = &self.buckets[self.places[*param].bucket];
            !bucket.came.contains(param) && !bucket.waits.contains(param)
        };
        (0..self.places.len()).filter(is_unused).collect()
    }

    /// The averaged gradient of a parameter, until the next backward begins or gradients are dropped; none before there was one.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a parameter that there is not, and another type than its own.
    pub fn averaged<T: Element>(&self, param: usize) -> Result<Option<&[T]>> {
        let place = self.place("averaged", param)?;
        let bucket = &self.buckets[place.bucket];
        if bucket.dtype != T::DTYPE {
            let expected = format!("must be {}, that of {:?}", bucket.dtype, self.names[param]);
            return Err(Error::usage("averaged", "dtype", T::DTYPE, expected));
        }
        let bytes = bucket.rows.as_ref().filter(|_| bucket.is_averaged).map(Buffer::as_bytes);
        Ok(bytes.map(|bytes| slice(&bytes[place.range(bucket.dtype)])))
    }

    /// Drops all gradients, those that wait on this rank as well: the next backward begins from nothing. It is called between backwards,
    /// and by all ranks after one that they give up, whose gradients may be on their way: it waits for those, and what they fail of, the next
    /// call says. Where a bucket had come together on one rank and not on another, that is a [`Desync`](phalanx_core::ErrorKind::Desync), as it is
    /// where one had brought gradients and another none.
    pub fn zero_gradients(&mut self) {
        // A bucket of this backward is not to meet one of the next.
        self.round += usize::from(self.syncs && !self.buckets.iter().all(Bucket::is_still));
        for bucket in &mut self.buckets {
            match bucket.flight.take().map(|flight| flight.end(&mut self.trace)) {
                // What a hook has packed is not the rows.
                Some(Ok(packed)) if bucket.rows.is_some() => self.arena.give(memory::Class::Reducing, packed),
                Some(Ok(rows)) => bucket.rows = Some(rows),
                Some(Err(error)) => drop(self.failed.get_or_insert(error)),
                None => {}
            }
            bucket.forget();
        }
        (self.next, self.syncs) = (0, self.will_sync);
    }

    /// Whether the gradients of the next backward travel: to be said between backwards, by all ranks. While they do not, they are summed up on this rank, and the next that travel take the
    /// sum along. A backward of which gradients have come ends as it began: some of them may have travelled.
    pub fn set_sync(&mut self, syncs: bool) {
        self.will_sync = syncs;
        if self.buckets.iter().all(Bucket::is_still) {
            self.syncs = syncs;
        }
    }

    /// Has gradients travel as a hook says, in place of their average.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) that names a parameter whose gradients are not `f32`, which a hook takes, and where some are on
    /// their way.
    pub fn set_hook(&mut self, hook: Option<Box<dyn GradientHook>>) -> Result<()> {
        let dtypes = self.places.iter().map(|place| self.buckets[place.bucket].dtype);
        let other = dtypes.zip(&self.names).find(|(dtype, _)| *dtype != DType::F32);
        if let Some((dtype, name)) = other.filter(|_| hook.is_some()) {
            return Err(Error::usage("set_hook", "gradients", format!("{dtype} for {name:?}"), "must be f32"));
        }
        if self.buckets.iter().any(|bucket| bucket.flight.is_some()) {
            return Err(Error::usage("set_hook", "gradients", "being reduced", "must be awaited first"));
        }
        self.hook = hook;
        Ok(())
    }

    /// How many buckets there are.
    pub fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    /// The bytes that the buckets hold.
    pub fn memory(&self) -> Memory {
        self.arena.memory()
    }

    /// How long this rank has waited for others.
    pub fn waited(&self) -> Duration {
        self.trace.waited()
    }

    /// Adds a gradient to its bucket.
    fn take(&mut self, param: usize, place: Place, gradient: &[u8], dtype: DType) -> Result<()> {
        let bucket = &mut self.buckets[place.bucket];
        if std::mem::take(&mut bucket.is_averaged) || bucket.rows.is_none() {
            let rows = match bucket.rows.take() {
                Some(rows) => rows,
                None => self.arena.take(memory::Class::Gradients, bucket.byte_len())?,
            };
            bucket.rows.insert(rows).as_bytes_mut().fill(0);
        }
        let to = bucket.dtype;
        if let Some(rows) = &mut bucket.rows {
            let own = &mut rows.as_bytes_mut()[place.range(to)];
            match bucket.waits.contains(&param) {
                true => add(gradient, dtype, own, to),
                false => convert(gradient, dtype, own, to),
            }
        }
        bucket.came.insert(param);
        if !self.syncs {
            bucket.waits.insert(param);
        }
        Ok(())
    }

    /// Sends buckets that are complete, in order.
    fn send_complete(&mut self) -> Result<()> {
        while self.syncs && self.buckets.get(self.next).is_some_and(Bucket::is_complete) {
            self.send(self.next)?;
            self.next += 1;
        }
        Ok(())
    }

    fn send(&mut self, number: usize) -> Result<()> {
        let (size, mark) = (self.size(number), (self.round % ROUNDS) * self.buckets.len() + number);
        let bucket = &mut self.buckets[number];
        let mut rows = match bucket.rows.take() {
            Some(rows) => rows,
            None => self.arena.take(memory::Class::Gradients, bucket.byte_len())?,
        };
        bucket.flight = Some(match &mut self.hook {
            Some(hook) => {
                let (wire, packed) = hooks::send(
                    &mut **hook,
                    (number, mark),
                    size,
                    slice(rows.as_bytes()),
                    &self.group,
                    &mut self.arena,
                )?;
                (bucket.rows, bucket.wire) = (Some(rows), Some(wire));
                packed
            }
            None => {
                let Factors { op, before, .. } = Factors::of(bucket.dtype, size.ranks, None);
                divide(rows.as_bytes_mut(), bucket.dtype, before);
                let op = Op::AllReduce { count: bucket.len, reduce: op };
                Flight::begin(&self.group, mark, (op, bucket.dtype), rows)?
            }
        });
        Ok(())
    }

    /// Sends what is left, and waits for everything.
    fn finish(&mut self) -> Result<()> {
        for number in self.next..self.buckets.len() {
            let bucket = &mut self.buckets[number];
            if std::mem::take(&mut bucket.is_averaged) {
                // Nothing came for any of it.
                bucket.rows.iter_mut().for_each(|rows| rows.as_bytes_mut().fill(0));
            }
            self.send(number)?;
        }
        (self.next, self.round) = (0, self.round + 1);
        for number in 0..self.buckets.len() {
            let size = self.size(number);
            let bucket = &mut self.buckets[number];
            let Some(flight) = bucket.flight.take() else { continue };
            let mut buffers = flight.end_with(&mut self.trace)?;
            match (&mut self.hook, bucket.wire.take(), &mut bucket.rows) {
                (Some(hook), Some(wire), Some(rows)) => {
                    let reduced = slice_mut(rows.as_bytes_mut());
                    hooks::receive(&mut **hook, number, size, (wire, buffers), reduced, &mut self.arena);
                }
                _ => {
                    let after = Factors::of(bucket.dtype, size.ranks, None).after;
                    divide(buffers.output.as_bytes_mut(), bucket.dtype, after);
                    bucket.rows = Some(buffers.output);
                }
            }
            bucket.is_averaged = true;
            bucket.waits.clear();
        }
        Ok(())
    }

    fn size(&self, number: usize) -> Size {
        let (ranks, rank) = (self.group.size(), self.group.rank());
        Size { ranks, rank, len: self.buckets[number].len, is_sharded: false }
    }

    fn place(&self, call: &'static str, param: usize) -> Result<Place> {
        let expected = || format!("must be below {}, the number of parameters", self.places.len());
        self.places.get(param).copied().ok_or_else(|| Error::usage(call, "param", param, expected()))
    }

    fn check_failed(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone().in_its_wake()))
    }
}

/// That these are parameters, and those that are trained may have gradients.
fn check(params: &[ParamSpec]) -> Result<()> {
    for param in params {
        let ParamSpec { name, shape, dtype, .. } = param;
        let byte_len = shape.iter().try_fold(dtype.byte_len(), |byte_len, extent| byte_len.checked_mul(*extent));
        if byte_len.is_none_or(|byte_len| isize::try_from(byte_len).is_err()) {
            let value = format!("{shape:?} for {name:?}");
            return Err(Error::usage("Ddp::new", "shape", value, "must fit into memory"));
        }
        if param.is_trainable() && dtype.class() != Class::Float {
            let value = format!("{dtype} for {name:?}");
            return Err(Error::usage("Ddp::new", "dtype", value, "must be f64, f32, f16 or bf16"));
        }
    }
    Ok(())
}

/// What all ranks must say alike.
fn told(params: &[ParamSpec], options: &DdpOptions) -> Vec<String> {
    let DdpOptions { bucket_byte_len, first_byte_len, allows_unused } = options;
    let policy =
        format!("policy buckets of {bucket_byte_len} bytes, the first of {first_byte_len}, unused {allows_unused}");
    std::iter::once(policy).chain(params.iter().map(|param| agreement::of_param(None, param))).collect()
}

/// Of so many backwards in a row no two send their buckets under the same numbers.
const ROUNDS: usize = 1024;
