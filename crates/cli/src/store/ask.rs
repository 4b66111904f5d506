//! One question to a store.

use std::io::{self, Read, Write};

use phalanx_comm::secure::{Claim, JobName, Session};
use phalanx_comm::store::{ClientOptions, StoreAddress, TcpStore};
use phalanx_core::store::{Store, StoreError};

use super::command::Target;
use super::content;
use crate::failure::{Failure, printed};
use crate::key;

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Stopped(error.to_string())
    }
}

/// The store that is meant.
pub(crate) fn connect(target: &Target) -> Result<Store, Failure> {
    let address: StoreAddress = target.address.parse().map_err(|error| Failure::Usage(format!("{error}")))?;
    let job = JobName::new(&target.job_id).map_err(|error| Failure::Usage(error.to_string()))?;
    let session = Session::mint().map_err(|error| Failure::Stopped(format!("random bytes: {error}")))?;
    let claim = Claim::new(job, target.epoch, session);
    let options = ClientOptions::new(address).claim(claim).insecure(target.insecure).timeout(target.timeout);
    let options = match key::find(target.key_file.as_deref())? {
        Some(key) => options.key(key),
        None => options,
    };
    let connected = TcpStore::connect(options);
    let connected = connected.map_err(|error| Failure::Stopped(key::name_flags(&error.to_string())))?;
    Ok(Store::new(connected).with_timeout(target.timeout))
}

pub(super) fn get(target: &Target, key: &str) -> Result<(), Failure> {
    let value = connect(target)?.get(key)?;
    let mut out = io::stdout().lock();
    printed(out.write_all(&value).and_then(|()| out.flush()))
}

pub(super) fn set(target: &Target, key: &str, value: &str) -> Result<(), Failure> {
    let store = connect(target)?;
    if value != "-" {
        return Ok(store.set(key, value)?);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map_err(|error| Failure::Stopped(format!("standard input: {error}")))?;
    Ok(store.set(key, bytes)?)
}

pub(super) fn keys(target: &Target, prefix: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for key in connect(target)?.list_keys()?.iter().filter(|key| key.starts_with(prefix)) {
        printed(writeln!(out, "{}", content::key(key)))?;
    }
    Ok(())
}
