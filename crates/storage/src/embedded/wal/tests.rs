//! Tests of the recovery of the log: files that are cut, damaged, or from an earlier use.

use std::sync::Arc;

use parking_lot::Mutex;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A file in memory.
#[derive(Debug, Clone, Default)]
struct MemoryFile(Arc<Mutex<Vec<u8>>>);

impl LogFile for MemoryFile {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.0.lock().clone())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.0.lock();
        let start = usize::try_from(offset).unwrap();
        let len = file.len().max(start + bytes.len());
        file.resize(len, 0);
        file[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self) -> io::Result<()> {
        self.0.lock().clear();
        Ok(())
    }
}

/// A log in memory, and the frames that it has to return.
struct Log {
    files: [MemoryFile; 2],
    wal: Wal,
    /// All frames, and in which file each is, at which offset.
    frames: Vec<(Frame, usize, u64)>,
    revision: u64,
}

impl Log {
    fn new() -> Self {
        let files = [MemoryFile::default(), MemoryFile::default()];
        let (wal, frames) = open(&files, 0, 2).unwrap();
        assert!(frames.is_empty());
        Self {
            files,
            wal,
            frames: Vec::new(),
            revision: 1,
        }
    }

    fn append(&mut self, records: &[Vec<u8>]) {
        let mut frame = Frame::begin(self.revision + 1, 0);
        for record in records {
            frame.push(|bytes| bytes.extend(record));
        }
        frame.seal(self.frames.len() as u64 + 1, 0);
        let active = self.wal.active;
        let position = self.wal.files[active].position;
        self.wal.append(&frame).unwrap();
        self.revision += records.len() as u64;
        self.frames.push((frame, active, position));
    }

    /// The frames after `sequence`.
    fn after(&self, sequence: u64) -> Vec<Frame> {
        let skip = usize::try_from(sequence).unwrap();
        let frames = self.frames.iter().skip(skip);
        frames.map(|(frame, ..)| frame.clone()).collect()
    }

    /// The revision after which the frames after `sequence` begin.
    fn first_after(&self, sequence: u64) -> u64 {
        let next = self.frames.get(usize::try_from(sequence).unwrap());
        next.map_or(self.revision + 1, |(frame, ..)| frame.first())
    }
}

fn open(
    files: &[MemoryFile; 2],
    sequence: u64,
    first: u64,
) -> Result<(Wal, Vec<Frame>), OpenError> {
    let named = [0, 1].map(|index| {
        let file: Box<dyn LogFile> = Box::new(files[index].clone());
        (file, PathBuf::from(WAL_FILES[index]))
    });
    Wal::recover(named, sequence, first)
}

fn copy(files: &[MemoryFile; 2]) -> [MemoryFile; 2] {
    [0, 1].map(|index| MemoryFile(Arc::new(Mutex::new(files[index].0.lock().clone()))))
}

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<Vec<u8>>),
    /// The tables receive everything; the log is rotated.
    Rotate,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let append = || vec(vec(any::<u8>(), 0..60), 0..4).prop_map(Step::Append);
    vec(prop_oneof![append(), append(), Just(Step::Rotate)], 1..24)
}

