//! What the sockets of ranks are called: a rank's place in its job, which can be read without asking it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::geteuid;

use super::Neighbour;

/// What the socket of a job's rank is called, where `number` counts the worlds of this process.
pub(super) fn name(job: &str, (rank, size): (usize, usize), number: u32) -> Vec<u8> {
    name_in(own_namespace(), job, (rank, size), number)
}

fn name_in(namespace: u32, job: &str, (rank, size): (usize, usize), number: u32) -> Vec<u8> {
    let (uid, pid) = (geteuid().as_raw(), std::process::id());
    let mut name = format!("{PREFIX}{uid}-{pid}.{namespace}-{number}-{rank}-{size}-{job}").into_bytes();
    name.truncate(LONGEST_NAME);
    name
}

/// Containers that share this host's network have its names of sockets too, and processes of the same numbers in them.
fn own_namespace() -> u32 {
    fs::metadata("/proc/self/ns/pid").ok().and_then(|namespace| namespace.ino().try_into().ok()).unwrap_or_default()
}

/// The names of listening sockets of this user's ranks, in the kernel's list of sockets. It has those of everybody, with any bytes in their
/// names; those of ranks are text.
pub(super) fn names(sockets: &[u8], user: u32) -> Vec<String> {
    let listening = |line: &[u8]| {
        let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
        let flags = u32::from_str_radix(words.nth(3)?, 16).ok()?;
        let name = words.nth(3)?.strip_prefix('@')?;
        let (neighbour, is_ours) = (parse(name)?, flags & ACCEPTS != 0);
        (is_ours && (neighbour.uid == user || user == ROOT)).then(|| name.to_owned())
    };
    sockets.split(|&byte| byte == b'\n').filter_map(listening).collect()
}

/// What a name says. Ranks of an older version name no namespace.
pub(super) fn parse(name: &str) -> Option<Neighbour> {
    let mut words = name.strip_prefix(PREFIX)?.splitn(6, '-');
    let uid = words.next()?.parse().ok()?;
    let process = words.next()?;
    let (pid, namespace) = process.split_once('.').unwrap_or((process, "0"));
    let (pid, namespace) = (pid.parse().ok()?, namespace.parse().ok()?);
    let mut number = || words.next()?.parse::<u32>().ok();
    let (world, rank, world_size) = (number()?, number()? as usize, number()? as usize);
    let (job, job_is_cut) = (words.next()?.to_owned(), name.len() >= LONGEST_NAME);
    let (account, is_elsewhere) = (None, false);
    Some(Neighbour { pid, uid, world, rank, world_size, job, account, job_is_cut, is_elsewhere, namespace })
}

const PREFIX: &str = "phalanx-";
/// As long as the kernel lets a name be.
const LONGEST_NAME: usize = 107;
/// The kernel's flag of sockets that listen.
const ACCEPTS: u32 = 1 << 16;
/// Who sees the ranks of everybody.
const ROOT: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 1 @phalanx-1000-42-0-3-8-my-job
0000000000000000: 00000003 00000000 00000000 0001 03 2 @phalanx-1000-42-0-3-8-my-job
0000000000000000: 00000002 00000000 00010000 0001 01 3 @phalanx-1001-43-0-0-1-other
0000000000000000: 00000002 00000000 00010000 0001 01 4 /run/phalanx-1000-42-0-3-8-x
0000000000000000: 00000002 00000000 00010000 0001 01 5
0000000000000000: 00000002 00000000 00010000 0001 01 6 @phalanx-1000-x-0-3-8-job
0000000000000000: 00000002 00000000 00010000 0001 01 7 @phalanx-1000-42-0-3-8
garbage
";

    #[test]
    fn sockets_of_ranks_are_told_from_others() {
        let names = |user| names(LIST.as_bytes(), user);
        assert_eq!(names(1000), ["phalanx-1000-42-0-3-8-my-job"]);
        assert_eq!(names(ROOT).len(), 2);
        assert!(names(7).is_empty());
    }

    #[test]
    fn a_name_that_is_no_text_hides_no_other() {
        let foreign = b"0000000000000000: 00000002 00000000 00010000 0001 01 8 @\xff\xfebinary\n";
        let sockets = [LIST.as_bytes(), foreign, LIST.as_bytes()].concat();
        assert_eq!(names(&sockets, 1000), ["phalanx-1000-42-0-3-8-my-job"; 2]);
    }

    #[test]
    fn a_name_says_who_it_is() {
        let neighbour = parse("phalanx-1000-42-0-3-8-my-job").unwrap();
        assert_eq!((neighbour.uid, neighbour.pid, neighbour.rank, neighbour.world_size), (1000, 42, 3, 8));
        assert_eq!(neighbour.job, "my-job");
    }

    /// As in containers that share the network of their host.
    #[test]
    fn processes_of_one_number_in_two_namespaces_are_called_differently() {
        let says = |namespace| {
            let name = String::from_utf8(name_in(namespace, "my-job", (3, 8), 0)).unwrap();
            let neighbour = parse(&name).unwrap();
            assert_eq!((neighbour.pid, neighbour.rank, &*neighbour.job), (std::process::id(), 3, "my-job"));
            (name, neighbour.namespace)
        };
        let (one, other) = (says(7), says(u32::MAX));
        assert_ne!(one.0, other.0);
        assert_eq!((one.1, other.1), (7, u32::MAX));
        assert_ne!(own_namespace(), 0);
    }

    #[test]
    fn a_job_is_known_by_all_of_its_name_unless_that_is_cut() {
        let night = parse("phalanx-1000-42-0-3-8-night").unwrap();
        assert!(night.is_of("night") && !night.is_of("nightly") && !night.is_of("nigh"));
        let long = "n".repeat(LONGEST_NAME);
        let name = String::from_utf8(name(&long, (3, 8), 0)).unwrap();
        let cut = parse(&name).unwrap();
        assert!(cut.job.len() < long.len() && cut.is_of(&long) && !cut.is_of("night"));
    }
}
