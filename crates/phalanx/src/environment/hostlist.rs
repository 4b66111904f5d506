//! Host lists as Slurm writes them: `n[1-3,07],m2`.

/// The hosts of a list, in order; `None` where it is malformed, or has more than [`MAX_HOSTS`] or names longer than
/// [`MAX_NAME_LEN`].
pub(super) fn expand(list: &str) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for entry in split(list)? {
        if entry.matches('[').count() > MAX_BRACKETS {
            return None;
        }
        let room = MAX_HOSTS.checked_sub(hosts.len())?;
        hosts.extend(expand_entry(entry, room)?);
    }
    Some(hosts)
}

/// The parts of a list between the commas that stand outside brackets.
fn split(list: &str) -> Option<Vec<&str>> {
    let mut entries = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' if inside => return None,
            '[' => inside = true,
            ']' if !inside => return None,
            ']' => inside = false,
            ',' if !inside => {
                entries.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    entries.push(&list[start..]);
    (!inside && entries.iter().all(|entry| !entry.is_empty())).then_some(entries)
}

/// One entry, which may hold several brackets: `rack[1-2]n[1-4]`.
fn expand_entry(entry: &str, room: usize) -> Option<Vec<String>> {
    let Some((head, rest)) = entry.split_once('[') else {
        let is_name = entry.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter));
        return (is_name && entry.len() <= MAX_NAME_LEN && room > 0).then(|| vec![entry.to_owned()]);
    };
    let (ranges, tail) = rest.split_once(']')?;
    let tails = if tail.is_empty() { vec![String::new()] } else { expand_entry(tail, room)? };
    let longest_tail = tails.iter().map(String::len).max()?;
    let mut hosts = Vec::new();
    for range in ranges.split(',') {
        let (first, last, width) = bounds(range)?;
        let more = usize::try_from(last.checked_sub(first)?).ok()?.checked_add(1)?.checked_mul(tails.len())?;
        if more > room.checked_sub(hosts.len())? || head.len() + width + longest_tail > MAX_NAME_LEN {
            return None;
        }
        let numbers = (first..=last).flat_map(|number| tails.iter().map(move |tail| (number, tail)));
        hosts.extend(numbers.map(|(number, tail)| format!("{head}{number:0width$}{tail}")));
    }
    Some(hosts)
}

/// First, last and width of `7`, `1-3` or `001-128`.
fn bounds(range: &str) -> Option<(u64, u64, usize)> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())?;
    (first.len() <= MAX_DIGITS).then_some((number(first)?, number(last)?, first.len()))
}

/// More hosts than any list of an honest launcher has; a range that lies must not take all memory.
const MAX_HOSTS: usize = 1 << 17;
/// Each is a call deeper; no name of a host has so many numbers.
const MAX_BRACKETS: usize = 8;
/// What the name system has room for. Each host of a range has the name in full.
const MAX_NAME_LEN: usize = 255;
/// With zeros in front, as many as the largest number has.
const MAX_DIGITS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded_in_order() {
        for (list, hosts) in [
            ("alpha", &["alpha"][..]),
            ("n[1-3,7],m2", &["n1", "n2", "n3", "n7", "m2"]),
            ("gpu[008-011]", &["gpu008", "gpu009", "gpu010", "gpu011"]),
            ("n[9-11]", &["n9", "n10", "n11"]),
            ("r[1-2]n[1-2]-ib", &["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
            ("a-1.b,c_2", &["a-1.b", "c_2"]),
        ] {
            assert_eq!(expand(list).unwrap(), hosts, "{list}");
        }
    }

    #[test]
    fn malformed_lists_are_refused() {
        for list in
            ["", ",", "a,", "n[", "n]", "n[]", "n[1", "n[1-]", "n[3-1]", "n[a-b]", "n[1[2]]", "n[+1]", "a b", "n[1-2]]"]
        {
            assert_eq!(expand(list), None, "{list}");
        }
    }

    #[test]
    fn a_range_that_lies_takes_no_memory() {
        assert_eq!(expand("n[0-18446744073709551615]"), None);
        assert_eq!(expand("n[0-999]m[0-999]"), None);
        assert_eq!(expand(&"[1]".repeat(43_000)), None);
        assert_eq!(expand(&format!("n[{}1-9]", "0".repeat(70_000))), None);
        for list in [format!("{}[1-2]", "n".repeat(300)), format!("n[1-2]{}", "n".repeat(300)), "n".repeat(300)] {
            assert_eq!(expand(&list), None, "{list}");
        }
        assert_eq!(expand("n[1-100000],m[1-100000]"), None);
        assert_eq!(expand("n[1-100000]").map(|hosts| hosts.len()), Some(100_000));
    }
}