/// Runs `steps` and returns the log with the sequence that the tables have. As in the store, the
/// tables receive the frames of a file before it is used again: at the next rotation.
fn run(steps: &[Step]) -> (Log, u64) {
    let (mut log, mut in_tables, mut rotated_at) = (Log::new(), 0, 0);
    for step in steps {
        match step {
            Step::Append(records) => log.append(records),
            Step::Rotate => {
                in_tables = rotated_at;
                rotated_at = log.frames.len() as u64;
                log.wal.rotate();
            }
        }
    }
    (log, in_tables)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// All frames come back, whatever the tables have of them, and the log goes on.
    #[test]
    fn frames_are_recovered(steps in steps(), more in steps()) {
        let (mut log, oldest) = run(&steps);
        let last = log.frames.len() as u64;
        for sequence in oldest..=last {
            let first = log.first_after(sequence);
            let (_, found) = open(&copy(&log.files), sequence, first).unwrap();
            prop_assert_eq!(found, log.after(sequence));
        }
        let (wal, _) = open(&log.files, oldest, log.first_after(oldest)).unwrap();
        log.wal = wal;
        for step in more {
            if let Step::Append(records) = step {
                log.append(&records);
            }
        }
        let (_, found) = open(&log.files, oldest, log.first_after(oldest)).unwrap();
        prop_assert_eq!(found, log.after(oldest));
    }

    /// A log that is cut at any byte of its last frame, or whose last frame has a flipped bit, has
    /// the frames before.
    #[test]
    fn an_incomplete_last_frame_is_ignored(steps in steps(), extended in any::<bool>()) {
        let (log, oldest) = run(&steps);
        let Some((frame, file, offset)) = log.frames.last() else { return Ok(()) };
        let last = log.frames.len() as u64;
        if last <= oldest { return Ok(()) }
        let start = usize::try_from(*offset).unwrap();
        let mut expected = log.after(oldest);
        expected.pop();
        // A frame without its last zeros is complete.
        let zeros = frame.bytes().iter().rev().take_while(|byte| **byte == 0).count();
        for cut in 0..frame.bytes().len() - zeros {
            let files = copy(&log.files);
            // A write that was cut leaves zeros, or what was there before.
            files[*file].0.lock()[start + cut..].fill(0);
            if !extended {
                files[*file].0.lock().truncate(start + cut);
            }
            let (_, found) = open(&files, oldest, log.first_after(oldest)).unwrap();
            prop_assert_eq!(&found, &expected, "cut at {}", cut);
        }
    }

    /// A flipped bit in any earlier frame is an error with the file and the offset.
    #[test]
    fn damage_before_the_last_frame_is_an_error(steps in steps(), bit in 0..8_u8) {
        let (log, oldest) = run(&steps);
        let needed = log.frames.iter().skip(usize::try_from(oldest).unwrap());
        let needed: Vec<_> = needed.collect();
        let Some((_, earlier)) = needed.split_last() else { return Ok(()) };
        for (frame, file, offset) in earlier {
            let start = usize::try_from(*offset).unwrap();
            for at in (0..40.min(frame.bytes().len())).step_by(3) {
                let files = copy(&log.files);
                files[*file].0.lock()[start + at] ^= 1 << bit;
                let error = open(&files, oldest, log.first_after(oldest)).unwrap_err().to_string();
                prop_assert!(error.contains(WAL_FILES[*file]), "{}", error);
                prop_assert!(error.contains(&format!("offset {offset},")), "{}", error);
                prop_assert!(error.contains("restore"), "{}", error);
            }
        }
    }
}

/// The tables of an older copy of the data file lack frames that the log no longer has.
#[test]
fn tables_that_are_too_old_are_an_error() {
    let steps = [
        Step::Append(vec![vec![1]]),
        Step::Rotate,
        Step::Append(vec![vec![2]]),
        Step::Rotate,
        Step::Append(vec![vec![3]]),
    ];
    let (log, in_tables) = run(&steps);
    assert_eq!(in_tables, 1);
    let error = open(&log.files, 0, 2).unwrap_err().to_string();
    assert!(error.contains("older copy"), "{error}");
    assert!(error.contains("frame 1 is missing"), "{error}");
    // Tables with the right sequence that are another store's.
    let error = open(&log.files, 1, 9).unwrap_err().to_string();
    assert!(error.contains("frame 2 is missing"), "{error}");
}

/// Files are extended ahead of the frames, and reused.
#[test]
fn files_do_not_grow_with_each_frame() {
    let mut log = Log::new();
    let len = |log: &Log, file: usize| log.files[file].0.lock().len() as u64;
    for round in 0..6 {
        for _ in 0..100 {
            log.append(&[vec![7; 1000]]);
        }
        assert_eq!(len(&log, round % 2), EXTENSION_BYTES);
        log.wal.rotate();
    }
    log.wal.reset().unwrap();
    assert_eq!((len(&log, 0), len(&log, 1)), (0, 0));
}
