//! Counters as text: the number that a value begins with.

/// The number that `text` begins with, read as `strtoll` reads it, as PyTorch's stores do; none where it begins with no
/// number or with one beyond 64 bits.
pub(super) fn leading_number(text: &[u8]) -> Option<i64> {
    let text = &text[text.iter().take_while(|byte| is_space(**byte)).count()..];
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let digits = text[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    str::from_utf8(&text[..sign + digits]).ok()?.parse().ok()
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_far_as_they_go() {
        let rows: [(&str, Option<i64>); 14] = [
            ("0", Some(0)),
            ("12", Some(12)),
            ("12abc", Some(12)),
            ("-7", Some(-7)),
            ("+7", Some(7)),
            (" \t\n\x0b\x0c\r42 ", Some(42)),
            ("1.9", Some(1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("abc", None),
            ("- 1", None),
        ];
        for (text, number) in rows {
            assert_eq!(leading_number(text.as_bytes()), number, "{text:?}");
        }
        assert_eq!(leading_number(b"5\xff"), Some(5));
    }
}
