//! The job key, as another process of this program is given it.

use std::process::Command;

use command_fds::{CommandFdExt, FdMapping};
use phalanx_comm::secure::JobKey;

use super::system;
use crate::failure::Failure;

/// Lets a command have the job key, in a file without a name, so that nothing is left of it whatever happens.
pub(super) fn hand_over(command: &mut Command, key: &JobKey) -> Result<(), Failure> {
    let parent_fd = key.to_memfd().map_err(system("job key"))?;
    let mapping = FdMapping { parent_fd, child_fd: KEY_DESCRIPTOR };
    command.fd_mappings(vec![mapping]).map_err(system("job key"))?;
    command.args(["--key-file", KEY_FILE]);
    Ok(())
}

const KEY_FILE: &str = "/proc/self/fd/3";
const KEY_DESCRIPTOR: i32 = 3;
