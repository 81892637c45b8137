//! What one watcher was told, event by event: enough to say afterwards what it was not told, told twice,
//! told in the wrong order or told although it did not ask. It is a bit for each event of the run.

use crate::bench::args::Mode;
use crate::bench::decode::Malformed;
use crate::bench::frames::{Frame, Kind};

/// Which events of a run are a watcher's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interest {
    pub watcher: u32,
    pub watchers: u32,
    pub mode: Mode,
}

impl Interest {
    /// Whether the watcher is to be told of `event`.
    pub(super) fn wants(&self, event: u32) -> bool {
        match self.mode {
            Mode::Broadcast => true,
            Mode::Selective => event % self.watchers == self.watcher,
        }
    }
}

/// What a frame tells a watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// An object of a run.
    Event { run: u32, event: u32, version: u64 },
    /// That the stream is over, or nothing that can be understood; in words.
    Error(String),
    /// A bookmark, or an object of somebody else.
    Other,
}

impl Told {
    pub(super) fn of(frame: Result<Frame<'_>, Malformed>) -> Self {
        let frame = match frame {
            Ok(frame) if frame.kind == Kind::Error => return Self::Error(frame.text()),
            Ok(frame) if frame.kind == Kind::Bookmark => return Self::Other,
            Ok(frame) => frame,
            Err(malformed) => return Self::Error(format!("what is no event: {malformed}")),
        };
        let Some(mark) = frame.object.mark() else {
            return Self::Other;
        };
        match frame.object.version() {
            Some(version) => Self::Event {
                run: mark.run,
                event: mark.event,
                version,
            },
            None => Self::Error(format!("no version that is a number: {}", frame.text())),
        }
    }
}

/// What was told to a watcher.
#[derive(Debug)]
pub(super) struct Tally {
    run: u32,
    events: u32,
    interest: Interest,
    /// A bit for each event that came.
    came: Vec<u64>,
    last_version: u64,
    pub faults: Faults,
}

/// How often a watcher, or all, were told what they should not have been, or not told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// Acknowledged writes that it was not told of.
    pub lost: u64,
    pub duplicate: u64,
    pub out_of_order: u64,
    /// Events that it did not ask for.
    pub foreign: u64,
    /// The first that a watch said instead of an event.
    pub error: Option<String>,
}

impl Faults {
    pub(super) fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.duplicate += other.duplicate;
        self.out_of_order += other.out_of_order;
        self.foreign += other.foreign;
        self.error = self.error.take().or(other.error);
    }
}

impl Tally {
    pub(super) fn new(run: u32, events: u32, interest: Interest) -> Self {
        Self {
            run,
            events,
            interest,
            came: vec![0; events.div_ceil(64) as usize],
            last_version: 0,
            faults: Faults::default(),
        }
    }

    /// Takes in a frame. Returns the event that it tells of, when that is told for the first time and
    /// to one who asked.
    pub(super) fn take(&mut self, told: Told) -> Option<u32> {
        let (run, event, version) = match told {
            Told::Event {
                run,
                event,
                version,
            } => (run, event, version),
            Told::Error(error) => {
                self.faults.error.get_or_insert(error);
                return None;
            }
            Told::Other => return None,
        };
        if run != self.run || event >= self.events || !self.interest.wants(event) {
            self.faults.foreign += 1;
            return None;
        }
        let (word, bit) = (event as usize / 64, 1 << (event % 64));
        if self.came[word] & bit != 0 {
            self.faults.duplicate += 1;
            return None;
        }
        self.came[word] |= bit;
        if version <= self.last_version {
            self.faults.out_of_order += 1;
        }
        self.last_version = self.last_version.max(version);
        Some(event)
    }

