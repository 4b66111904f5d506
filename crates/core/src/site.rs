//! Where in a program an operation was called.

use std::fmt;
use std::panic::Location;

/// Where in a program an operation was called: what is told of one that hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// In Rust.
    Rust(&'static Location<'static>),
    /// In a program of another language, which reaches a group through a layer in Rust: see [`Group::at`](crate::Group::at).
    Foreign(&'static Place),
}

/// A line of a source in any language.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The source.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The function in it.
    pub function: String,
}

impl Site {
    /// Where the caller of this was called.
    #[track_caller]
    pub fn caller() -> Site {
        Site::Rust(Location::caller())
    }

    /// The source.
    pub fn file(&self) -> &'static str {
        match self {
            Site::Rust(location) => location.file(),
            Site::Foreign(place) => &place.file,
        }
    }

    /// The line, from 1.
    pub fn line(&self) -> u32 {
        match self {
            Site::Rust(location) => location.line(),
            Site::Foreign(place) => place.line,
        }
    }

    /// The place in the line, from 1, where that is known.
    pub fn column(&self) -> Option<u32> {
        match self {
            Site::Rust(location) => Some(location.column()),
            Site::Foreign(_) => None,
        }
    }

    /// The function, where that is known.
    pub fn function(&self) -> Option<&'static str> {
        match self {
            Site::Rust(_) => None,
            Site::Foreign(place) => Some(&place.function),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::Rust(location) => location.fmt(f),
            Site::Foreign(place) => write!(f, "{}:{}", place.file, place.line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_tells_what_is_known_of_it() {
        let site = Site::caller();
        assert_eq!((site.line(), site.function()), (line!() - 1, None));
        assert!(site.to_string().ends_with(&format!("site.rs:{}:{}", site.line(), site.column().unwrap())));
        let place = Place { file: "train.py".to_owned(), line: 7, function: "step".to_owned() };
        let site = Site::Foreign(Box::leak(Box::new(place)));
        assert_eq!((site.file(), site.line(), site.column(), site.function()), ("train.py", 7, None, Some("step")));
        assert_eq!(site.to_string(), "train.py:7");
    }
}
