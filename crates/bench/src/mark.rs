//! The mark of a run on each object that it writes: an annotation with the run and the number of
//! the event. A watcher identifies the event by it.

use std::fmt;

/// The annotation's key.
pub(super) const MARK: &str = "watchet-bench-event";

/// The value of [`MARK`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub run: u32,
    pub event: u32,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A fixed length, so that the padding of an object need not change with the mark: the
        // containers of a pod are immutable.
        write!(f, "{:08x}-{:010}", self.run, self.event)
    }
}

impl Mark {
    /// Parses a mark; `None` if `text` is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (run, event) = text.split_once('-')?;
        Some(Self {
            run: u32::from_str_radix(run, 16).ok()?,
            event: event.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_parse_as_formatted() {
        let mark = Mark {
            run: 0xab,
            event: 17,
        };
        assert_eq!(mark.to_string(), "000000ab-0000000017");
        assert_eq!(Mark::parse(&mark.to_string()), Some(mark));
        for text in ["", "000000ab", "x-17", "000000ab-", "000000ab-4294967296"] {
            assert_eq!(Mark::parse(text), None, "{text}");
        }
    }
}
