//! Lengths, places and what is left out.

use super::*;

#[path = "../../../../tests/loader/complete.rs"]
mod complete;

use complete::full;

fn image(config: &CommConfig, code: u32) -> Vec<u8> {
    Image::of(config, Version::from_code(code), &Names::default()).bytes()
}

fn number(image: &[u8], offset: usize) -> i32 {
    i32::from_ne_bytes(image[offset..offset + 4].try_into().expect("four bytes"))
}

#[test]
fn an_image_is_as_long_as_its_version_reads() {
    let lengths = [
        (21_801, 48),
        (22_605, 48),
        (22_707, 72),
        (22_809, 80),
        (22_907, 88),
        (23_004, 96),
        (23_007, 96),
        (23_102, 112),
        (23_203, 120),
    ];
    for (code, byte_len) in lengths {
        let image = image(&full(), code);
        assert_eq!(image.len(), byte_len, "{code}");
        assert_eq!(image[..8], (byte_len as u64).to_ne_bytes(), "{code}");
        assert_eq!(image[8..12], 0xcafe_beef_u32.to_ne_bytes(), "{code}");
        assert_eq!(number(&image, 12), code as i32, "{code}");
    }
}

#[test]
fn a_newer_library_gets_the_newest_image_that_is_known() {
    let image = image(&full(), 24_001);
    assert_eq!((image.len(), number(&image, 12)), (120, 23_203));
}

#[test]
fn what_is_absent_is_unset() {
    let image = image(&CommConfig::default(), 23_203);
    assert_eq!(number(&image, 16), 0);
    assert!(image[32..40].iter().chain(&image[48..56]).all(|byte| *byte == 0));
    let numbers = (20..32).chain(40..48).chain(56..116).step_by(4);
    assert!(numbers.clone().count() > 18 && numbers.into_iter().all(|offset| number(&image, offset) == i32::MIN));
}

#[test]
fn every_field_is_in_its_place() {
    let image = image(&full(), 22_809);
    let numbers = [16, 20, 24, 28, 40, 44, 56, 60, 64, 68, 72, 76].map(|offset| number(&image, offset));
    assert_eq!(numbers, [1, 2, 3, 4, 1, 5, 0, 6, 1, 7, 8, 1]);
    for (offset, name) in [(32, c"Socket"), (48, c"mesh")] {
        let address = usize::from_ne_bytes(image[offset..offset + 8].try_into().expect("eight bytes"));
        // SAFETY: the image holds a pointer to a name, which is never freed.
        let text = unsafe { CStr::from_ptr(ptr::with_exposed_provenance(address)) };
        assert_eq!(text, name);
    }
}

#[test]
fn what_a_library_is_too_old_for_is_left_out() {
    let old = image(&full(), 21_801);
    // Where the class of traffic is later, there was nothing.
    assert_eq!(number(&old, 44), 0);
    assert_eq!(number(&image(&CommConfig::default(), 22_501), 44), i32::MIN);
}

#[test]
fn a_name_is_kept_once_and_holds_no_zero() {
    let names = Names::default();
    assert_eq!(names.pointer("a"), names.pointer("a"));
    assert_ne!(names.pointer("a"), names.pointer("b"));
    // SAFETY: a name that is never freed.
    let text = unsafe { CStr::from_ptr(names.pointer("c\0d")) };
    assert_eq!(text, c"cd");
}
