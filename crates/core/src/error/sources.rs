//! Other errors of the library as one of the seven kinds, so that `?` takes them in a function that works with groups.

use phalanx_mem::{CastError, OutOfMemory};

use super::{Desync, Error, Peer};
use crate::BadView;
use crate::reduce::Unsupported;
use crate::schedule::ProfileError;

impl From<Desync> for Error {
    fn from(desync: Desync) -> Error {
        Error::Desync(Box::new(desync))
    }
}

impl From<Peer> for Error {
    fn from(peer: Peer) -> Error {
        Error::Peer(Box::new(peer))
    }
}

impl From<OutOfMemory> for Error {
    fn from(error: OutOfMemory) -> Error {
        Error::setup("buffer", error)
    }
}

impl From<ProfileError> for Error {
    fn from(error: ProfileError) -> Error {
        Error::setup("profile", error)
    }
}

impl From<CastError> for Error {
    fn from(error: CastError) -> Error {
        Error::usage("buffer", "elements", error, "must be of a type that fits")
    }
}

impl From<BadView> for Error {
    fn from(error: BadView) -> Error {
        Error::usage("view", "shape", error, "must lie within its slice")
    }
}

impl From<Unsupported> for Error {
    fn from(error: Unsupported) -> Error {
        Error::usage(
            "reduction",
            "op",
            error.reduce,
            format!("which is not defined for {}: {}", error.dtype, error.why),
        )
    }
}

#[cfg(test)]
mod tests {
    use phalanx_mem::Buffer;

    use crate::{DType, ErrorKind, ReduceOp, Result, View};

    #[test]
    fn a_function_that_works_with_groups_takes_them() {
        fn elements(buffer: &mut Buffer) -> Result<usize> {
            Ok(buffer.as_mut_slice::<f32>()?.len())
        }
        fn view(data: &[u8]) -> Result<()> {
            View::new(data, &[2], &[9])?;
            Ok(())
        }
        fn joined() -> Result<()> {
            ReduceOp::BitAnd.supports(DType::F32)?;
            Ok(())
        }
        assert_eq!(elements(&mut Buffer::from_vec(vec![0_u8; 8])), Ok(2));
        let told = elements(&mut Buffer::from_vec(vec![0_u8; 7])).unwrap_err();
        assert!(told.kind() == ErrorKind::Usage && told.to_string().contains("7 bytes"), "{told}");
        let told = view(&[0]).unwrap_err();
        assert!(told.kind() == ErrorKind::Usage && told.to_string().contains("strides [9]"), "{told}");
        let told = joined().unwrap_err().to_string();
        assert_eq!(
            told,
            "reduction: op is bit_and, which is not defined for f32: bit operations need integers or bool"
        );
    }
}
