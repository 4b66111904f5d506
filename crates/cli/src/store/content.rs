//! Keys and values in one line of text, whatever they hold.

/// A key, its control characters made visible.
pub(super) fn key(key: &str) -> String {
    if key.chars().any(char::is_control) { key.escape_debug().to_string() } else { key.to_owned() }
}

/// A value: as text where it is text, as the number of its bytes where not, and shortened where it is long.
pub(super) fn value(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if text.chars().count() <= LONGEST => format!("\"{}\"", text.escape_debug()),
        Ok(text) => {
            let start: String = text.chars().take(LONGEST).collect();
            format!("\"{}\"... ({} bytes)", start.escape_debug(), value.len())
        }
        Err(_) => format!("({} bytes that are no text)", value.len()),
    }
}

const LONGEST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_fits_on_a_line() {
        assert_eq!((key("a b"), key("a\nb")), ("a b".to_owned(), "a\\nb".to_owned()));
        assert_eq!(value(b"one\ntwo"), "\"one\\ntwo\"");
        assert_eq!(value(b"\xff\0"), "(2 bytes that are no text)");
        assert_eq!(value(&[b'x'; 300]), format!("\"{}\"... (300 bytes)", "x".repeat(LONGEST)));
    }
}
