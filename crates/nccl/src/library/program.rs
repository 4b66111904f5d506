//! The program that devices run: compiled when it is first needed, kept on disk for the next process, and there in a compiled form
//! where no compiler is.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use phalanx_core::{Error, Result};

use super::cuda::CudaDriver;
use super::nvrtc::Nvrtc;
use crate::api::{Cuda, CudaCode, Device};
use crate::kernels::{self, SOURCE};

/// Where kernels come from.
#[derive(Debug, Default)]
pub struct Program<'a> {
    compiler: Option<&'a Nvrtc>,
    cache: Option<PathBuf>,
}

/// Where the kernels of a device came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// They were compiled now.
    Compiled,
    /// They were compiled before, and lay in the cache.
    Cached,
    /// They are those that this crate was made with.
    Shipped,
}

impl<'a> Program<'a> {
    /// The kernels that this crate was made with, which need no compiler.
    pub fn new() -> Program<'a> {
        Program::default()
    }

    /// Compiles for the device's own architecture. Where that fails, the kernels that were shipped do.
    #[must_use]
    pub fn compiler(mut self, compiler: &'a Nvrtc) -> Program<'a> {
        self.compiler = Some(compiler);
        self
    }

    /// Keeps what was compiled in this directory, under a name of what it was made from. Nobody else may be able to write there.
    #[must_use]
    pub fn cache(mut self, directory: impl Into<PathBuf>) -> Program<'a> {
        self.cache = Some(directory.into());
        self
    }

    /// Has a device know the kernels.
    ///
    /// # Errors
    ///
    /// [`Device`](phalanx_core::ErrorKind::Device) where the driver will not have them.
    pub fn load(&self, driver: &CudaDriver, device: Device) -> Result<Origin> {
        let told = |call: &str, code: CudaCode| {
            let text = format!("{call}: {}", driver.error_text(code));
            let (number, name) = (i64::from(code.0), code.name().to_owned());
            Error::Device(Box::new(phalanx_core::Device { code: number, name, text, sticky: code.is_sticky() }))
        };
        let capability = driver.device_info(device).map_err(|code| told("cuDeviceGetAttribute", code))?.capability;
        let (image, origin) = self.image(capability);
        let names = kernels::all();
        let kernels: Vec<_> = names.iter().map(|(kernel, name)| (*kernel, name.as_str())).collect();
        let loaded = driver.load(device, &image, &kernels).map(|()| origin);
        match loaded {
            // A driver older than the compiler does not read what that wrote.
            Err(_) if origin != Origin::Shipped => {
                let loaded = driver.load(device, SHIPPED.as_bytes(), &kernels);
                loaded.map(|()| Origin::Shipped).map_err(|code| told("cuModuleLoadData", code))
            }
            loaded => loaded.map_err(|code| told("cuModuleLoadData", code)),
        }
    }

    /// The kernels for a device of this compute capability, and where they come from.
    pub fn image(&self, capability: (i32, i32)) -> (Vec<u8>, Origin) {
        let Some(compiler) = self.compiler else { return (SHIPPED.into(), Origin::Shipped) };
        let architecture = format!("compute_{}{}", capability.0, capability.1);
        let (major, minor) = compiler.version();
        let source = digest(SOURCE.as_bytes());
        let name = format!("phalanx-{architecture}-nvrtc{major}.{minor}-{source:016x}.ptx");
        let place = self.cache.as_ref().map(|directory| directory.join(name));
        if let Some(image) = place.as_deref().and_then(kept) {
            return (image, Origin::Cached);
        }
        match compiler.compile("kernels.cu", SOURCE, &[&format!("--gpu-architecture={architecture}")]) {
            Ok(image) => {
                if let Some(Err(error)) = place.as_deref().map(|place| keep(place, &image)) {
                    log::debug!("compiled kernels were not kept: {error}");
                }
                (image, Origin::Compiled)
            }
            Err(error) => {
                log::debug!("kernels were not compiled, the shipped ones do: {error}");
                (SHIPPED.into(), Origin::Shipped)
            }
        }
    }
}

/// What lies at a place, if it is as it was written there.
fn kept(place: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(place).ok()?;
    let check = u64::from_le_bytes(bytes.split_off(bytes.len().checked_sub(8)?).try_into().ok()?);
    (digest(&bytes) == check).then_some(bytes)
}

/// Writes beside the place and renames, so that other processes see all of it or nothing.
fn keep(place: &Path, image: &[u8]) -> std::io::Result<()> {
    let beside = place.with_extension(format!("{}.part", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    let written = file.write_all(image).and_then(|()| file.write_all(&digest(image).to_le_bytes()));
    let moved = written.and_then(|()| fs::rename(&beside, place));
    moved.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// FNV-1a: it tells files that were cut short and sources that were changed, and keeps no adversary out.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Of [`SOURCE`], for every card since compute capability 8.0. Its first line says of which source it was made: `interop/nccl` makes it.
const SHIPPED: &str = include_str!("../kernels/kernels.ptx");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shipped_was_made_of_the_source() {
        let first = SHIPPED.lines().next().expect("a line");
        assert_eq!(first, format!("// made of kernels {:016x}", digest(SOURCE.as_bytes())), "run interop/nccl --ship");
        for (_, name) in kernels::all() {
            assert!(SHIPPED.contains(&format!(".entry {name}(")), "{name}");
        }
    }

    #[test]
    fn what_was_kept_is_had_again_unless_it_was_damaged() {
        let directory = std::env::temp_dir().join(format!("phalanx-kernels-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let place = directory.join("one.ptx");
        assert_eq!(kept(&place), None);
        keep(&place, b"kernels").expect("written");
        assert_eq!(kept(&place).as_deref(), Some(&b"kernels"[..]));
        let mut bytes = fs::read(&place).expect("a file");
        bytes[0] ^= 1;
        fs::write(&place, &bytes).expect("written");
        assert_eq!(kept(&place), None);
        fs::write(&place, b"short").expect("written");
        assert_eq!(kept(&place), None);
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 1);
        fs::remove_dir_all(&directory).expect("removed");
    }
}
