//! Where a command finds the job key: in a file, in an inherited descriptor, or, if it must be, in the environment. And where there is none,
//! which flag gives one.

use std::path::Path;

use phalanx_comm::secure::{JobKey, KeyError};

use crate::failure::Failure;

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Failure {
        Failure::Stopped(error.to_string())
    }
}

/// The key in `file`, or else the one that the environment leads to.
pub(crate) fn find(file: Option<&Path>) -> Result<Option<JobKey>, Failure> {
    // A path may be no text. If that were taken for one that is not set, the store would be open to all.
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = file {
        return Ok(Some(JobKey::read_file(path)?));
    }
    if let Some(number) = variable("PHALANX_KEY_FD") {
        let number = number.to_string_lossy();
        let descriptor = number.parse().map_err(|_| wrong("PHALANX_KEY_FD", &number, "the number of a descriptor"))?;
        return Ok(Some(JobKey::inherit(descriptor)?));
    }
    if let Some(path) = variable("PHALANX_KEY_FILE") {
        return Ok(Some(JobKey::read_file(path)?));
    }
    let Some(digits) = variable("PHALANX_KEY") else {
        return Ok(None);
    };
    log::warn!("PHALANX_KEY: an environment is easily read by others; better use --key-file or PHALANX_KEY_FILE");
    let key = JobKey::from_hex(&digits.to_string_lossy());
    let key = key.map_err(|error| Failure::Stopped(format!("PHALANX_KEY: {error}")))?;
    Ok(Some(key))
}

/// What a store or a client of one had to say, and the flags that help where that is for want of a key: libraries know no flags.
pub(crate) fn name_flags(said: &str) -> String {
    if said.contains(ASKED) {
        return format!("{said}; give one by --key-file FILE");
    }
    match NEEDED.iter().any(|needed| said.contains(needed)) {
        true => format!("{said}; give one by --key-file FILE, or do without by --insecure"),
        false => said.to_owned(),
    }
}

fn wrong(name: &str, value: &str, expected: &str) -> Failure {
    Failure::Stopped(format!("{name} is \"{value}\", must be {expected}"))
}

/// What is said where a server asks for a key.
const ASKED: &str = "it asks for a key";
/// What is said where there is no key and must be one, to serve other machines or to go to one.
const NEEDED: [&str; 2] = ["needs a job key", "key is none, must be set"];

#[cfg(test)]
mod tests {
    use phalanx_comm::store::{ClientOptions, ServerOptions, StoreAddress, StoreServer, TcpStore};

    use super::*;

    /// What libraries say that is told with flags here.
    #[test]
    fn the_flags_are_named_where_a_key_is_missing() {
        let elsewhere = || StoreAddress::tcp("192.0.2.1", 29400);
        let client = TcpStore::connect(ClientOptions::new(elsewhere())).map(drop).unwrap_err().to_string();
        let server = StoreServer::start(ServerOptions::new(elsewhere())).map(drop).unwrap_err().to_string();
        for said in [client, server] {
            let told = name_flags(&said);
            assert_eq!(told, format!("{said}; give one by --key-file FILE, or do without by --insecure"));
        }
        assert_eq!(name_flags("nothing listens there"), "nothing listens there");
    }
}
