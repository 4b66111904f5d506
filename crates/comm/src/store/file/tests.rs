//! The file itself: what is refused, what is mended, and what a copy of it does not survive.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use phalanx_core::store::{Refusal, Store};

use super::*;

/// A directory of a name that nobody else has, with one file to be; removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("phalanx-file-{}-{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        Place(directory)
    }

    fn file(&self) -> PathBuf {
        self.0.join("store")
    }

    fn open(&self) -> Store {
        self.open_with(FileStoreOptions::new())
    }

    fn open_with(&self, options: FileStoreOptions) -> Store {
        Store::new(FileStore::open(self.file(), options).unwrap()).with_timeout(Duration::from_secs(10))
    }

    /// Makes the file with these bytes, whatever mode this user's files have else.
    fn write(&self, bytes: impl AsRef<[u8]>) {
        fs::write(self.file(), bytes).unwrap();
        self.permit(0o600);
    }

    fn permit(&self, mode: u32) {
        fs::set_permissions(self.file(), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn refusal(&self) -> String {
        FileStore::open(self.file(), FileStoreOptions::new()).unwrap_err().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _absent = fs::remove_dir_all(&self.0);
    }
}

/// Why the store is lost.
fn lost<T: fmt::Debug>(answer: std::result::Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Lost { detail, .. }) => detail,
        other => panic!("{other:?} where the store was lost"),
    }
}

