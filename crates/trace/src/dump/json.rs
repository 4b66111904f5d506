//! A dump as JSON: the format of ours, which `docs/trace.md` describes.

use serde::Deserialize;

use super::Dump;
use crate::Broken;

impl Dump {
    /// The dump as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data has no key that is not text")
    }

    /// The dump that this JSON is.
    ///
    /// # Errors
    ///
    /// Names the line and column that are wrong, the format when it is newer, or the value that cannot be.
    pub fn from_json(bytes: &[u8]) -> Result<Dump, Broken> {
        let Version { format } = serde_json::from_slice(bytes).map_err(|error| broken(&error))?;
        if format == 0 || format > FORMAT.into() {
            return Err(Broken::Format { found: format, known: FORMAT });
        }
        let dump: Dump = serde_json::from_slice(bytes).map_err(|error| broken(&error))?;
        dump.check()?;
        Ok(dump)
    }
}

/// Read first: what else there is follows from it.
#[derive(Deserialize)]
struct Version {
    format: u64,
}

fn broken(error: &serde_json::Error) -> Broken {
    let text = error.to_string();
    let why = text.split(" at line ").next().unwrap_or_default().to_owned();
    Broken::Json { line: error.line(), column: error.column(), why }
}

/// The number of the format that is written, and the newest that is read.
pub const FORMAT: u32 = 1;
