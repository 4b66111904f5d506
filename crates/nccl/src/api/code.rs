//! What the libraries answer: numbers with names, for those that have one here.

use std::fmt;

/// What a call of NCCL answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub i32);

impl Status {
    /// Done, or begun on the stream.
    pub const SUCCESS: Status = Status(0);
    /// A call of CUDA failed.
    pub const UNHANDLED_CUDA: Status = Status(1);
    /// A call of the system failed.
    pub const SYSTEM: Status = Status(2);
    /// NCCL contradicts itself.
    pub const INTERNAL: Status = Status(3);
    /// An argument is wrong.
    pub const INVALID_ARGUMENT: Status = Status(4);
    /// The call is wrong here.
    pub const INVALID_USAGE: Status = Status(5);
    /// A peer failed or left.
    pub const REMOTE: Status = Status(6);
    /// Begun: the communicator may not be used before its asynchronous error is another.
    pub const IN_PROGRESS: Status = Status(7);
    /// A time limit of the library passed. Before 2.30 this number had no meaning.
    pub const TIMEOUT: Status = Status(8);
    /// Not NCCL's: the library has no such function. Far from any number that a library gives.
    pub const ABSENT: Status = Status(i32::MIN);

    /// Whether it was done.
    pub fn is_success(self) -> bool {
        self == Status::SUCCESS
    }

    /// Whether it has begun and must be asked for.
    pub fn is_in_progress(self) -> bool {
        self == Status::IN_PROGRESS
    }

    /// Whether the library has no such function.
    pub fn is_absent(self) -> bool {
        self == Status::ABSENT
    }

    /// The name in NCCL's header; of numbers that are not known here, that they are not.
    pub fn name(self) -> &'static str {
        match self {
            Status::SUCCESS => "ncclSuccess",
            Status::UNHANDLED_CUDA => "ncclUnhandledCudaError",
            Status::SYSTEM => "ncclSystemError",
            Status::INTERNAL => "ncclInternalError",
            Status::INVALID_ARGUMENT => "ncclInvalidArgument",
            Status::INVALID_USAGE => "ncclInvalidUsage",
            Status::REMOTE => "ncclRemoteError",
            Status::IN_PROGRESS => "ncclInProgress",
            Status::TIMEOUT => "ncclTimeout",
            Status::ABSENT => "not in this version of NCCL",
            _ => "a result that is not known",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a call of the CUDA driver answers when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CudaCode(pub i32);

impl CudaCode {
    /// An argument is wrong.
    pub const INVALID_VALUE: CudaCode = CudaCode(1);
    /// Memory of the device or of the host is out.
    pub const OUT_OF_MEMORY: CudaCode = CudaCode(2);
    /// The driver is not initialised, or cannot be.
    pub const NOT_INITIALIZED: CudaCode = CudaCode(3);
    /// There is no device.
    pub const NO_DEVICE: CudaCode = CudaCode(100);
    /// There is no such device.
    pub const INVALID_DEVICE: CudaCode = CudaCode(101);
    /// A handle is not, or no longer, one.
    pub const INVALID_HANDLE: CudaCode = CudaCode(400);
    /// A kernel or another thing that was asked for by name is not there.
    pub const NOT_FOUND: CudaCode = CudaCode(500);
    /// A kernel touched memory that it may not. Sticky.
    pub const ILLEGAL_ADDRESS: CudaCode = CudaCode(700);
    /// A kernel failed otherwise. Sticky.
    pub const LAUNCH_FAILED: CudaCode = CudaCode(719);
    /// Not possible with this driver or device.
    pub const NOT_SUPPORTED: CudaCode = CudaCode(801);
    /// Not possible on a stream that is being captured into a graph.
    pub const STREAM_CAPTURE_UNSUPPORTED: CudaCode = CudaCode(900);

    /// Whether every later call on the device fails in the same way until the process ends.
    pub fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721)
    }

    /// The name in the driver's header; of numbers that are not known here, that they are not.
    pub fn name(self) -> &'static str {
        match self {
            CudaCode::INVALID_VALUE => "CUDA_ERROR_INVALID_VALUE",
            CudaCode::OUT_OF_MEMORY => "CUDA_ERROR_OUT_OF_MEMORY",
            CudaCode::NOT_INITIALIZED => "CUDA_ERROR_NOT_INITIALIZED",
            CudaCode::NO_DEVICE => "CUDA_ERROR_NO_DEVICE",
            CudaCode::INVALID_DEVICE => "CUDA_ERROR_INVALID_DEVICE",
            CudaCode::INVALID_HANDLE => "CUDA_ERROR_INVALID_HANDLE",
            CudaCode::NOT_FOUND => "CUDA_ERROR_NOT_FOUND",
            CudaCode::ILLEGAL_ADDRESS => "CUDA_ERROR_ILLEGAL_ADDRESS",
            CudaCode::LAUNCH_FAILED => "CUDA_ERROR_LAUNCH_FAILED",
            CudaCode::NOT_SUPPORTED => "CUDA_ERROR_NOT_SUPPORTED",
            CudaCode::STREAM_CAPTURE_UNSUPPORTED => "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
            _ => "a CUDA error that is not known",
        }
    }
}

impl fmt::Display for CudaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_not_known_is_only_that() {
        assert_eq!(Status(99).to_string(), "a result that is not known");
        assert!(!Status(8).is_success() && !Status(99).is_absent() && Status::ABSENT.is_absent());
        assert_eq!(CudaCode(12_345).to_string(), "a CUDA error that is not known");
    }

    #[test]
    fn memory_that_is_out_is_not_sticky() {
        assert!(!CudaCode::OUT_OF_MEMORY.is_sticky() && CudaCode::ILLEGAL_ADDRESS.is_sticky());
    }

    #[test]
    fn what_is_said_of_peers_and_of_memory_of_the_host_is_not_sticky() {
        // Peers that may reach each other already or do not yet, memory that is registered already or is not, and too large a launch.
        assert!([704, 705, 712, 713, 720].map(CudaCode).iter().all(|code| !code.is_sticky()));
        assert!([700, 702, 710, 714, 719, 721].map(CudaCode).iter().all(|code| code.is_sticky()));
    }

    #[test]
    fn a_card_that_is_broken_is_sticky() {
        // Memory that cannot be corrected, a link, and an error that the card has contained.
        assert!([214, 220, 226].map(CudaCode).iter().all(|code| code.is_sticky()));
    }
}
