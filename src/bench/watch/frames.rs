//! The frames of a watch: finding them in the bytes of a body, and in each what the run needs to know of
//! it, without parsing JSON: the generator shares the machine with the server that it measures.

use std::sync::LazyLock;

use memchr::{memchr, memmem};

/// The annotation that tells which event of which run an object is the result of.
pub(super) const MARK: &str = "watchet-bench-event";

/// The value of [`MARK`].
pub(super) fn mark(run: u32, event: u32) -> String {
    format!("{run:08x}-{event}")
}

/// What a frame tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// An object of a run.
    Event { run: u32, event: u32, version: u64 },
    /// The stream says that it is over.
    Error(&'a [u8]),
    /// A bookmark, or an object of somebody else.
    Other,
}

/// Takes the bytes of a body and gives them back line by line.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
}

impl Lines {
    /// Calls `each` for every line that ends in `bytes`.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            if self.begun.is_empty() {
                each(line);
            } else {
                self.begun.extend_from_slice(line);
                each(&self.begun);
                self.begun.clear();
            }
            bytes = &rest[1..];
        }
        self.begun.extend_from_slice(bytes);
    }
}

impl<'a> Frame<'a> {
    pub(super) fn read(line: &'a [u8]) -> Self {
        static MARK_VALUE: LazyLock<memmem::Finder<'static>> =
            LazyLock::new(|| memmem::Finder::new(r#""watchet-bench-event":""#));
        // Inside of a text its quotes would be escaped.
        static VERSION: LazyLock<memmem::Finder<'static>> =
            LazyLock::new(|| memmem::Finder::new(r#""resourceVersion":""#));
        if line.starts_with(br#"{"type":"ERROR""#) {
            return Self::Error(line);
        }
        let event = text_after(&MARK_VALUE, line).and_then(|mark| {
            let (run, event) = mark.split_once('-')?;
            let run = u32::from_str_radix(run, 16).ok()?;
            let version = text_after(&VERSION, line)?;
            Some(Self::Event {
                run,
                event: event.parse().ok()?,
                version: version.parse().ok()?,
            })
        });
        event.unwrap_or(Self::Other)
    }
}

/// The text between the end of what `finder` finds and the next quote.
fn text_after<'a>(finder: &memmem::Finder<'_>, line: &'a [u8]) -> Option<&'a str> {
    let begin = finder.find(line)? + finder.needle().len();
    let rest = &line[begin..];
    std::str::from_utf8(&rest[..memchr(b'"', rest)?]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_the_bytes_come() {
        let text = b"one\ntwo\n\nfour\n";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in text.chunks(size) {
                lines.push(piece, |line| found.push(line.to_vec()));
            }
            assert_eq!(
                found,
                [&b"one"[..], b"two", b"", b"four"],
                "in pieces of {size}"
            );
            lines.push(b"half", |line| panic!("{line:?}"));
        }
    }

    fn check(line: &str, expected: Frame<'_>) {
        assert_eq!(Frame::read(line.as_bytes()), expected, "{line}");
    }

    #[test]
    fn frames_tell_their_event_in_any_order_of_members() {
        let event = |event, version| Frame::Event {
            run: 0xab,
            event,
            version,
        };
        let marked = mark(0xab, 17);
        check(
            &format!(
                r#"{{"type":"MODIFIED","object":{{"metadata":{{"annotations":{{"{MARK}":"{marked}"}},"resourceVersion":"9"}}}}}}"#
            ),
            event(17, 9),
        );
        check(
            &format!(
                r#"{{"type":"ADDED","object":{{"metadata":{{"resourceVersion":"10","annotations":{{"{MARK}":"{marked}"}}}}}}}}"#
            ),
            event(17, 10),
        );
        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#;
        check(bookmark, Frame::Other);
        check(r#"{"type":"ADDED","object":{}}"#, Frame::Other);
        let error = r#"{"type":"ERROR","object":{"code":410}}"#;
        check(error, Frame::Error(error.as_bytes()));
    }
}
