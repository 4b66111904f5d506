//! Sizes as people write them: `8`, `64K`, `16M`, a range `8..64M` that grows fourfold, and lists of these.

use std::fmt::Write;

/// The sizes on one command line, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<usize>);

impl std::str::FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        let parts: Result<Vec<Vec<usize>>, String> = text.split(',').map(part).collect();
        Ok(Sizes(parts?.concat()))
    }
}

/// A size in the largest unit that keeps it whole.
pub(crate) fn show(bytes: usize) -> String {
    let mut text = String::new();
    let unit = UNITS.iter().rev().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    let (name, unit) = unit.map_or((' ', 1), |(name, unit)| (*name, *unit));
    let _ = write!(text, "{}{name}", bytes / unit);
    text.trim_end().to_owned()
}

fn part(text: &str) -> Result<Vec<usize>, String> {
    let Some((first, last)) = text.split_once("..") else {
        return Ok(vec![size(text)?]);
    };
    let (first, last) = (size(first)?, size(last)?);
    if first == 0 || first > last {
        return Err(format!("'{text}' is no range: it must begin above 0 and not end before it begins"));
    }
    let grow = |size: &usize| size.checked_mul(4).filter(|size| *size < last);
    let mut sizes: Vec<usize> = std::iter::successors(Some(first), grow).collect();
    sizes.push(last);
    sizes.dedup();
    Ok(sizes)
}

fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("'{text}' is no size: write a number of bytes, or one with K, M or G, such as 64K");
    let text = text.trim();
    let upper = text.to_ascii_uppercase();
    let (digits, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((upper.strip_suffix(*name)?, *unit))).unwrap_or((&upper, 1));
    let number: usize = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).filter(|bytes| *bytes <= MOST).ok_or_else(wrong)
}

/// No memory is larger.
const MOST: usize = isize::MAX as usize;
const UNITS: [(char, usize); 3] = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_ranges_and_lists_are_read() {
        assert_eq!("8".parse(), Ok(Sizes(vec![8])));
        assert_eq!("1k,2M".parse(), Ok(Sizes(vec![1024, 2 << 20])));
        assert_eq!("8..200".parse(), Ok(Sizes(vec![8, 32, 128, 200])));
        assert_eq!("64..64".parse(), Ok(Sizes(vec![64])));
        assert_eq!("0".parse(), Ok(Sizes(vec![0])));
    }

    #[test]
    fn what_is_no_size_is_named() {
        for text in ["", "12Q", "9..1", "0..8", "-1", "99999999999G", "18446744073709551615"] {
            let error = text.parse::<Sizes>().unwrap_err();
            assert!(error.contains("is no"), "{error}");
        }
    }

    #[test]
    fn sizes_are_shown_in_whole_units() {
        assert_eq!([8, 1024, 1500, 16 << 20].map(show), ["8", "1K", "1500", "16M"]);
    }
}
