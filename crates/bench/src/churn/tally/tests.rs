//! Tests of watchers with correct and with faulty events.

use super::*;
use crate::args::Encoding;
use crate::mark::{MARK, Mark};

const RUN: u32 = 7;

/// Returns a log of two objects: the first is created, changed, deleted and created again; the
/// second is created, and a change of it is sent but not acknowledged.
fn log() -> WriteLog {
    let log = WriteLog::new(2);
    let write = |object, creates| {
        let id = log.sending(object, creates);
        log.acknowledged(id);
        id
    };
    write(0, true);
    let changed = write(0, false);
    write(1, true);
    log.deleting(changed);
    log.acknowledged(changed);
    write(0, true);
    log.sending(1, false);
    log
}

/// `(kind, object, write, version)`.
type Line = (&'static str, u32, u32, u64);

/// The acknowledged events.
const ALL: [Line; 5] = [
    ("ADDED", 0, 0, 10),
    ("MODIFIED", 0, 1, 11),
    ("ADDED", 1, 0, 12),
    ("DELETED", 0, 1, 13),
    ("ADDED", 0, 2, 14),
];

/// Returns the final list.
fn listed() -> State {
    State::from([(0, (2, 14)), (1, (0, 12))])
}

fn json(run: u32, log: &WriteLog, (kind, object, write, version): Line) -> String {
    let event = log.event(WriteId { object, write });
    let mark = Mark { run, event };
    format!(
        r#"{{"type":"{kind}","object":{{"metadata":{{"annotations":{{"{MARK}":"{mark}"}},"resourceVersion":"{version}"}}}}}}"#
    )
}

fn check(lines: &[Line], listed: &State, expected: Faults) {
    let log = log();
    let mut tally = Tally::new(RUN, 2, 9);
    for line in lines {
        let text = json(RUN, &log, *line);
        tally.process(&log, Frame::read(Encoding::Json, text.as_bytes()));
    }
    assert_eq!(tally.close(&log, Some(listed)), expected, "{lines:?}");
}

#[test]
fn complete_events_have_no_faults() {
    check(&ALL, &listed(), Faults::default());
    // An unacknowledged write may have happened.
    let more = [&ALL[..], &[("MODIFIED", 1, 1, 15)]].concat();
    let listed = State::from([(0, (2, 14)), (1, (1, 15))]);
    check(&more, &listed, Faults::default());
    let bookmarked = [&ALL[..3], &[("BOOKMARK", 0, 0, 12)], &ALL[3..]].concat();
    check(&bookmarked, &self::listed(), Faults::default());
}

/// Returns [`ALL`] with the line at `at` replaced by `others`.
fn instead(at: usize, others: &[Line]) -> Vec<Line> {
    [&ALL[..at], others, &ALL[at + 1..]].concat()
}

#[test]
fn faults_are_detected() {
    let faults = Faults::default;
    let lost = Faults {
        lost: 1,
        ..faults()
    };
    for at in [0, 1, 3] {
        check(&instead(at, &[]), &listed(), lost.clone());
    }
    let differing = Faults {
        differing: 1,
        ..lost
    };
    // The final state differs if the last change of an object is not received.
    check(&instead(4, &[]), &listed(), differing.clone());
    check(&instead(2, &[]), &listed(), differing);
    check(
        &[&ALL[..], &[("ADDED", 0, 2, 15)]].concat(),
        &State::from([(0, (2, 15)), (1, (0, 12))]),
        Faults {
            duplicate: 1,
            ..faults()
        },
    );
    let twice = Faults {
        duplicate: 1,
        out_of_order: 1,
        ..faults()
    };
    check(&instead(3, &[ALL[3], ALL[3]]), &listed(), twice);
    let crossed = Faults {
        out_of_order: 1,
        ..faults()
    };
    check(
        &instead(1, &[ALL[2], ALL[1]])[..3],
        &State::from([(0, (1, 11)), (1, (0, 12))]),
        {
            Faults {
                lost: 2,
                ..crossed.clone()
            }
        },
    );
    check(
        &instead(2, &[ALL[2], ("BOOKMARK", 0, 0, 11)]),
        &listed(),
        crossed,
    );
    check(
        &instead(4, &[("MODIFIED", 0, 2, 14)]),
        &listed(),
        Faults {
            mistyped: 1,
            ..faults()
        },
    );
    // A deletion and a write that no worker sent.
    for line in [("DELETED", 1, 0, 15), ("MODIFIED", 1, 7, 15)] {
        check(
            &[&ALL[..], &[line]].concat(),
            &listed(),
            Faults {
                foreign: 1,
                differing: 1,
                ..faults()
            },
        );
    }
}

#[test]
fn a_differing_list_is_detected() {
    for (list, differing) in [
        (State::from([(0, (2, 14))]), 1),
        (State::from([(0, (2, 14)), (1, (0, 11))]), 1),
        (State::new(), 2),
    ] {
        check(
            &ALL,
            &list,
            Faults {
                differing,
                ..Faults::default()
            },
        );
    }
}

#[test]
fn invalid_events_are_reported() {
    let log = log();
    let mut tally = Tally::new(RUN, 2, 9);
    let mut process =
        |text: &str| tally.process(&log, Frame::read(Encoding::Json, text.as_bytes()));
    assert_eq!(process(&json(RUN + 1, &log, ALL[0])), None);
    assert_eq!(process(r#"{"type":"ERROR","object":{"code":410}}"#), None);
    assert!(process(&json(RUN, &log, ALL[1])).is_some());
    let faults = tally.close(&log, Some(&State::from([(0, (1, 11))])));
    assert_eq!(faults.foreign, 1);
    assert!(faults.error.unwrap().contains("410"));
}
