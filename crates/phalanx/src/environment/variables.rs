//! Variables by name, with an error that tells name and value where one cannot be what it says.

use std::env;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use phalanx_core::{Error, Result};

/// Where variables are looked up; tests bring their own.
#[derive(Clone, Copy)]
pub(crate) struct Variables<'a>(pub(crate) &'a dyn Fn(&str) -> Option<String>);

impl Variables<'static> {
    /// Those of this process.
    pub(crate) fn of_process() -> Variables<'static> {
        Variables(&|name| env::var_os(name).map(|text| text.to_string_lossy().into_owned()))
    }
}

impl Variables<'_> {
    /// The text of a variable; an empty one counts as not set.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|text| !text.is_empty())
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        (self.0)(name).is_some()
    }

    /// A whole number, where the variable is set, even to nothing.
    pub(crate) fn whole<N: FromStr>(&self, name: &str) -> Result<Option<N>> {
        let parse = |text: String| text.trim().parse().map_err(|_| wrong(name, &text, "must be a whole number"));
        (self.0)(name).map(parse).transpose()
    }

    /// A time, where the variable is set.
    pub(crate) fn seconds(&self, name: &str) -> Result<Option<Duration>> {
        let parse = |text: String| seconds(&text).ok_or_else(|| wrong(name, &text, "must be a number of seconds"));
        (self.0)(name).map(parse).transpose()
    }

    /// A whole number that must be there.
    pub(crate) fn needed<N: FromStr>(&self, name: &str) -> Result<N> {
        self.whole(name)?.ok_or_else(|| Error::setup(ENVIRONMENT, format!("{name} is not set")))
    }

    /// The first of some names that is set, with its number; the first name is the one to blame where none is.
    pub(crate) fn first<N: FromStr>(&self, names: &[&'static str]) -> Result<(&'static str, N)> {
        let set = names.iter().find(|name| self.is_set(name)).unwrap_or(&names[0]);
        Ok((set, self.needed(set)?))
    }

    /// A switch, off where it is not set.
    pub(crate) fn switch(&self, name: &str) -> Result<bool> {
        match (self.0)(name).unwrap_or_default().to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Ok(true),
            "" | "0" | "false" | "no" | "off" => Ok(false),
            other => Err(wrong(name, other, "must be 1 or 0")),
        }
    }

    /// A switch, on where it is not set.
    pub(crate) fn switch_on(&self, name: &str) -> Result<bool> {
        Ok(self.text(name).is_none() || self.switch(name)?)
    }
}

/// A time as seconds with or without a fraction.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    text.trim().parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

/// A variable that cannot be what it says.
pub(crate) fn wrong(name: &str, value: impl Display, must: impl Display) -> Error {
    Error::setup(ENVIRONMENT, format!("{name} is \"{value}\", {must}"))
}

pub(crate) const ENVIRONMENT: &str = "environment";

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: &'static str) -> impl Fn(&str) -> Option<String> {
        move |name| (name == "A").then(|| value.to_owned())
    }

    #[test]
    fn a_malformed_variable_is_named_with_its_value() {
        for (value, text) in [
            ("x", "environment: A is \"x\", must be a whole number"),
            ("", "environment: A is \"\", must be a whole number"),
            ("-1", "environment: A is \"-1\", must be a whole number"),
            ("1.5", "environment: A is \"1.5\", must be a whole number"),
        ] {
            assert_eq!(Variables(&one(value)).whole::<usize>("A").unwrap_err().to_string(), text);
        }
        let lookup = one("maybe");
        let error = Variables(&lookup).switch("A").unwrap_err();
        assert_eq!(error.to_string(), "environment: A is \"maybe\", must be 1 or 0");
    }

    #[test]
    fn times_are_seconds() {
        assert_eq!(
            (seconds("2.5"), seconds("300")),
            (Some(Duration::from_millis(2500)), Some(Duration::from_secs(300)))
        );
        assert!(["", "-1", "NaN", "inf", "1e300", "5s"].iter().all(|text| seconds(text).is_none()));
        let error = Variables(&one("5s")).seconds("A").unwrap_err().to_string();
        assert_eq!(error, "environment: A is \"5s\", must be a number of seconds");
    }

    #[test]
    fn what_is_set_is_read_and_what_is_not_is_missed() {
        let lookup = one("7");
        let variables = Variables(&lookup);
        assert_eq!(variables.whole("A"), Ok(Some(7)));
        assert_eq!(variables.whole::<u8>("B"), Ok(None));
        assert_eq!(variables.first(&["B", "A"]), Ok(("A", 7)));
        assert_eq!(variables.needed::<u8>("B").unwrap_err().to_string(), "environment: B is not set");
        assert_eq!((Variables(&one("True")).switch("A"), variables.switch("B")), (Ok(true), Ok(false)));
    }
}
