//! Dumps as one page that needs nothing else: a timeline of all ranks, and what was found on top.

use crate::analyse::Report;
use crate::dump::Dump;
use crate::timeline::Timeline;

/// The page. It fetches nothing, and shows whatever a dump holds as text.
pub fn html(dumps: &[Dump], report: &Report) -> String {
    let data = serde_json::to_string(&Timeline::of(dumps, report)).expect("plain data has no key that is not text");
    let (before, after) = TEMPLATE.split_once(HERE).unwrap_or((TEMPLATE, ""));
    [before, &harmless(&data), after].concat()
}

/// JSON that stays inside its element whatever texts it holds.
fn harmless(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

const TEMPLATE: &str = include_str!("page.html");

/// Where the data goes.
const HERE: &str = "@DATA@";

#[cfg(test)]
mod tests {
    use super::*;

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
