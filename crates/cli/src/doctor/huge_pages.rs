//! Whether memory is in huge pages where a program asks for it.

use std::fs;

use super::finding::Finding;

/// The choices of the kernel, for ordinary and for shared memory; none where it has no huge pages.
#[derive(Debug)]
pub(super) struct Reading {
    ordinary: Option<String>,
    shared: Option<String>,
}

pub(super) fn read() -> Reading {
    let choice = |name: &str| {
        let text = fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}")).ok()?;
        chosen(&text).map(str::to_owned)
    };
    Reading { ordinary: choice("enabled"), shared: choice("shmem_enabled") }
}

pub(super) fn judge(reading: &Reading) -> Finding {
    let told = |choice: &Option<String>| choice.clone().unwrap_or_else(|| "none".to_owned());
    let (ordinary, shared) = (told(&reading.ordinary), told(&reading.shared));
    let found = format!("{ordinary} for ordinary memory, {shared} for shared memory");
    if reading.ordinary.as_deref() == Some("never") {
        let why = "large buffers are in small pages, which processors look up more often";
        return Finding::slow(CHECK, found, why, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    }
    Finding::ok(CHECK, found)
}

/// The word in brackets.
fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

const CHECK: &str = "huge pages";

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn the_choice_is_the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("odd"), None);
    }

    #[test]
    fn never_is_slow_and_no_answer_is_not() {
        let reading = |ordinary: Option<&str>| Reading {
            ordinary: ordinary.map(str::to_owned),
            shared: Some("advise".to_owned()),
        };
        assert_eq!(judge(&reading(Some("never"))).level, Level::Slow);
        assert_eq!(judge(&reading(Some("madvise"))).found, "madvise for ordinary memory, advise for shared memory");
        assert_eq!(judge(&reading(None)), Finding::ok(CHECK, "none for ordinary memory, advise for shared memory"));
    }
}
