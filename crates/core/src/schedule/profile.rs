//! A profile: from how many bytes on which algorithm is the better one on some machine, as a few lines of text. It does not
//! choose, and does not know where the text is kept.

use std::fmt;
use std::str::FromStr;

use super::{Ground, Pieces};

/// Limits of the choice of an algorithm, measured by `phalanx bench --tune`. All ranks must have the same.
///
/// As text each limit is a line `name = bytes`; a line may be empty or begin with `#`, and a limit that is not named is as by
/// default.
///
/// ```
/// # use phalanx_core::schedule::Profile;
/// let profile: Profile = "# measured\nsmall_over_links = 32768\n".parse()?;
/// assert_eq!(profile, Profile::default().small_over_links(32768));
/// let error = "segment = big".parse::<Profile>().unwrap_err();
/// assert_eq!(error.to_string(), "line 1: segment is \"big\", must be a number of bytes from 4096 to 1073741824");
/// # Ok::<(), phalanx_core::schedule::ProfileError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Profile {
    pub(crate) limits: [usize; NAMES.len()],
}

/// Why a text is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct ProfileError {
    /// Which line, from 1 on.
    pub line: usize,
    why: String,
}

impl Default for Profile {
    /// 16 KiB, 16 KiB and 512 KiB.
    fn default() -> Profile {
        Profile { limits: [16 << 10, 16 << 10, 512 << 10] }
    }
}

impl Profile {
    /// Up to how many bytes an operation on one host is small, in windows.
    pub fn small_in_windows(self, bytes: usize) -> Profile {
        self.with(SMALL_IN_WINDOWS, bytes)
    }

    /// Up to how many bytes any other operation is small.
    pub fn small_over_links(self, bytes: usize) -> Profile {
        self.with(SMALL_OVER_LINKS, bytes)
    }

    /// The most bytes that travel over links in one piece, which are 4096 at least.
    pub fn segment(self, bytes: usize) -> Profile {
        self.with(SEGMENT, bytes)
    }

    /// Up to how many bytes an operation is small.
    pub fn small_byte_len(&self, in_windows: bool) -> usize {
        self.limits[if in_windows { SMALL_IN_WINDOWS } else { SMALL_OVER_LINKS }]
    }

    /// The most bytes that travel over links in one piece.
    pub fn segment_byte_len(&self) -> usize {
        self.limits[SEGMENT]
    }

    /// What the choice stands on where slots of windows are this long, 0 where there are none, and the operations of one host
    /// go through them or not.
    pub fn ground(&self, slot_byte_len: usize, in_windows: bool) -> Ground {
        let (small_byte_len, segment_byte_len) = (self.small_byte_len(in_windows), self.segment_byte_len());
        Ground { slot_byte_len, small_byte_len, segment_byte_len, pieces: Pieces::default() }
    }

    /// The limits as numbers, for ranks to compare.
    pub fn words(&self) -> [u64; NAMES.len()] {
        self.limits.map(|limit| limit as u64)
    }

    fn with(mut self, at: usize, bytes: usize) -> Profile {
        self.limits[at] = bytes.clamp(LEAST[at], MOST);
        self
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        NAMES.iter().zip(self.limits).try_for_each(|(name, limit)| writeln!(f, "{name} = {limit}"))
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Profile, ProfileError> {
        let (mut profile, mut known) = (Profile::default(), [false; NAMES.len()]);
        for (number, line) in text.lines().enumerate() {
            let wrong = |why| ProfileError { line: number + 1, why };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (at, limit) = limit(line).map_err(wrong)?;
            if std::mem::replace(&mut known[at], true) {
                return Err(wrong(format!("{} is there twice", NAMES[at])));
            }
            profile.limits[at] = limit;
        }
        Ok(profile)
    }
}

/// Which limit a line is about, and how many bytes it says.
fn limit(line: &str) -> Result<(usize, usize), String> {
    let Some((name, value)) = line.split_once('=') else {
        return Err(format!("\"{line}\" is no limit, must be name = bytes"));
    };
    let (name, value) = (name.trim(), value.trim());
    let Some(at) = NAMES.iter().position(|known| *known == name) else {
        return Err(format!("\"{name}\" is unknown, must be one of {}", NAMES.join(", ")));
    };
    let limits = LEAST[at]..=MOST;
    let limit = value.parse().ok().filter(|limit| limits.contains(limit));
    let must = || format!("{name} is \"{value}\", must be a number of bytes from {} to {MOST}", LEAST[at]);
    Ok((at, limit.ok_or_else(must)?))
}

const NAMES: [&str; 3] = ["small_in_windows", "small_over_links", "segment"];
const SMALL_IN_WINDOWS: usize = 0;
const SMALL_OVER_LINKS: usize = 1;
const SEGMENT: usize = 2;
/// Nothing needs to be small. But steps are made for every piece before the first is played: those of much shorter ones would take more memory
/// than the data.
const LEAST: [usize; NAMES.len()] = [0, 0, 4096];
const MOST: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_survives_its_journey() {
        let profile = Profile::default().small_in_windows(0).small_over_links(77).segment(1 << 20);
        assert_eq!(profile.to_string().parse(), Ok(profile));
        assert_eq!("".parse(), Ok(Profile::default()));
        assert_eq!((profile.small_byte_len(true), profile.small_byte_len(false)), (0, 77));
    }

    #[test]
    fn no_profile_cuts_pieces_shorter_than_a_page() {
        for bytes in [0, 1, 4095, 4096] {
            assert_eq!(Profile::default().segment(bytes).segment_byte_len(), 4096);
        }
        assert_eq!("segment = 4096".parse(), Ok(Profile::default().segment(4096)));
        assert!("segment = 4095".parse::<Profile>().is_err());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, told) in [
            ("\n# x\nhello", "line 3: \"hello\" is no limit, must be name = bytes"),
            ("small = 3", "line 1: \"small\" is unknown, must be one of small_in_windows, small_over_links, segment"),
            ("segment = 1", "line 1: segment is \"1\", must be a number of bytes from 4096 to 1073741824"),
            ("segment = -1", "line 1: segment is \"-1\", must be a number of bytes from 4096 to 1073741824"),
            (
                "small_in_windows = -1",
                "line 1: small_in_windows is \"-1\", must be a number of bytes from 0 to 1073741824",
            ),
            ("segment = 8192\nsegment = 8192", "line 2: segment is there twice"),
        ] {
            assert_eq!(text.parse::<Profile>().unwrap_err().to_string(), told);
        }
    }
}
