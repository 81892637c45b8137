//! The mark that a run leaves on each object that it writes: an annotation that says which event of which
//! run the object is the result of. Whoever is told of the object knows by it what was told.

use std::fmt;

/// The annotation.
pub(super) const MARK: &str = "watchet-bench-event";

/// The value of [`MARK`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub run: u32,
    pub event: u32,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All are of one length, so that what fills an object up to its size need not change with them:
        // the containers of a pod are for good.
        write!(f, "{:08x}-{:010}", self.run, self.event)
    }
}

impl Mark {
    /// The mark that `text` is, if it is one.
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
    fn marks_are_read_as_they_are_written() {
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
