//! Tables of foreign functions: each by its name, with the version since which it exists, and there or not.

use phalanx_core::Error;

use crate::api::Version;

/// A function that a library may have.
#[derive(Debug)]
pub(super) struct Foreign<F> {
    pub(super) name: &'static str,
    pub(super) since: Version,
    pub(super) call: Option<F>,
}

/// A function that a library lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function} {}", reason(*found, *needed))]
pub struct Absent {
    /// The function.
    pub function: &'static str,
    /// The library's version.
    pub found: Version,
    /// The version that has it first.
    pub needed: Version,
}

impl From<Absent> for Error {
    fn from(absent: Absent) -> Error {
        Error::setup("NCCL", absent)
    }
}

fn reason(found: Version, needed: Version) -> String {
    if found < needed {
        format!("needs {needed}, this library is {found}")
    } else {
        format!("is there since {needed}, but this library of {found} does not export it")
    }
}

/// Declares a table: a structure with a field for each function, how it is filled, and the list of what is missing.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident { $($field:ident = $name:literal, $since:expr, ($($argument:ty),* $(,)?) -> $answer:ty;)* }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $table {
            $(pub(super) $field: $crate::library::table::Foreign<unsafe extern "C" fn($($argument),*) -> $answer>,)*
        }

        impl $table {
            /// Every function that the library has.
            pub(super) fn of(object: &$crate::library::shared::SharedObject) -> $table {
                use $crate::library::table::Foreign;
                $table {
                    $($field: Foreign {
                        name: $name,
                        since: $since,
                        // SAFETY: the signature is the one of the library's header, and libraries keep theirs.
                        call: unsafe { object.function($name) },
                    },)*
                }
            }

            /// Those that it lacks, by name and since when they exist.
            pub(super) fn missing(&self) -> Vec<(&'static str, $crate::api::Version)> {
                let all = [$((self.$field.call.is_none(), self.$field.name, self.$field.since)),*];
                all.into_iter().filter(|(is_missing, ..)| *is_missing).map(|(_, name, since)| (name, since)).collect()
            }
        }
    };
}

pub(super) use table;
