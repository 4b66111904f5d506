//! Dumps as one page that needs nothing else: a timeline of all ranks, and what was found on top.

use std::io::{self, Write};

use crate::analyse::Report;
use crate::dump::Dump;
use crate::timeline::Timeline;

/// The page. It fetches nothing, and shows whatever a dump holds as text.
pub fn html(dumps: &[Dump], report: &Report) -> String {
    let mut page = Vec::new();
    write(&mut page, dumps, report).expect("memory takes all that is written");
    String::from_utf8(page).expect("the template and JSON are text")
}

/// Writes the page part by part, so that it is nowhere whole. Best to what keeps some until it is worth a write.
///
/// # Errors
///
/// What `out` says.
pub fn write(mut out: impl Write, dumps: &[Dump], report: &Report) -> io::Result<()> {
    let (before, after) = TEMPLATE.split_once(HERE).unwrap_or((TEMPLATE, ""));
    out.write_all(before.as_bytes())?;
    serde_json::to_writer(Harmless(&mut out), &Timeline::of(dumps, report))?;
    out.write_all(after.as_bytes())
}

/// Takes JSON, and passes it on so that it stays inside its element whatever texts it holds.
struct Harmless<W>(W);

impl<W: Write> Write for Harmless<W> {
    fn write(&mut self, json: &[u8]) -> io::Result<usize> {
        let escape = |byte: &u8| match byte {
            b'<' => Some(b"\\u003c"),
            b'>' => Some(b"\\u003e"),
            b'&' => Some(b"\\u0026"),
            _ => None,
        };
        if let Some(escaped) = json.first().and_then(escape) {
            self.0.write_all(escaped)?;
            return Ok(1);
        }
        let plain = json.iter().position(|byte| escape(byte).is_some()).unwrap_or(json.len());
        self.0.write_all(&json[..plain])?;
        Ok(plain)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

const TEMPLATE: &str = include_str!("page.html");

/// Where the data goes.
const HERE: &str = "@DATA@";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Keeps what is written, and how much of it came at once.
    #[derive(Default)]
    pub(crate) struct Narrow {
        pub(crate) all: Vec<u8>,
        pub(crate) longest: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.longest = self.longest.max(bytes.len());
            self.all.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn harmless(json: &str) -> String {
        let mut out = Vec::new();
        Harmless(&mut out).write_all(json.as_bytes()).expect("memory takes it");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_page_is_written_part_by_part() {
        let identity = |rank| crate::Identity { rank, world_size: 1000, host_name: "host".to_owned(), pid: 7 };
        let dumps: Vec<Dump> = (0..1000).map(|rank| Dump::new(identity(rank), std::time::UNIX_EPOCH)).collect();
        let report = crate::analyse(&dumps);
        let mut out = Narrow::default();
        write(&mut out, &dumps, &report).expect("it takes all");
        let data = out.all.len() - TEMPLATE.len();
        assert!(out.longest < TEMPLATE.len() && data > TEMPLATE.len(), "{} bytes came at once", out.longest);
        assert_eq!(String::from_utf8(out.all).expect("text"), html(&dumps, &report));
    }

    #[test]
    fn the_page_has_one_place_for_data_and_asks_nobody() {
        assert_eq!(TEMPLATE.matches(HERE).count(), 1);
        for word in ["http:", "https:", "src=", "@import", "fetch(", "innerHTML"] {
            assert!(!TEMPLATE.contains(word), "{word}");
        }
    }

    #[test]
    fn a_text_cannot_leave_its_element() {
        let hostile = harmless("{\"name\":\"</script><script>alert(1)</script>&amp;\"}");
        assert!(!hostile.contains('<') && !hostile.contains('>'));
        let read: serde_json::Value = serde_json::from_str(&hostile).expect("the same JSON");
        assert_eq!(read["name"], "</script><script>alert(1)</script>&amp;");
    }
}
