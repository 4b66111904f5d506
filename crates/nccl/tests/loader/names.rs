//! Libraries found by their names alone, where the system's loader looks. What it looks at is set before a process starts, so each test
//! starts itself once more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library;
use phalanx_nccl::api::{Nccl, Version};
use phalanx_nccl::library::{NcclLibrary, Search};

use crate::stub;

const INSIDE: &str = "PHALANX_TEST_LOADER_INSIDE";

#[test]
fn the_name_with_its_number_comes_first() {
    let Some(_) = inside(&["VERSION=22809"], &["VERSION=22707"], "the_name_with_its_number_comes_first") else {
        return;
    };
    let library = NcclLibrary::open(&Search::new(), None).expect("a library");
    assert_eq!(library.version(), Ok(Version::new(2, 28, 9)));
    assert!(library.path().ends_with("libnccl.so.2"), "{}", library.path());
}

#[test]
fn one_that_is_too_old_is_passed_over() {
    let Some(_) = inside(&["VERSION=21403"], &["VERSION=22707"], "one_that_is_too_old_is_passed_over") else { return };
    let library = NcclLibrary::open(&Search::new(), None).expect("a library");
    assert_eq!(library.version(), Ok(Version::new(2, 27, 7)));
}

#[test]
fn pythons_packages_come_last_and_those_of_the_newest_python_first() {
    let name = "pythons_packages_come_last_and_those_of_the_newest_python_first";
    // None but those in Python's packages will do, whatever this machine has.
    let Some(directory) = inside(&["VERSION=21403"], &["VERSION=21403"], name) else { return };
    let prefix = directory.join("prefix");
    for (python, version) in
        [("python3.9", "VERSION=22809"), ("python3.12", "VERSION=22707"), ("python3.8", "VERSION=21403")]
    {
        let place = prefix.join("lib").join(python).join("site-packages/nvidia/nccl/lib");
        fs::create_dir_all(&place).expect("a directory");
        stub::compile("nccl", &place.join("libnccl.so.2"), &[version]);
    }
    let found = |prefix: &Path| NcclLibrary::open(&Search::new().python(prefix), None).expect("a library");
    let library = found(&prefix);
    assert_eq!(library.version(), Ok(Version::new(2, 27, 7)));
    assert!(library.path().contains("python3.12"), "{}", library.path());
    assert_eq!(found(&prefix.join("lib/python3.9/site-packages")).version(), Ok(Version::new(2, 28, 9)));
    let only_old = prefix.join("lib/python3.8/site-packages");
    let told = NcclLibrary::open(&Search::new().python(&only_old), None).err().map(|error| error.to_string());
    // Where the system's Python has one too, that is found.
    if let Some(told) = told {
        let old = "is NCCL 2.14.3, and 2.18.0 is the oldest that will do";
        let file = only_old.join("nvidia/nccl/lib/libnccl.so.2");
        let start =
            format!("NCCL: cannot be used; tried libnccl.so.2: {old}; libnccl.so: {old}; {}: {old}; ", file.display());
        assert!(told.starts_with(&start), "{told}");
        assert!(told.contains("Python's packages below /usr: no nvidia/nccl/lib"), "{told}");
    }
}

#[test]
fn one_that_the_process_has_loaded_already_comes_before_all() {
    let name = "one_that_the_process_has_loaded_already_comes_before_all";
    let Some(directory) = inside(&["VERSION=23007"], &["VERSION=23007"], name) else { return };
    // As PyTorch does: from a place of its own, by a library that says what it is called.
    let path = directory.join("loaded.so");
    stub::run_cc("nccl", &path, &["-DVERSION=22809", "-Wl,-soname,libnccl.so.2"].map(String::from));
    // SAFETY: a library of ours, whose start does nothing.
    std::mem::forget(unsafe { Library::new(&path) }.expect("the stub"));
    let library = NcclLibrary::open(&Search::new(), None).expect("a library");
    assert_eq!((library.version(), library.path()), (Ok(Version::new(2, 28, 9)), path.to_str().expect("a path")));
}

#[test]
fn a_path_is_the_only_place_that_is_looked_at() {
    let name = "a_path_is_the_only_place_that_is_looked_at";
    let Some(directory) = inside(&["VERSION=22809"], &["VERSION=22809"], name) else { return };
    let search = Search::new().path(directory.join("nowhere"));
    let error = NcclLibrary::open(&search, None).expect_err("nowhere").to_string();
    let nowhere = directory.join("nowhere");
    let words = "cannot open shared object file: No such file or directory";
    assert_eq!(error, format!("NCCL: cannot be used; tried {}: {words}", nowhere.display()));
    let library = NcclLibrary::open(&Search::new().path(&directory), None).expect("the directory's");
    assert_eq!(library.path(), directory.join("libnccl.so.2").to_str().expect("a path"));
}

/// In the second process: the directory in which its loader looks first. In the first: none, once the second has run, with these two
/// stubs as `libnccl.so.2` and `libnccl.so` there.
fn inside(numbered: &[&str], plain: &[&str], test: &str) -> Option<PathBuf> {
    if let Some(directory) = std::env::var_os(INSIDE) {
        return Some(directory.into());
    }
    let directory = stub::directory();
    stub::compile("nccl", &directory.join("libnccl.so.2"), numbered);
    stub::compile("nccl", &directory.join("libnccl.so"), plain);
    again(&directory, test);
    None
}

/// Runs a test of this binary in a process whose loader looks here first.
fn again(directory: &Path, test: &str) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", &format!("names::{test}"), "--test-threads=1"]);
    let run = command.env(INSIDE, directory).env("LD_LIBRARY_PATH", directory).output().expect("the same program");
    fs::remove_dir_all(directory).expect("the directory");
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&run.stderr));
}
