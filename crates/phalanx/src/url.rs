//! Where to join and as whom, written as one text: `tcp://host:port?rank=0&world_size=4`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use phalanx_comm::secure::JobName;
use phalanx_comm::store::StoreAddress;
use phalanx_core::{Error, Result};

use crate::environment::seconds;

/// Where the ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Environment,
    Server(StoreAddress),
    File(PathBuf),
}

/// What stands behind the question mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) rank: Option<usize>,
    pub(crate) world_size: Option<usize>,
    pub(crate) local_rank: Option<usize>,
    pub(crate) host: Option<bool>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) epoch: Option<u32>,
    pub(crate) job: Option<JobName>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) insecure: Option<bool>,
}

/// Reads a URL. What its scheme has no use for is refused by name.
pub(crate) fn parse(url: &str) -> Result<(Place, Query)> {
    let fail = |why: String| Error::setup(format!("url \"{url}\""), why);
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let place = self::place(place).map_err(fail)?;
    let mut known = Query::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        known.add(&place, pair).map_err(fail)?;
    }
    Ok((place, known))
}

fn place(text: &str) -> Result<Place, String> {
    let (scheme, rest) = text.split_once("://").ok_or(SCHEMES)?;
    match scheme {
        "env" if rest.is_empty() => Ok(Place::Environment),
        "env" => Err(format!("env:// is followed by \"{rest}\", must be by nothing")),
        "tcp" if !rest.starts_with("unix:") => {
            rest.parse().map(Place::Server).map_err(|error: Error| error.to_string())
        }
        "unix" => Ok(Place::Server(StoreAddress::unix(absolute(rest)?))),
        "file" => absolute(rest).map(Place::File),
        _ => Err(SCHEMES.to_owned()),
    }
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(decode(path)?);
    if path.is_absolute() && path.parent().is_some() {
        return Ok(path);
    }
    Err(format!("path is \"{}\", must begin with a slash and name a file", path.display()))
}

impl Query {
    fn add(&mut self, place: &Place, pair: &str) -> Result<(), String> {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("\"{pair}\" is not key=value"))?;
        let (key, value) = (decode(key)?, decode(value)?);
        let server = matches!(place, Place::Server(_));
        match key.as_str() {
            "timeout" => once(&mut self.timeout, &key, time(&key, &value)?),
            // All else is the environment's to say.
            _ if *place == Place::Environment => Err(format!("\"{key}\" has no meaning after env://")),
            "rank" => once(&mut self.rank, &key, whole(&key, &value)?),
            "world_size" => once(&mut self.world_size, &key, whole(&key, &value)?),
            "local_rank" => once(&mut self.local_rank, &key, whole(&key, &value)?),
            "epoch" => once(&mut self.epoch, &key, whole(&key, &value)?),
            "job" => once(&mut self.job, &key, JobName::new(&value).map_err(|error| error.to_string())?),
            "host" if server => once(&mut self.host, &key, switch(&key, &value)?),
            "key_file" if server => once(&mut self.key_file, &key, value.into()),
            "insecure" if server => once(&mut self.insecure, &key, switch(&key, &value)?),
            "host" | "key_file" | "insecure" => Err(format!("\"{key}\" has no meaning after file://")),
            _ => Err(format!("\"{key}\" is not known")),
        }
    }
}

fn once<T>(slot: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    if slot.replace(value).is_some() { Err(format!("{key} is said twice")) } else { Ok(()) }
}

fn whole<N: FromStr>(key: &str, value: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("{key} is \"{value}\", must be a whole number"))
}

fn time(key: &str, value: &str) -> Result<Duration, String> {
    // No time at all would be over before the store is asked, which would then be blamed.
    let above_zero = seconds(value).filter(|time| !time.is_zero());
    above_zero.ok_or_else(|| format!("{key} is \"{value}\", must be a number of seconds above 0"))
}

fn switch(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("{key} is \"{value}\", must be true or false")),
    }
}

/// Text with its `%2F`s replaced.
fn decode(text: &str) -> Result<String, String> {
    let odd = || format!("\"{text}\" has a % that is not followed by two hexadecimal digits, or makes no text");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'%' => {
                let (high, low) = digit(rest.next()).zip(digit(rest.next())).ok_or_else(odd)?;
                (high << 4 | low) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| odd())
}

const SCHEMES: &str = "must begin with tcp://, unix://, file:// or env://";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_what_they_say() {
        let tcp = |host: &str, port| Place::Server(StoreAddress::tcp(host, port));
        let some = |rank, world_size| Query { rank: Some(rank), world_size: Some(world_size), ..Query::default() };
        for (url, place, query) in [
            ("env://", Place::Environment, Query::default()),
            (
                "env://?timeout=5",
                Place::Environment,
                Query { timeout: Some(Duration::from_secs(5)), ..Query::default() },
            ),
            ("tcp://node-0:29500?rank=0&world_size=4", tcp("node-0", 29_500), some(0, 4)),
            ("tcp://[::1]:7?rank=3&world_size=4&host=false", tcp("::1", 7), Query { host: Some(false), ..some(3, 4) }),
            ("file:///a%20b/c?rank=1&world_size=2", Place::File("/a b/c".into()), some(1, 2)),
            ("unix:///run/s?rank=1&world_size=2", Place::Server(StoreAddress::unix("/run/s")), some(1, 2)),
            (
                "tcp://h:1?rank=1&world_size=2&job=a.b&epoch=3&local_rank=1&insecure=true&key_file=%2Fk%26y",
                tcp("h", 1),
                Query {
                    job: JobName::new("a.b").ok(),
                    epoch: Some(3),
                    local_rank: Some(1),
                    insecure: Some(true),
                    key_file: Some("/k&y".into()),
                    ..some(1, 2)
                },
            ),
        ] {
            assert_eq!(parse(url), Ok((place, query)), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_key_and_value() {
        for (url, text) in [
            ("", SCHEMES),
            ("http://h:1", SCHEMES),
            ("tcp:/h:1", SCHEMES),
            ("tcp://h", "store address \"h\": must be host:port"),
            ("tcp://unix:/x", SCHEMES),
            ("file://a/b", "path is \"a/b\", must begin with a slash"),
            ("file:///", "path is \"/\", must begin with a slash and name a file"),
            ("env://x", "env:// is followed by \"x\""),
            ("env://?rank=1", "\"rank\" has no meaning after env://"),
            ("file:///f?host=true", "\"host\" has no meaning after file://"),
            ("tcp://h:1?rank=x", "rank is \"x\", must be a whole number"),
            ("tcp://h:1?timeout=soon", "timeout is \"soon\", must be a number of seconds above 0"),
            ("tcp://h:1?timeout=0", "timeout is \"0\", must be a number of seconds above 0"),
            ("tcp://h:1?rank=-1", "rank is \"-1\", must be a whole number"),
            ("tcp://h:1?world=1", "\"world\" is not known"),
            ("tcp://h:1?Rank=1", "\"Rank\" is not known"),
            ("tcp://h:1?rank", "\"rank\" is not key=value"),
            ("tcp://h:1?rank=1&rank=2", "rank is said twice"),
            ("tcp://h:1?host=maybe", "host is \"maybe\", must be true or false"),
            ("tcp://h:1?job=a%2Fb", "job is \"a/b\", must be"),
            ("tcp://h:1?job=a%2", "\"a%2\" has a %"),
            ("tcp://h:1?job=%zz", "\"%zz\" has a %"),
            ("tcp://h:1?job=%ff", "\"%ff\" has a %"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.starts_with(&format!("url \"{url}\": {text}")), "{url}: {error}");
        }
    }
}
