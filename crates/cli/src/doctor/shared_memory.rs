//! Whether ranks of one host can share memory: anonymous files that can be sealed, as long as a segment is.

use std::io;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Resource, getrlimit};

use super::finding::{Finding, amount};

/// What was tried, and the limits of files and addresses; none where there is no limit.
#[derive(Debug)]
pub(super) struct Reading {
    /// A small segment, or the call that was refused.
    segment: Result<(), String>,
    longest_file: Option<u64>,
    addresses: Option<u64>,
}

pub(super) fn read() -> Reading {
    let limit = |resource| getrlimit(resource).current;
    Reading { segment: segment(), longest_file: limit(Resource::Fsize), addresses: limit(Resource::As) }
}

pub(super) fn judge(reading: &Reading) -> Finding {
    if let Err(refused) = &reading.segment {
        let why = "ranks of one host cannot share memory, which is many times faster than TCP";
        return Finding::wrong(CHECK, refused, why, "allow memfd_create and fcntl in the container's seccomp profile");
    }
    let files =
        reading.longest_file.map(|limit| (limit, format!("files of at most {}", amount(limit)), "ulimit -f unlimited"));
    let addresses =
        reading.addresses.map(|limit| (limit, format!("{} of addresses", amount(limit)), "ulimit -v unlimited"));
    let least = [files, addresses].into_iter().flatten().min_by_key(|(limit, ..)| *limit);
    if let Some((limit, found, how)) = least.filter(|(limit, ..)| *limit < NEED) {
        return match limit < LEAST {
            true => Finding::wrong(CHECK, found, TOO_FEW, how),
            false => Finding::slow(CHECK, found, FEW, how),
        };
    }
    let limits: Vec<String> = [(reading.longest_file, "a file"), (reading.addresses, "addresses")]
        .into_iter()
        .filter_map(|(limit, what)| Some(format!(", at most {} of {what}", amount(limit?))))
        .collect();
    Finding::ok(CHECK, format!("anonymous files with seals{}", limits.concat()))
}

/// Makes what every group of one host is in, only smaller.
fn segment() -> Result<(), String> {
    let refused = |call: &'static str| move |errno| format!("{call}: {}", io::Error::from(errno));
    let file = memfd_create("phalanx-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let file = file.map_err(refused("memfd_create"))?;
    // No longer than every limit of files allows: one page.
    ftruncate(&file, TRIED).map_err(refused("ftruncate"))?;
    fallocate(&file, FallocateFlags::empty(), 0, TRIED).map_err(refused("fallocate"))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(refused("fcntl(F_ADD_SEALS)"))
}

const CHECK: &str = "shared memory";
const TRIED: u64 = 4096;
/// Two groups of two ranks: see `Processes::heap`.
const NEED: u64 = 4 * (64 << 30);
/// A segment of as many ranks as there may be, and what else a process has.
const LEAST: u64 = 256 << 20;
const TOO_FEW: &str = "a segment has up to 100 MiB besides buffers, and a file beyond the limit ends the program";
const FEW: &str = "the buffers of all ranks of a group have an eighth of that together, instead of 64 GiB each";

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn reading() -> Reading {
        Reading { segment: Ok(()), longest_file: None, addresses: None }
    }

    #[test]
    fn no_limits_are_fine_and_wide_ones_are_told() {
        assert_eq!(judge(&reading()), Finding::ok(CHECK, "anonymous files with seals"));
        let wide = judge(&Reading { longest_file: Some(1 << 40), ..reading() });
        assert_eq!(wide, Finding::ok(CHECK, "anonymous files with seals, at most 1 TiB of a file"));
    }

    #[test]
    fn what_is_refused_and_what_is_too_small_is_named() {
        let refused = judge(&Reading { segment: Err("memfd_create: Operation not permitted".to_owned()), ..reading() });
        assert_eq!((refused.level, &refused.found[..12]), (Level::Wrong, "memfd_create"));
        let short = judge(&Reading { longest_file: Some(1 << 30), ..reading() });
        assert_eq!((short.level, &short.found[..]), (Level::Slow, "files of at most 1 GiB"));
        let narrow = judge(&Reading { addresses: Some(32 << 30), ..reading() });
        assert_eq!((narrow.level, &narrow.found[..]), (Level::Slow, "32 GiB of addresses"));
        for (limits, found) in [
            (Reading { longest_file: Some(64 << 20), ..reading() }, "files of at most 64 MiB"),
            (Reading { addresses: Some(64 << 20), ..reading() }, "64 MiB of addresses"),
        ] {
            let none = judge(&limits);
            assert_eq!((none.level, &none.found[..]), (Level::Wrong, found));
        }
    }

    #[test]
    fn a_segment_can_be_made_here() {
        assert_eq!(segment(), Ok(()));
    }
}