    /// What went wrong, when `acknowledged` says of which events the writer knows that they happened.
    pub(super) fn close(mut self, acknowledged: impl Fn(u32) -> bool) -> Faults {
        let came = |event: u32| self.came[event as usize / 64] & 1 << (event % 64) != 0;
        let lost = (0..self.events)
            .filter(|event| self.interest.wants(*event) && acknowledged(*event) && !came(*event));
        self.faults.lost = lost.count() as u64;
        self.faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::Encoding;
    use crate::bench::mark::MARK;

    const RUN: u32 = 7;

    /// What a watcher of `mode` (the second of three) says of frames `(event, version)` when all of 6
    /// events were acknowledged but the last.
    fn check(mode: Mode, frames: &[(u32, u64)], expected: Faults) {
        let interest = Interest {
            watcher: 1,
            watchers: 3,
            mode,
        };
        let mut tally = Tally::new(RUN, 6, interest);
        for (event, version) in frames {
            tally.take(Told::Event {
                run: RUN,
                event: *event,
                version: *version,
            });
        }
        assert_eq!(tally.close(|event| event < 5), expected, "{frames:?}");
    }

    #[test]
    fn a_watcher_that_is_told_all_has_no_faults() {
        let all = [(0, 10), (1, 11), (2, 12), (3, 13), (4, 14)];
        check(Mode::Broadcast, &all, Faults::default());
        // What was written and not acknowledged may come.
        let more = [&all[..], &[(5, 15)]].concat();
        check(Mode::Broadcast, &more, Faults::default());
        check(Mode::Selective, &[(1, 11), (4, 14)], Faults::default());
        // Writers that overtake each other: the order is that of the versions.
        let crossed = [(1, 10), (0, 11), (2, 12), (4, 13), (3, 14)];
        check(Mode::Broadcast, &crossed, Faults::default());
    }

    #[test]
    fn planted_faults_are_found() {
        let faults = Faults::default;
        check(
            Mode::Broadcast,
            &[(0, 10), (1, 11), (3, 13)],
            Faults {
                lost: 2,
                ..faults()
            },
        );
        check(
            Mode::Broadcast,
            &[
                (0, 10),
                (1, 11),
                (1, 11),
                (2, 12),
                (3, 13),
                (0, 10),
                (4, 14),
            ],
            Faults {
                duplicate: 2,
                ..faults()
            },
        );
        check(
            Mode::Broadcast,
            &[(0, 10), (2, 12), (1, 11), (3, 13), (4, 14)],
            Faults {
                out_of_order: 1,
                ..faults()
            },
        );
        // Two events cannot share a version.
        check(
            Mode::Broadcast,
            &[(0, 10), (1, 11), (2, 11), (3, 13), (4, 14)],
            Faults {
                out_of_order: 1,
                ..faults()
            },
        );
        check(
            Mode::Selective,
            &[(0, 10), (1, 11)],
            Faults {
                foreign: 1,
                lost: 1,
                ..faults()
            },
        );
        check(
            Mode::Broadcast,
            &[(0, 10), (1, 11), (2, 12), (3, 13), (4, 14), (6, 16)],
            Faults {
                foreign: 1,
                ..faults()
            },
        );
    }

    #[test]
    fn frames_tell_of_events_and_of_what_is_none() {
        let told = |line: &str| Told::of(Frame::read(Encoding::Json, line.as_bytes()));
        let object = |version: &str| {
            format!(
                r#"{{"type":"MODIFIED","object":{{"metadata":{{"annotations":{{"{MARK}":"00000007-5"}},"resourceVersion":"{version}"}}}}}}"#
            )
        };
        let event = Told::Event {
            run: RUN,
            event: 5,
            version: 9,
        };
        assert_eq!(told(&object("9")), event);
        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#;
        assert_eq!(told(bookmark), Told::Other);
        let error = r#"{"type":"ERROR","object":{"code":410}}"#;
        assert_eq!(told(error), Told::Error(error.to_owned()));
        for line in ["nonsense", &object("x")] {
            assert!(matches!(told(line), Told::Error(_)), "{line}");
        }
    }

    #[test]
    fn another_run_and_errors_are_noted() {
        let interest = Interest {
            watcher: 0,
            watchers: 1,
            mode: Mode::Broadcast,
        };
        let mut tally = Tally::new(RUN, 1, interest);
        let event = |run| Told::Event {
            run,
            event: 0,
            version: 1,
        };
        assert_eq!(tally.take(event(RUN + 1)), None);
        assert_eq!(tally.take(Told::Other), None);
        assert_eq!(tally.take(Told::Error("gone".into())), None);
        assert_eq!(tally.take(event(RUN)), Some(0));
        assert_eq!(tally.take(event(RUN)), None);
        let expected = Faults {
            lost: 0,
            duplicate: 1,
            out_of_order: 0,
            foreign: 1,
            error: Some("gone".into()),
        };
        let mut total = Faults::default();
        total.add(tally.close(|_| true));
        assert_eq!(total, expected);
        total.add(Faults {
            lost: 3,
            ..Faults::default()
        });
        assert_eq!((total.lost, total.duplicate), (3, 1));
    }
}
