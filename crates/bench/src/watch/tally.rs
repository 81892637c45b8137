//! The events that one watcher received, one bit per event of the run: enough to detect events that
//! are lost, duplicated, out of order, or outside of its selector.

use crate::args::Mode;
use crate::decode::Malformed;
use crate::frames::{Frame, Kind};

/// Which events of a run match a watcher's selector.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interest {
    pub watcher: u32,
    pub watchers: u32,
    pub mode: Mode,
}

impl Interest {
    /// Returns true if the watcher must receive `event`.
    pub(super) fn matches(&self, event: u32) -> bool {
        match self.mode {
            Mode::Broadcast => true,
            Mode::Selective => event % self.watchers == self.watcher,
        }
    }
}

/// The content of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FrameContent {
    /// An object with a mark.
    Event { run: u32, event: u32, version: u64 },
    /// An ERROR event or an invalid frame, as text.
    Error(String),
    /// A bookmark, or an object without a mark.
    Other,
}

impl FrameContent {
    pub(super) fn of(frame: Result<Frame<'_>, Malformed>) -> Self {
        let frame = match frame {
            Ok(frame) if frame.kind == Kind::Error => return Self::Error(frame.text()),
            Ok(frame) if frame.kind == Kind::Bookmark => return Self::Other,
            Ok(frame) => frame,
            Err(malformed) => return Self::Error(format!("an invalid event: {malformed}")),
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
            None => Self::Error(format!(
                "an event without a numeric version: {}",
                frame.text()
            )),
        }
    }
}

/// The events that a watcher received.
#[derive(Debug)]
pub(super) struct Tally {
    run: u32,
    events: u32,
    interest: Interest,
    /// A bit per received event.
    received: Vec<u64>,
    last_version: u64,
    pub faults: Faults,
}

/// How the events of a watcher, or of all, differ from what was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// Acknowledged writes that were not received.
    pub lost: u64,
    pub duplicate: u64,
    pub out_of_order: u64,
    /// Events that do not match the selector.
    pub foreign: u64,
    /// The first invalid frame or error event.
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
            received: vec![0; events.div_ceil(64) as usize],
            last_version: 0,
            faults: Faults::default(),
        }
    }

    /// Processes a frame. Returns its event, if it is the first receipt and matches the selector.
    pub(super) fn process(&mut self, content: FrameContent) -> Option<u32> {
        let (run, event, version) = match content {
            FrameContent::Event {
                run,
                event,
                version,
            } => (run, event, version),
            FrameContent::Error(error) => {
                self.faults.error.get_or_insert(error);
                return None;
            }
            FrameContent::Other => return None,
        };
        if self.events == 0 {
            // The run writes nothing and only holds its watches; other clients may write.
            return None;
        }
        if run != self.run || event >= self.events || !self.interest.matches(event) {
            self.faults.foreign += 1;
            return None;
        }
        let (word, bit) = (event as usize / 64, 1 << (event % 64));
        if self.received[word] & bit != 0 {
            self.faults.duplicate += 1;
            return None;
        }
        self.received[word] |= bit;
        if version <= self.last_version {
            self.faults.out_of_order += 1;
        }
        self.last_version = self.last_version.max(version);
        Some(event)
    }

    /// Returns the faults; `acknowledged` returns whether the write of an event was acknowledged.
    pub(super) fn close(mut self, acknowledged: impl Fn(u32) -> bool) -> Faults {
        let received = |event: u32| self.received[event as usize / 64] & 1 << (event % 64) != 0;
        let lost = (0..self.events).filter(|event| {
            self.interest.matches(*event) && acknowledged(*event) && !received(*event)
        });
        self.faults.lost = lost.count() as u64;
        self.faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Encoding;
    use crate::mark::MARK;

    const RUN: u32 = 7;

    /// Checks the faults of a watcher of `mode` (the second of three) after frames `(event,
    /// version)`, when all of 6 events were acknowledged but the last.
    fn check(mode: Mode, frames: &[(u32, u64)], expected: Faults) {
        let interest = Interest {
            watcher: 1,
            watchers: 3,
            mode,
        };
        let mut tally = Tally::new(RUN, 6, interest);
        for (event, version) in frames {
            tally.process(FrameContent::Event {
                run: RUN,
                event: *event,
                version: *version,
            });
        }
        assert_eq!(tally.close(|event| event < 5), expected, "{frames:?}");
    }

    #[test]
    fn complete_events_have_no_faults() {
        let all = [(0, 10), (1, 11), (2, 12), (3, 13), (4, 14)];
        check(Mode::Broadcast, &all, Faults::default());
        // An unacknowledged write may be received.
        let more = [&all[..], &[(5, 15)]].concat();
        check(Mode::Broadcast, &more, Faults::default());
        check(Mode::Selective, &[(1, 11), (4, 14)], Faults::default());
        // Writers that overtake each other: events are ordered by version.
        let crossed = [(1, 10), (0, 11), (2, 12), (4, 13), (3, 14)];
        check(Mode::Broadcast, &crossed, Faults::default());
    }

    #[test]
    fn faults_are_detected() {
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
        // Two events cannot have the same version.
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
    fn frame_contents() {
        let content = |line: &str| FrameContent::of(Frame::read(Encoding::Json, line.as_bytes()));
        let object = |version: &str| {
            format!(
                r#"{{"type":"MODIFIED","object":{{"metadata":{{"annotations":{{"{MARK}":"00000007-5"}},"resourceVersion":"{version}"}}}}}}"#
            )
        };
        let event = FrameContent::Event {
            run: RUN,
            event: 5,
            version: 9,
        };
        assert_eq!(content(&object("9")), event);
        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#;
        assert_eq!(content(bookmark), FrameContent::Other);
        let error = r#"{"type":"ERROR","object":{"code":410}}"#;
        assert_eq!(content(error), FrameContent::Error(error.to_owned()));
        for line in ["nonsense", &object("x")] {
            assert!(matches!(content(line), FrameContent::Error(_)), "{line}");
        }
    }

    #[test]
    fn a_run_without_events_ignores_those_of_others() {
        let interest = Interest {
            watcher: 0,
            watchers: 1,
            mode: Mode::Broadcast,
        };
        let mut tally = Tally::new(RUN, 0, interest);
        let event = FrameContent::Event {
            run: RUN + 1,
            event: 3,
            version: 1,
        };
        assert_eq!(tally.process(event), None);
        assert_eq!(tally.close(|_| false), Faults::default());
    }

    #[test]
    fn other_runs_and_errors_are_counted() {
        let interest = Interest {
            watcher: 0,
            watchers: 1,
            mode: Mode::Broadcast,
        };
        let mut tally = Tally::new(RUN, 1, interest);
        let event = |run| FrameContent::Event {
            run,
            event: 0,
            version: 1,
        };
        assert_eq!(tally.process(event(RUN + 1)), None);
        assert_eq!(tally.process(FrameContent::Other), None);
        assert_eq!(tally.process(FrameContent::Error("gone".into())), None);
        assert_eq!(tally.process(event(RUN)), Some(0));
        assert_eq!(tally.process(event(RUN)), None);
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
