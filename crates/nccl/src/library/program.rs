//! The program that devices run: compiled when it is first needed, kept on disk for the next process, and there in a compiled form
//! where no compiler is.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use phalanx_core::{Error, Result, fnv};

use super::cuda::CudaDriver;
use super::nvrtc::Nvrtc;
use crate::api::{Cuda, CudaCode, Device, KernelId};
use crate::kernels::{self, SOURCE, nan};

/// Where kernels come from.
#[derive(Debug, Default)]
#[must_use]
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

    /// Compiles for the device's own architecture. Where that fails, or there is none, the kernels that were shipped do.
    pub fn compiler(mut self, compiler: impl Into<Option<&'a Nvrtc>>) -> Program<'a> {
        self.compiler = compiler.into();
        self
    }

    /// Keeps what was compiled in this directory, under a name of what it was made from. Nobody else may be able to write there.
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
        let names = kernels::all();
        let kernels: Vec<_> = names.iter().map(|(kernel, name)| (*kernel, name.as_str())).collect();
        self.load_text(&KERNELS, &kernels, driver, device)
    }

    /// Has a device know the kernels of the [check for NaN](nan), which are a program of their own.
    ///
    /// # Errors
    ///
    /// [`Device`](phalanx_core::ErrorKind::Device) where the driver will not have them.
    pub fn load_nan_check(&self, driver: &CudaDriver, device: Device) -> Result<Origin> {
        self.load_text(&NAN_CHECK, &nan::KERNELS, driver, device)
    }

    /// The kernels for a device of this compute capability, and where they come from.
    pub fn image(&self, capability: (i32, i32)) -> (Vec<u8>, Origin) {
        self.image_of(&KERNELS, capability)
    }

    fn load_text(
        &self,
        text: &Text,
        kernels: &[(KernelId, &str)],
        driver: &CudaDriver,
        device: Device,
    ) -> Result<Origin> {
        let told = |call: &str, code: CudaCode| {
            let text = format!("{call}: {}", driver.error_text(code));
            let (number, name) = (i64::from(code.0), code.name().to_owned());
            Error::Device(Box::new(phalanx_core::Device { code: number, name, text, sticky: code.is_sticky() }))
        };
        let capability = driver.device_info(device).map_err(|code| told("cuDeviceGetAttribute", code))?.capability;
        let (image, origin) = self.image_of(text, capability);
        let loaded = driver.load(device, &image, kernels).map(|()| origin);
        match loaded {
            // A driver older than the compiler does not read what that wrote.
            Err(code) if origin != Origin::Shipped => {
                let why = driver.error_text(code);
                log::debug!("compiled {} were not loaded, the shipped ones do: {why}", text.name);
                let loaded = driver.load(device, text.shipped.as_bytes(), kernels);
                loaded.map(|()| Origin::Shipped).map_err(|code| told("cuModuleLoadData", code))
            }
            loaded => loaded.map_err(|code| told("cuModuleLoadData", code)),
        }
    }

    fn image_of(&self, text: &Text, capability: (i32, i32)) -> (Vec<u8>, Origin) {
        let Some(compiler) = self.compiler else { return (text.shipped.into(), Origin::Shipped) };
        let architecture = format!("compute_{}{}", capability.0, capability.1);
        let (major, minor) = compiler.version();
        let source = digest(text.source.as_bytes());
        let name = format!("phalanx-{architecture}-nvrtc{major}.{minor}-{source:016x}.ptx");
        let place = self.cache.as_ref().map(|directory| directory.join(name));
        if let Some(image) = place.as_deref().and_then(kept) {
            return (image, Origin::Cached);
        }
        match compiler.compile(text.file, text.source, &[&format!("--gpu-architecture={architecture}")]) {
            Ok(image) => {
                if let Some(Err(error)) = place.as_deref().map(|place| keep(place, &image)) {
                    log::debug!("compiled {} were not kept: {error}", text.name);
                }
                (image, Origin::Compiled)
            }
            Err(error) => {
                log::debug!("{} were not compiled, the shipped ones do: {error}", text.name);
                (text.shipped.into(), Origin::Shipped)
            }
        }
    }
}

/// A program as one text, and what was made of it by the oldest compiler that will do.
struct Text {
    /// What it is called where something is told of it.
    name: &'static str,
    file: &'static str,
    source: &'static str,
    /// Its first line says of which source it was made: `interop/nccl` makes it.
    shipped: &'static str,
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

/// It tells files that were cut short and sources that were changed, and keeps no adversary out.
fn digest(bytes: &[u8]) -> u64 {
    fnv::hash64(bytes.iter().copied())
}

/// What is shipped is for every card since compute capability 8.0.
const KERNELS: Text =
    Text { name: "kernels", file: "kernels.cu", source: SOURCE, shipped: include_str!("../kernels/kernels.ptx") };
/// What is shipped is for every card since compute capability 6.0.
const NAN_CHECK: Text = Text {
    name: "kernels of the check for NaN",
    file: "nan.cu",
    source: nan::SOURCE,
    shipped: include_str!("../kernels/nan.ptx"),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shipped_was_made_of_the_source() {
        let of_nan = nan::KERNELS.map(|(kernel, name)| (kernel, name.to_owned())).to_vec();
        for (text, what, kernels) in [(&KERNELS, "kernels", kernels::all()), (&NAN_CHECK, "nan", of_nan)] {
            let first = text.shipped.lines().next().expect("a line");
            let source = digest(text.source.as_bytes());
            assert_eq!(first, format!("// made of {what} {source:016x}"), "run interop/nccl --ship");
            for (_, name) in kernels {
                assert!(text.shipped.contains(&format!(".entry {name}(")), "{name}");
            }
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
