//! What every call goes through: from numbers to what the library knows, and from its answers back.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use super::NcclLibrary;
use super::image::Image;
use super::member::{Known, Member, Shape, Slot};
use super::refusal::Refusal;
use super::table::Opaque;
use crate::api::{Comm, CommConfig, DataType, Device, Route, Span, Status, Stream};
use crate::library::cuda::RawStream;
use crate::library::table::Foreign;
use crate::register::Register;

/// A function that takes a communicator.
type OfComm = Foreign<unsafe extern "C" fn(Opaque) -> c_int>;

impl NcclLibrary {
    /// Calls a function, if it is there.
    pub(super) fn call<F: Copy>(&self, function: &Foreign<F>, run: impl FnOnce(F) -> c_int) -> Status {
        let Some(call) = function.call else {
            return Refusal::Absent { function: function.name, since: function.since }.note();
        };
        Refusal::clear();
        Status(run(call))
    }

    /// Calls a function that answers with a value.
    pub(super) fn ask<F: Copy, T>(
        &self,
        function: &Foreign<F>,
        value: &mut T,
        run: impl FnOnce(F, *mut T) -> c_int,
    ) -> Status {
        self.call(function, |call| run(call, value))
    }

    pub(super) fn member(&self, comm: Comm) -> Result<Arc<Member>, Status> {
        self.comms.find(comm.number()).ok_or_else(|| Refusal::Unknown("communicator").note())
    }

    /// A communicator as the library knows it.
    pub(super) fn pointer(&self, comm: Comm) -> Result<Opaque, Status> {
        made(&*self.member(comm)?)
    }

    pub(super) fn stream(&self, stream: Stream) -> Result<Arc<RawStream>, Status> {
        let driver = self.driver.as_ref().ok_or_else(|| Refusal::NoDriver.note())?;
        driver.raw_stream(stream).ok_or_else(|| Refusal::Unknown("stream").note())
    }

    /// Does something with a device current, where there is a driver.
    pub(super) fn on<T>(&self, device: Device, run: impl FnOnce() -> T) -> Result<T, Status> {
        match &self.driver {
            None => Ok(run()),
            Some(driver) => driver.within(device, run).map_err(|code| Refusal::Driver { device, code }.note()),
        }
    }

    /// Has the library make a communicator.
    pub(super) fn make(&self, member: Member, run: impl FnOnce(*mut Opaque) -> Status) -> (Status, Comm) {
        let (slot, place) = (member.slot, member.slot.place());
        match self.on(member.device, || run(place)) {
            Ok(status) => {
                // One that does not block may be there though the call has failed: the library leaves its end to whoever called. So does this, as
                // that may take for ever.
                let is_there = status.is_success() || status.is_in_progress() || !slot.get().is_null();
                (status, if is_there { Comm::new(self.comms.enter(member)) } else { Comm::NONE })
            }
            Err(status) => (status, Comm::NONE),
        }
    }

    /// Has the library make one from another.
    pub(super) fn derive(
        &self,
        parent: Arc<Member>,
        run: impl FnOnce(Opaque, *mut Opaque) -> Status,
    ) -> (Status, Comm) {
        match made(&parent) {
            Ok(pointer) => {
                let member = Member::new(Slot::new(), parent.device, None, Some(parent));
                self.make(member, |place| run(pointer, place))
            }
            Err(status) => (status, Comm::NONE),
        }
    }

    /// How a communicator is, and first the one that makes it.
    pub(super) fn state(&self, member: &Member) -> Result<Status, Status> {
        if let Some(parent) = member.parent() {
            let state = self.state(&parent)?;
            if !state.is_success() {
                return Ok(state);
            }
            member.has_come();
        }
        let _asking = member.ask().ok_or_else(|| Refusal::Unknown("communicator").note())?;
        let pointer = made(member)?;
        let mut state = 0;
        // SAFETY: a communicator that is there, as nobody else asks or ends it now, and room for one number.
        let asked = self.ask(&self.functions.async_error, &mut state, |call, state| unsafe { call(pointer, state) });
        answer(asked, Status(state))
    }

    pub(super) fn shape(&self, comm: Comm) -> Result<Shape, Status> {
        let member = self.member(comm)?;
        if let Some(shape) = member.shape.get() {
            return Ok(*shape);
        }
        let pointer = made(&member)?;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: a communicator that is there, and room for one number.
        let asked = self.ask(&self.functions.rank, &mut rank, |call, rank| unsafe { call(pointer, rank) });
        answer(asked, ())?;
        // SAFETY: as above.
        let asked = self.ask(&self.functions.count, &mut size, |call, size| unsafe { call(pointer, size) });
        answer(asked, ())?;
        Ok(*member.shape.get_or_init(|| Shape { rank, size }))
    }

