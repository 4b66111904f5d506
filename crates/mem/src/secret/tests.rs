//! What is kept, what is hidden, and what the system was told about the page.

use super::*;

#[test]
fn bytes_are_kept_and_not_shown() {
    let mut secret = Secret::<32>::zeroed().expect("a page");
    assert_eq!(secret.bytes(), &[0; 32]);
    secret.bytes_mut().copy_from_slice(&[0xAB; 32]);
    assert_eq!(secret.bytes(), &[0xAB; 32]);
    assert_eq!(format!("{secret:?}"), "Secret(32 bytes)");
}

#[test]
fn secrets_of_more_than_a_page_work_too() {
    let mut secret = Secret::<10_000>::zeroed().expect("pages");
    secret.bytes_mut()[9_999] = 7;
    assert_eq!(secret.bytes().iter().position(|&byte| byte != 0), Some(9_999));
}

#[test]
#[cfg(not(miri))]
fn the_page_is_left_out_of_core_files_and_of_children() {
    let secret = Secret::<32>::zeroed().expect("a page");
    let flags = flags_of(secret.bytes().as_ptr().addr());
    assert!(flags.split(' ').any(|flag| flag == "dd"), "not MADV_DONTDUMP: {flags}");
    assert!(flags.split(' ').any(|flag| flag == "wf"), "not MADV_WIPEONFORK: {flags}");
}

/// The flags of the mapping that holds `address`, from the kernel's own listing.
#[cfg(not(miri))]
fn flags_of(address: usize) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("this process's mappings");
    let mut holds = false;
    for line in smaps.lines() {
        if let Some(range) = range_of(line) {
            holds = range.contains(&address);
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| holds) {
            return flags.to_owned();
        }
    }
    panic!("no mapping holds the secret");
}

/// The addresses in the heading of a mapping; other lines have none.
#[cfg(not(miri))]
fn range_of(line: &str) -> Option<std::ops::Range<usize>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}
