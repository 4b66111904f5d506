//! Kernels: loaded once for each device, and launched by their numbers.

use std::ffi::{CString, c_void};
use std::ptr;

use super::{CudaDriver, locked};
use crate::api::{Argument, CudaCode, Device, Grid, KernelId, Stream};

impl CudaDriver {
    /// Loads kernels from PTX or from machine code of the device: each by its name there, under its number. They stay.
    ///
    /// # Errors
    ///
    /// What the driver says; [`CudaCode::NOT_FOUND`] of a name that is not there.
    pub fn load(&self, device: Device, image: &[u8], kernels: &[(KernelId, &str)]) -> Result<(), CudaCode> {
        // PTX is read up to a zero.
        let image: Vec<u8> = image.iter().copied().chain([0]).collect();
        self.on(device, || {
            let mut module = ptr::null_mut();
            // SAFETY: an image that ends in a zero, and room for a module.
            self.call(&self.functions.load_module, |call| unsafe { call(&mut module, image.as_ptr().cast()) })?;
            for (kernel, name) in kernels {
                let name = CString::new(*name).map_err(|_| CudaCode::NOT_FOUND)?;
                let mut function = ptr::null_mut();
                self.call(&self.functions.function_of, |call| {
                    // SAFETY: a module that stays, a name that ends in a zero, and room for a function.
                    unsafe { call(&mut function, module, name.as_ptr()) }
                })?;
                locked(&self.kernels).insert((device, *kernel), function.expose_provenance());
            }
            Ok(())
        })
    }

    pub(super) fn submit_kernel(
        &self,
        kernel: KernelId,
        grid: Grid,
        arguments: &[Argument],
        stream: Stream,
    ) -> Result<(), CudaCode> {
        let device = self.device_of(stream)?;
        let function = locked(&self.kernels).get(&(device, kernel)).copied().ok_or(CudaCode::NOT_FOUND)?;
        let function = ptr::with_exposed_provenance_mut(function);
        // Each argument in the first bytes of a word; the driver knows how many it needs.
        let mut values: Vec<[u8; 8]> = arguments.iter().map(bytes).collect();
        let mut places: Vec<*mut c_void> = values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect();
        self.with_stream(stream, |stream| {
            let (places, none) = (places.as_mut_ptr(), ptr::null_mut());
            self.call(&self.functions.launch, |call| {
                // SAFETY: a function that stays, a stream that is there, and what the kernel with this number takes.
                unsafe { call(function, grid.blocks, 1, 1, grid.threads, 1, 1, 0, stream, places, none) }
            })
        })
    }
}

fn bytes(argument: &Argument) -> [u8; 8] {
    match argument {
        Argument::Read(span) | Argument::Write(span) => span.address().to_ne_bytes(),
        Argument::Number(number) => number.to_ne_bytes(),
        Argument::Real(real) => {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&real.to_ne_bytes());
            bytes
        }
    }
}
