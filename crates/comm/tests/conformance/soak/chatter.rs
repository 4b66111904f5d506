//! Messages around the circle for as long as something else goes on.

use std::sync::atomic::{AtomicBool, Ordering};

use phalanx_core::Group;

use crate::case::hash;

/// Sends and receives until it is over, the first rank saying which message is the last.
pub(super) fn chatter(group: &Group, thread: u32, over: &AtomicBool) -> Result<(), String> {
    let (rank, size, tag) = (group.rank(), group.size(), u32::MAX - thread);
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    for round in 0_u64.. {
        let len = (hash(round ^ u64::from(tag)) % 3000) as usize;
        let told = |error| format!("round {round}: {error}");
        let coming = group.recv_async(vec![0; len + 1], before, tag).map_err(told)?;
        let mut is_last = rank == 0 && over.load(Ordering::Relaxed);
        let mut message = vec![round; len + 1];
        if rank == 0 {
            message[0] = u64::from(is_last);
            group.send(&message, next, tag).map_err(told)?;
        }
        let came = coming.wait().map_err(told)?.data;
        if came[1..] != message[1..] {
            return Err(format!("round {round} differs"));
        }
        if rank != 0 {
            is_last = came[0] == 1;
            group.send_async(came, next, tag).and_then(|work| work.wait()).map_err(told)?;
        }
        if is_last {
            return Ok(());
        }
    }
    Ok(())
}
