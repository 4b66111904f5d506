//! The loader over libraries of C that are built here: search, versions, what is missing, every call with what the library gets of it.
//! `installed` asks the real ones, where they are.

mod calls;
mod card;
mod children;
mod complete;
mod driver;
mod groups;
#[path = "../../../fsdp/tests/devices/halved.rs"]
mod halved;
mod images;
mod installed;
mod names;
mod same_host;
mod sharded;
mod source;
mod stub;
mod versions;

use std::sync::Arc;

use phalanx_nccl::api::{Comm, CommConfig, Cuda, Device, Nccl, Route, Status, Stream, UniqueId};
use phalanx_nccl::library::{CudaDriver, NcclLibrary, Search};
use stub::Stub;

/// NCCL of a version and a driver, each a stub.
struct Pair {
    nccl: NcclLibrary,
    cuda: Arc<CudaDriver>,
    stub: Stub,
    stream: Stream,
    _driver: Stub,
}

impl Pair {
    fn new(version: u32) -> Pair {
        Pair::of(Stub::nccl(version))
    }

    fn of(stub: Stub) -> Pair {
        let driver = Stub::cuda();
        let cuda = Arc::new(CudaDriver::open(&Search::new().path(&driver.path)).expect("the driver's stub"));
        let nccl = NcclLibrary::open(&Search::new().path(&stub.path), Some(cuda.clone())).expect("NCCL's stub");
        let stream = cuda.create_stream(Device(0), false).expect("a stream");
        Pair { nccl, cuda, stub, stream, _driver: driver }
    }

    fn id(&self) -> UniqueId {
        self.nccl.unique_id().expect("an id")
    }

    /// A communicator's way over the stream.
    fn route(&self, comm: Comm) -> Route {
        Route { comm, stream: self.stream }
    }

    /// The rank 1 of 4.
    fn comm(&self) -> Comm {
        let (status, comm) = self.nccl.init(Device(0), 1, 4, &self.id(), &CommConfig::default());
        assert_eq!(status, Status::SUCCESS, "{}", self.nccl.last_error(None));
        comm
    }
}
