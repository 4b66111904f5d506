//! Where a library is looked for, and what is said when it is nowhere: everything that was tried, and why it would not do.

use std::path::{Path, PathBuf};

use phalanx_core::{Error, Result};

use super::python;
use super::shared::SharedObject;

/// Where libraries are looked for.
///
/// By default: by their names, where the system's loader looks, and then in the packages of Python in which NVIDIA publishes them.
/// A library that this process has loaded already, as PyTorch does, is found by its name.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Search {
    path: Option<PathBuf>,
    prefixes: Vec<PathBuf>,
}

impl Search {
    /// The default.
    pub fn new() -> Search {
        Search::default()
    }

    /// Nowhere but here: a file, or the directory in which it is. Whoever asks for one library is not given another.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Search {
        self.path = Some(path.into());
        self
    }

    /// Also in the packages below this prefix of a Python, such as a virtual environment, or in this `site-packages`; before those
    /// of the system's Python.
    pub fn python(mut self, prefix: impl Into<PathBuf>) -> Search {
        self.prefixes.push(prefix.into());
        self
    }

    /// The first library that `accept` makes something of.
    pub(super) fn find<T>(
        &self,
        wanted: &Wanted,
        mut accept: impl FnMut(SharedObject) -> Result<T, String>,
    ) -> Result<T> {
        let mut tried = Vec::new();
        for place in self.places(wanted) {
            let name = match place {
                Place::File(name) => name,
                Place::Nowhere(why) => {
                    tried.push(why);
                    continue;
                }
            };
            match SharedObject::open(&name).and_then(&mut accept) {
                Ok(found) => return Ok(found),
                Err(why) => tried.push(format!("{}: {}", name.display(), without_name(&why, &name))),
            }
        }
        Err(Error::setup(wanted.what, format!("cannot be used; tried {}", tried.join("; "))))
    }

    /// Where to look, in order.
    fn places(&self, wanted: &Wanted) -> Vec<Place> {
        let named = wanted.names.iter();
        match &self.path {
            Some(path) if path.is_dir() => named.map(|name| Place::File(path.join(name))).collect(),
            Some(path) => vec![Place::File(path.clone())],
            None => {
                let prefixes = self.prefixes.iter().cloned().chain(python::usual_prefixes());
                let packaged = prefixes.flat_map(|prefix| packaged(&prefix, wanted));
                named.map(|name| Place::File(name.into())).chain(packaged).collect()
            }
        }
    }
}

enum Place {
    /// A file, or a name that the system's loader knows a file for.
    File(PathBuf),
    /// Nothing to open, and why.
    Nowhere(String),
}

/// The files in the packages below a prefix of Python's.
fn packaged(prefix: &Path, wanted: &Wanted) -> Vec<Place> {
    if wanted.packages.is_empty() {
        return Vec::new();
    }
    let places = python::packages_of(prefix);
    let directories = places.iter().flat_map(|place| wanted.packages.iter().map(|package| place.join(package)));
    let files = directories.flat_map(|directory| wanted.names.iter().map(move |name| directory.join(name)));
    let found: Vec<Place> = files.filter(|file| file.exists()).map(Place::File).collect();
    if found.is_empty() {
        let packages = wanted.packages.join(" or ");
        return vec![Place::Nowhere(format!("Python's packages below {}: no {packages}", prefix.display()))];
    }
    found
}

/// A library that is looked for.
#[derive(Debug)]
pub(super) struct Wanted {
    /// What it is called in errors.
    pub(super) what: &'static str,
    /// The names of its file, the best first.
    pub(super) names: &'static [&'static str],
    /// Directories of Python's packages in which it is.
    pub(super) packages: &'static [&'static str],
}

/// The loader's words without the name that they begin with.
fn without_name<'a>(why: &'a str, name: &Path) -> &'a str {
    let rest = name.to_str().and_then(|name| why.strip_prefix(name));
    rest.map_or(why, |rest| rest.trim_start_matches([':', ' ']))
}
