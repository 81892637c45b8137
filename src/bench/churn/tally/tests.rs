//! Watchers that are told what happened, and watchers that are told something else.

use super::*;
use crate::bench::args::Encoding;
use crate::bench::mark::{MARK, Mark};

const RUN: u32 = 7;

/// Two objects: the first is created, changed, deleted and created again; the second is created, and a
/// change of it is sent and not acknowledged.
fn board() -> Board {
    let board = Board::new(2);
    let write = |object, creates| {
        let id = board.sending(object, creates);
        board.acknowledged(id);
        id
    };
    write(0, true);
    let changed = write(0, false);
    write(1, true);
    board.deleting(changed);
    board.acknowledged(changed);
    write(0, true);
    board.sending(1, false);
    board
}

/// `(kind, object, write, version)`.
type Line = (&'static str, u32, u32, u64);

/// What happened, up to what was acknowledged.
const ALL: [Line; 5] = [
    ("ADDED", 0, 0, 10),
    ("MODIFIED", 0, 1, 11),
    ("ADDED", 1, 0, 12),
    ("DELETED", 0, 1, 13),
    ("ADDED", 0, 2, 14),
];

/// What a list shows then.
fn listed() -> State {
    State::from([(0, (2, 14)), (1, (0, 12))])
}

fn json(run: u32, board: &Board, (kind, object, write, version): Line) -> String {
    let event = board.event(WriteId { object, write });
    let mark = Mark { run, event };
    format!(
        r#"{{"type":"{kind}","object":{{"metadata":{{"annotations":{{"{MARK}":"{mark}"}},"resourceVersion":"{version}"}}}}}}"#
    )
}

fn check(lines: &[Line], listed: &State, expected: Faults) {
    let board = board();
    let mut tally = Tally::new(RUN, 2, 9);
    for line in lines {
        let text = json(RUN, &board, *line);
        tally.take(&board, Frame::read(Encoding::Json, text.as_bytes()));
    }
    assert_eq!(tally.close(&board, Some(listed)), expected, "{lines:?}");
}

#[test]
fn a_watcher_that_is_told_all_has_no_faults() {
    check(&ALL, &listed(), Faults::default());
    // What was not acknowledged may have happened.
    let more = [&ALL[..], &[("MODIFIED", 1, 1, 15)]].concat();
    let listed = State::from([(0, (2, 14)), (1, (1, 15))]);
    check(&more, &listed, Faults::default());
    let bookmarked = [&ALL[..3], &[("BOOKMARK", 0, 0, 12)], &ALL[3..]].concat();
    check(&bookmarked, &self::listed(), Faults::default());
}

/// The lines but that at `at`, and others there.
fn instead(at: usize, others: &[Line]) -> Vec<Line> {
    [&ALL[..at], others, &ALL[at + 1..]].concat()
}

#[test]
fn planted_faults_are_found() {
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
    // The state of an object is not what it was left in, when nobody is told of its last change.
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
    // A deletion that nobody asked for, and a write.
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
fn a_list_that_differs_is_found() {
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
fn what_is_no_event_of_the_run_is_told() {
    let board = board();
    let mut tally = Tally::new(RUN, 2, 9);
    let mut take = |text: &str| tally.take(&board, Frame::read(Encoding::Json, text.as_bytes()));
    assert_eq!(take(&json(RUN + 1, &board, ALL[0])), None);
    assert_eq!(take(r#"{"type":"ERROR","object":{"code":410}}"#), None);
    assert!(take(&json(RUN, &board, ALL[1])).is_some());
    let faults = tally.close(&board, Some(&State::from([(0, (1, 11))])));
    assert_eq!(faults.foreign, 1);
    assert!(faults.error.unwrap().contains("410"));
}
