//! The group over NCCL as one of a world's backends: `nccl`, which serves `cuda`. Its libraries are looked for when a group asks for it.

use std::sync::{Arc, Mutex, PoisonError};

use phalanx_comm::{Backends, Maker, Seat};
use phalanx_core::backend::Backend;
use phalanx_core::{Error, Result};
use phalanx_nccl::api::{Cuda, Device, Nccl, Process};
use phalanx_nccl::group::{NcclBackend, NcclOptions, SETTINGS, Stack};
use phalanx_nccl::library::{CudaDriver, Machine, NcclLibrary, Nvrtc, Program, Search};

use crate::environment::Variables;

/// Makes the backends of a world's groups over NCCL. Worlds that are [joined](crate::Joining::join) have one of the installed libraries under the
/// name `nccl`, unless the program brings its own of that name.
pub struct NcclMaker<N, C: Cuda, P> {
    options: NcclOptions,
    find: Find<N, C, P>,
    found: Mutex<Option<Stack<N, C, P>>>,
}

type Find<N, C, P> = Box<dyn Fn(&Seat) -> Result<Stack<N, C, P>> + Send + Sync>;

impl<N: Nccl, C: Cuda, P: Process> NcclMaker<N, C, P> {
    /// For groups over this stack that behave like this.
    pub fn new(stack: Stack<N, C, P>, options: NcclOptions) -> NcclMaker<N, C, P> {
        NcclMaker { options, find: Box::new(move |_| Ok(stack.clone())), found: Mutex::default() }
    }

    /// The stack, which is looked for once there is a group.
    fn stack(&self, seat: &Seat) -> Result<Stack<N, C, P>> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match &*found {
            Some(stack) => Ok(stack.clone()),
            None => Ok(found.insert((self.find)(seat)?).clone()),
        }
    }
}

impl NcclMaker<NcclLibrary, CudaDriver, Machine> {
    /// For groups over the installed libraries, which are looked for here when the first group is made. The device is that of the number given, or
    /// else of the rank's in the world, counted from the first again where there are fewer devices.
    pub fn installed(search: Search, number: Option<usize>, options: NcclOptions) -> Self {
        let checks_nan = options.needs_nan_check();
        let find = move |seat: &Seat| {
            let stack = open(&search, number.unwrap_or(seat.members()[seat.layout().rank()]))?;
            if checks_nan {
                let compiler = Nvrtc::open(&search).ok();
                Program::new().compiler(compiler.as_ref()).load_nan_check(stack.cuda(), stack.device())?;
            }
            Ok(stack)
        };
        NcclMaker { options, find: Box::new(find), found: Mutex::default() }
    }
}

impl<N: Nccl, C: Cuda, P: Process> Maker for NcclMaker<N, C, P> {
    fn make(&self, seat: &Seat) -> Result<Arc<dyn Backend>> {
        let options = self.options.clone().members(seat.members()).name(seat.name());
        let stack = self.stack(seat)?;
        let backend = NcclBackend::new(stack, seat.layout().clone(), seat.store().clone(), options)?;
        Ok(Arc::new(backend))
    }
}

/// These backends, and one over the installed libraries where the program has none of that name; it serves `cuda` unless another does.
pub(crate) fn offered(backends: Backends, local_rank: Option<usize>, variables: Variables<'_>) -> Result<Backends> {
    if backends.has(NAME) {
        return Ok(backends);
    }
    let maker = NcclMaker::installed(Search::new(), local_rank, options(variables)?);
    let is_free = !backends.serves(CUDA);
    let backends = backends.register(NAME, Arc::new(maker))?;
    if is_free { backends.devices(&format!("{CUDA}:{NAME}")) } else { Ok(backends) }
}

/// What PyTorch's variables say.
fn options(variables: Variables<'_>) -> Result<NcclOptions> {
    let said = SETTINGS.into_iter().filter_map(|(name, _)| Some((name, variables.text(name)?)));
    said.into_iter().try_fold(NcclOptions::default(), |options, (name, value)| {
        options.setting(name, &value).map(|(options, _)| options).map_err(|error| Error::setup("environment", error))
    })
}

fn open(search: &Search, number: usize) -> Result<Stack<NcclLibrary, CudaDriver, Machine>> {
    let cuda = Arc::new(CudaDriver::open(search)?);
    let count = cuda.device_count().map_err(|code| Error::setup("the CUDA driver", cuda.error_text(code)))?;
    let count = usize::try_from(count).unwrap_or_default();
    let device = number.checked_rem(count).and_then(|device| i32::try_from(device).ok());
    let device = device.ok_or_else(|| Error::setup("the CUDA driver", "no device is visible"))?;
    let nccl = NcclLibrary::open(search, Some(Arc::clone(&cuda)))?;
    Ok(Stack::new(Arc::new(nccl), cuda, Arc::new(Machine::new()), Device(device)))
}

const NAME: &str = "nccl";
const CUDA: &str = "cuda";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_and_refused() {
        let said =
            |value: &'static str| move |name: &str| (name == "TORCH_NCCL_HIGH_PRIORITY").then(|| value.to_owned());
        let offered = |value| offered(Backends::new(), Some(0), Variables(&said(value)));
        assert_eq!(offered("1").expect("a flag").config(), "cpu:host,cuda:nccl");
        let error = offered("maybe").expect_err("no flag").to_string();
        assert!(error.contains("TORCH_NCCL_HIGH_PRIORITY is \"maybe\", must be 1 or 0"), "{error}");
    }

    #[test]
    fn a_programs_own_goes_first() {
        let nothing = Variables(&|_| None);
        let own = Arc::new(NcclMaker::installed(Search::new(), None, NcclOptions::default()));
        let named = Backends::new().register(NAME, own.clone()).expect("free");
        assert_eq!(offered(named, None, nothing).expect("as it was").config(), "cpu:host");
        let serving = Backends::new().register("mine", own).and_then(|all| all.devices("cuda:mine")).expect("free");
        assert_eq!(offered(serving, None, nothing).expect("one more").config(), "cpu:host,cuda:mine");
    }
}
