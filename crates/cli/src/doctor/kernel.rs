//! Whether the kernel is new enough: ranks of one host see by descriptors of processes who has died.

use rustix::system::uname;

use super::finding::Finding;

/// The release as the kernel tells it.
pub(super) fn read() -> String {
    uname().release().to_string_lossy().into_owned()
}

pub(super) fn judge(release: &str) -> Finding {
    if version(release).is_some_and(|version| version < OLDEST) {
        let why = "ranks of one host cannot see each other's death (pidfd_open)";
        return Finding::wrong(CHECK, release, why, "use Linux 5.3 or later");
    }
    Finding::ok(CHECK, release)
}

/// Major and minor number.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

const CHECK: &str = "kernel";
const OLDEST: (u32, u32) = (5, 3);

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn an_old_kernel_is_wrong_and_an_odd_name_is_not() {
        let level = |release| judge(release).level;
        assert_eq!(["5.3.0", "6.1.0-13-amd64", "10.0", "odd"].map(level), [Level::Ok; 4]);
        assert_eq!(["5.2.21", "4.18.0-553.el8.x86_64"].map(level), [Level::Wrong; 2]);
    }
}
