//! The little of HTTP/1.1 that a scraper speaks: one request without a body, one answer, and the connection ends. Pure: no socket here.

/// What the bytes of a visitor are so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Not a whole request yet.
    Part,
    /// A request for the page at this path.
    Whole { path: String, wants_body: bool },
    /// Nothing that is answered with a page.
    Refused(Status),
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Fine,
    Malformed,
    NotFound,
    WrongMethod,
    TooLong,
}

/// A page and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

/// Reads the head of a request.
pub(super) fn hear(bytes: &[u8]) -> Heard {
    let Some(end) = bytes.windows(END.len()).position(|window| window == END) else {
        return if bytes.len() < LONGEST_HEAD { Heard::Part } else { Heard::Refused(Status::TooLong) };
    };
    let Ok(head) = std::str::from_utf8(&bytes[..end]) else { return Heard::Refused(Status::Malformed) };
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else { return Heard::Refused(Status::Malformed) };
    if !target.starts_with('/') || !lines.all(|line| line.split_once(':').is_some_and(|(name, _)| is_token(name))) {
        return Heard::Refused(Status::Malformed);
    }
    let path = target.split('?').next().unwrap_or_default().to_owned();
    match method {
        "GET" => Heard::Whole { path, wants_body: true },
        "HEAD" => Heard::Whole { path, wants_body: false },
        _ => Heard::Refused(Status::WrongMethod),
    }
}

/// A page as an answer; without its body where only the head was asked for.
pub(super) fn answer(page: &Page, wants_body: bool) -> Vec<u8> {
    say(Status::Fine, page, wants_body)
}

/// The answer to a request that gets no page.
pub(super) fn refusal(status: Status) -> Vec<u8> {
    let body = format!("{}\n", status.words());
    say(status, &Page { content_type: "text/plain; charset=utf-8", body }, true)
}

fn say(status: Status, Page { content_type, body }: &Page, with_body: bool) -> Vec<u8> {
    let allow = if status == Status::WrongMethod { "Allow: GET, HEAD\r\n" } else { "" };
    let (words, byte_len) = (status.words(), body.len());
    let head = format!(
        "HTTP/1.1 {words}\r\nContent-Type: {content_type}\r\nContent-Length: {byte_len}\r\n{allow}Connection: close\r\n\r\n"
    );
    let body = if with_body { body.as_str() } else { "" };
    [head.as_bytes(), body.as_bytes()].concat()
}

impl Status {
    fn words(self) -> &'static str {
        match self {
            Status::Fine => "200 OK",
            Status::Malformed => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::WrongMethod => "405 Method Not Allowed",
            Status::TooLong => "431 Request Header Fields Too Large",
        }
    }
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

const END: &[u8] = b"\r\n\r\n";
/// More than any scraper sends.
pub(super) const LONGEST_HEAD: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_once_it_is_whole() {
        let request = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a:1\r\nAccept: */*\r\n\r\n";
        assert!((0..request.len()).all(|cut| hear(&request[..cut]) == Heard::Part));
        assert_eq!(hear(request), Heard::Whole { path: "/metrics".to_owned(), wants_body: true });
        let head = Heard::Whole { path: "/".to_owned(), wants_body: false };
        assert_eq!(hear(b"HEAD / HTTP/1.0\r\n\r\n"), head);
    }

    #[test]
    fn what_is_no_such_request_is_refused() {
        for (bytes, status) in [
            (&b"POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd"[..], Status::WrongMethod),
            (b"\r\n\r\n", Status::Malformed),
            (b"GET /metrics\r\n\r\n", Status::Malformed),
            (b"GET /metrics HTTP/2\r\n\r\n", Status::Malformed),
            (b"GET  /metrics HTTP/1.1\r\n\r\n", Status::Malformed),
            (b"GET metrics HTTP/1.1\r\n\r\n", Status::Malformed),
            (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", Status::Malformed),
            (b"GET /metrics HTTP/1.1\r\n folded: x\r\n\r\n", Status::Malformed),
            (b"GET /\xff HTTP/1.1\r\n\r\n", Status::Malformed),
            (&[b'a'; LONGEST_HEAD], Status::TooLong),
        ] {
            assert_eq!(hear(bytes), Heard::Refused(status), "{:?}", String::from_utf8_lossy(bytes));
        }
        let long = String::from_utf8(refusal(Status::WrongMethod)).unwrap();
        assert!(long.starts_with("HTTP/1.1 405 Method Not Allowed\r\n") && long.contains("\r\nAllow: GET, HEAD\r\n"));
    }

    #[test]
    fn an_answer_says_how_long_it_is() {
        let page = Page { content_type: "text/plain", body: "four".to_owned() };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\nConnection: close\r\n\r\n";
        assert_eq!(answer(&page, true), format!("{head}four").into_bytes());
        assert_eq!(answer(&page, false), head.as_bytes());
    }
}