    /// Takes a communicator's number back and has the library end it.
    pub(super) fn end(&self, comm: Comm, function: &Foreign<unsafe extern "C" fn(Opaque) -> c_int>) -> Status {
        if function.call.is_none() {
            // Nothing ends it then, and it stays known.
            return self.call(function, |_| 0);
        }
        let Some(member) = self.comms.take(comm.number()) else {
            return Refusal::Unknown("communicator").note();
        };
        for known in [&self.registrations, &self.windows] {
            known.forget(|known| known.comm == comm);
        }
        let _asking = member.leave();
        let pointer = member.slot.get();
        if pointer.is_null() {
            // Its parent has not made it yet; what it still makes ends after itself.
            member.parent().iter().for_each(|parent| parent.disown(member.slot));
            return Status::SUCCESS;
        }
        // The library makes the device current itself, and must be asked even where that is not possible any more.
        // SAFETY: a communicator that was there until now, and that no later call can name.
        let status = self.call(function, |call| unsafe { call(pointer) });
        for orphan in member.orphans() {
            // SAFETY: a communicator that the library has made, and that no call can name.
            self.call(&self.functions.abort, |call| unsafe { call(orphan) });
        }
        status
    }

    pub(super) fn image(&self, config: &CommConfig) -> Image {
        Image::of(config, self.version, &self.names)
    }

    /// A text of the library's.
    pub(super) fn text(&self, function: Option<impl FnOnce() -> *const c_char>) -> String {
        let text = function.map_or(std::ptr::null(), |function| function());
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the library's texts end in a zero, and are read before this thread calls it again.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().trim_end().to_owned()
    }

    /// Calls a function with nothing but a communicator.
    pub(super) fn of(&self, comm: Comm, function: &OfComm) -> Status {
        let run = |pointer| {
            // SAFETY: a communicator that is there.
            self.call(function, |call| unsafe { call(pointer) })
        };
        self.pointer(comm).map_or_else(|status| status, run)
    }

    /// Asks a number of a communicator.
    pub(super) fn number(
        &self,
        comm: Comm,
        function: &Foreign<unsafe extern "C" fn(Opaque, *mut c_int) -> c_int>,
    ) -> Result<i32, Status> {
        let (pointer, mut number) = (self.pointer(comm)?, 0);
        // SAFETY: a communicator that is there, and room for one number.
        let status = self.ask(function, &mut number, |call, number| unsafe { call(pointer, number) });
        answer(status, number)
    }

    /// Has the library submit something to a stream.
    pub(super) fn submit(
        &self,
        on: Route,
        run: impl FnOnce(Opaque, Opaque, Shape) -> Result<Status, Status>,
    ) -> Status {
        let begin = || {
            // Held until the call is back, so that it is not destroyed meanwhile.
            let stream = self.stream(on.stream)?;
            run(self.pointer(on.comm)?, stream.pointer(), self.shape(on.comm)?)
        };
        begin().unwrap_or_else(|status| status)
    }

    /// Calls a function once its arguments have been found good.
    pub(super) fn issue<F: Copy>(&self, function: &Foreign<F>, run: impl FnOnce(F) -> c_int) -> Result<Status, Status> {
        Ok(self.call(function, run))
    }

    /// Has a communicator forget memory that it knows.
    pub(super) fn forget(
        &self,
        comm: Comm,
        number: u64,
        register: &Register<Known>,
        function: &Foreign<unsafe extern "C" fn(Opaque, Opaque) -> c_int>,
    ) -> Status {
        let run = || {
            let member = self.member(comm)?;
            let pointer = made(&member)?;
            let known = register.find(number).filter(|known| known.comm == comm);
            let known = known.ok_or_else(|| Refusal::Unknown("registration").note())?;
            register.take(number);
            // SAFETY: a communicator that is there, and what it gave and nobody took back.
            self.on(member.device, || self.call(function, |call| unsafe { call(pointer, known.handle.get()) }))
        };
        run().unwrap_or_else(|status| status)
    }
}

/// A communicator that is there.
pub(super) fn made(member: &Member) -> Result<Opaque, Status> {
    let pointer = member.slot.get();
    if pointer.is_null() { Err(Refusal::Unmade.note()) } else { Ok(pointer) }
}

/// A value, where the call that it comes from succeeded.
pub(super) fn answer<T>(status: Status, value: T) -> Result<T, Status> {
    if status.is_success() { Ok(value) } else { Err(status) }
}

/// Memory for so many elements.
pub(super) fn room(span: Span, dtype: DataType, count: usize) -> Result<*mut c_void, Status> {
    let size = dtype.byte_len().ok_or_else(|| Refusal::Type(dtype.0).note())?;
    let needed = count.saturating_mul(size);
    if needed > span.byte_len() {
        return Err(Refusal::Short { needed, byte_len: span.byte_len() }.note());
    }
    Ok(std::ptr::without_provenance_mut(span.address() as usize))
}