#[test]
fn a_file_is_for_its_owner_and_stays() {
    let place = Place::new();
    place.open().set("a", "1").unwrap();
    assert_eq!(fs::metadata(place.file()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(place.open().get("a").unwrap(), b"1");
}

#[test]
fn a_file_that_others_may_write_is_refused_and_untouched() {
    let place = Place::new();
    place.open().set("a", "1").unwrap();
    let bytes = fs::read(place.file()).unwrap();
    for mode in [0o620, 0o602, 0o666] {
        place.permit(mode);
        let (said, path) = (place.refusal(), place.file().display().to_string());
        assert!(said.contains(&path) && said.contains(&format!("mode 0{mode:o}")), "{said}");
        assert_eq!(fs::read(place.file()).unwrap(), bytes);
    }
    // To read it is another matter.
    place.permit(0o644);
    assert_eq!(place.open().get("a").unwrap(), b"1");
}

#[test]
fn a_link_is_refused_and_nothing_made_where_it_leads() {
    let place = Place::new();
    let kept = place.0.join("kept");
    symlink(&kept, place.file()).unwrap();
    assert!(place.refusal().contains("symbolic link"), "{}", place.refusal());
    assert!(!kept.exists());
    FileStore::open(&kept, FileStoreOptions::new()).unwrap();
    assert!(place.refusal().contains("symbolic link"), "{}", place.refusal());
}

#[test]
fn what_is_no_store_is_refused_and_untouched() {
    let place = Place::new();
    for foreign in ["x", "a letter to a friend", "phalanx, a letter about it", &"long ".repeat(100)] {
        place.write(foreign);
        assert!(place.refusal().contains("no store"), "{}", place.refusal());
        assert_eq!(fs::read(place.file()).unwrap(), foreign.as_bytes());
    }
    fs::remove_file(place.file()).unwrap();
    fs::create_dir(place.file()).unwrap();
    assert!(place.refusal().contains("store in"), "{}", place.refusal());
    let within = FileStore::open(place.0.join("absent/store"), FileStoreOptions::new()).unwrap_err();
    assert!(within.to_string().contains("absent"), "{within}");
}

#[test]
fn another_version_is_refused_by_number() {
    let place = Place::new();
    place.open().set("a", "1").unwrap();
    let mut bytes = fs::read(place.file()).unwrap();
    bytes[8] = 2;
    fs::write(place.file(), bytes).unwrap();
    assert!(place.refusal().contains("version 2"), "{}", place.refusal());
}

#[test]
fn a_writer_killed_at_any_byte_has_written_nothing() {
    let place = Place::new();
    let store = place.open();
    store.set("a", "1").unwrap();
    let before = fs::metadata(place.file()).unwrap().len();
    store.multi_set(&[("a", b"2"), ("b", b"2")]).unwrap();
    let whole = fs::read(place.file()).unwrap();
    for len in before as usize..whole.len() {
        fs::remove_file(place.file()).unwrap();
        place.write(&whole[..len]);
        let (reader, writer) = (place.open(), place.open());
        assert_eq!(reader.get("a").unwrap(), b"1", "cut at {len}");
        writer.append("c", "3").unwrap();
        assert_eq!(reader.multi_get(&["a", "c"]).unwrap(), [b"1", b"3"], "cut at {len}");
        assert_eq!(place.open().list_keys().unwrap(), ["a", "c"]);
    }
}

#[test]
fn a_maker_killed_at_any_byte_has_made_nothing() {
    let place = Place::new();
    place.open().ping().unwrap();
    assert_eq!(fs::metadata(place.file()).unwrap().len(), 0, "who only looks writes nothing");
    place.open().set("a", "1").unwrap();
    let whole = fs::read(place.file()).unwrap();
    for len in 0..header::BYTE_LEN {
        fs::remove_file(place.file()).unwrap();
        place.write(&whole[..len]);
        let (reader, writer) = (place.open(), place.open());
        assert_eq!(reader.find("a").unwrap(), None);
        writer.set("b", "1").unwrap();
        assert_eq!(reader.list_keys().unwrap(), ["b"]);
    }
}

#[test]
fn a_flipped_bit_is_told_and_nothing_is_cut() {
    let place = Place::new();
    place.open().set("a", "1").unwrap();
    let first = fs::metadata(place.file()).unwrap().len() as usize;
    place.open().set("b", "2").unwrap();
    let whole = fs::read(place.file()).unwrap();
    for at in header::BYTE_LEN..first {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(place.file(), &bytes).unwrap();
        assert!(place.refusal().contains("corrupt"), "byte {at}: {}", place.refusal());
        assert_eq!(fs::read(place.file()).unwrap(), bytes);
    }
}

#[test]
fn a_record_of_nonsense_is_told() {
    let place = Place::new();
    let store = place.open();
    store.set("a", "not a number").unwrap();
    let refused = Request::Add { key: "a".into(), delta: 1 };
    let record = record::encode(phalanx_core::store::ClientId(1), &refused).unwrap();
    OpenOptions::new().append(true).open(place.file()).unwrap().write_all(&record).unwrap();
    assert!(lost(store.get("a")).contains("corrupt"));
    assert!(place.refusal().contains("corrupt"));
}

#[test]
fn a_file_that_is_gone_is_told() {
    let place = Place::new();
    let store = place.open();
    store.set("a", "1").unwrap();
    let (kept, waiter) = (place.0.join("kept"), store.clone());
    fs::rename(place.file(), &kept).unwrap();
    assert!(lost(store.get("a")).contains("gone"));
    assert!(lost(store.set("a", "2")).contains("gone"));
    let another = place.open();
    another.set("a", "3").unwrap();
    assert!(lost(waiter.wait(&["b"])).contains("replaced"));
    fs::rename(&kept, place.file()).unwrap();
    assert_eq!(store.get("a").unwrap(), b"1", "it is the file that counts, not the time without it");
    File::options().write(true).open(place.file()).unwrap().set_len(80).unwrap();
    assert!(lost(store.get("a")).contains("cut"));
}

#[test]
fn a_log_has_an_end() {
    let place = Place::new();
    let store = place.open_with(FileStoreOptions::new().log(400));
    let mut count = 0;
    let refusal = loop {
        match store.set("a", [0; 50]) {
            Ok(()) => count += 1,
            Err(StoreError::Refused { refusal, .. }) => break refusal,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(matches!(refusal, Refusal::StoreFull { len: 401.., limit: 400 }), "{refusal}");
    assert_eq!(count, 3);
    assert!(fs::metadata(place.file()).unwrap().len() <= 400);
    assert_eq!(store.get("a").unwrap(), [0; 50]);
}

#[test]
fn the_limits_are_those_of_the_file() {
    let place = Place::new();
    let narrow = FileStoreOptions::new().limits(Limits::default().value(3));
    let (early, maker) = (place.open(), place.open_with(narrow));
    maker.set("a", "123").unwrap();
    for store in [&early, &maker, &place.open()] {
        let error = store.set("a", "1234").unwrap_err();
        assert!(
            matches!(error, StoreError::Refused { refusal: Refusal::ValueTooLong { limit: 3, .. }, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_change_that_cannot_be_written_is_none() {
    let place = Place::new();
    place.open().set("a", "1").unwrap();
    let home = FileStore::open(place.file(), FileStoreOptions::new()).unwrap();
    home.lock().log().reopen(File::open(place.file()).unwrap());
    let store = Store::new(home).with_timeout(Duration::from_millis(10));
    assert!(store.wait(&["b"]).unwrap_err().is_timeout());
    lost(store.set("b", "2"));
    lost(store.add("n", 1));
    assert_eq!(store.list_keys().unwrap(), ["a"]);
    place.open().set("c", "3").unwrap();
    assert_eq!(store.list_keys().unwrap(), ["a", "c"]);
}
