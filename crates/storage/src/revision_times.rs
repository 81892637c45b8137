//! `RevisionTimes`: the revision of a store at past times, from samples that the store records about
//! once per second while its revision changes.
//!
//! # Invariants
//!
//! 1. Times and revisions of the samples never decrease; no two samples have the same revision.
//! 2. There are at most [`SAMPLES_MAX`] samples. If there are more, every second one of the older half
//!    is dropped, so that times in it are less exact.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;

use crate::private_file::open_private;
use watchet_api::ResourceVersion;
use watchet_metrics::LogInterval;

/// A sample that is later than the present by more milliseconds has the time of a wrong clock.
const CLOCK_STEP_MAX_MS: u64 = 10_000;

/// Maximum number of samples: more than a day of changes in every second, in about 3 MB.
const SAMPLES_MAX: usize = 100_000;

/// The interval of the samples, which is the precision of times.
pub(crate) const SAMPLE_PERIOD: Duration = Duration::from_secs(1);

/// The length of a sample in the file: three numbers and a checksum.
const RECORD_LEN: usize = 28;

/// The revision of a store at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevisionSample {
    /// The time, in milliseconds since the epoch.
    pub time_ms: u64,
    /// The store's revision at this time.
    pub revision: ResourceVersion,
    /// The number of bytes that the store had written up to this revision, if it counts them: the
    /// difference between two samples is the size of the history between them.
    pub written_bytes: u64,
}

impl RevisionSample {
    fn encode(self) -> [u8; RECORD_LEN] {
        let mut record = [0; RECORD_LEN];
        record[..8].copy_from_slice(&self.time_ms.to_le_bytes());
        record[8..16].copy_from_slice(&self.revision.get().to_le_bytes());
        record[16..24].copy_from_slice(&self.written_bytes.to_le_bytes());
        let checksum = crc32fast::hash(&record[..24]);
        record[24..].copy_from_slice(&checksum.to_le_bytes());
        record
    }

    fn decode(record: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let bytes = record.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let checksum = record.get(24..RECORD_LEN)?.try_into().ok()?;
        (crc32fast::hash(&record[..24]) == u32::from_le_bytes(checksum)).then_some(())?;
        Some(Self {
            time_ms: number(0)?,
            revision: ResourceVersion::new(number(8)?),
            written_bytes: number(16)?,
        })
    }
}

/// The samples of a store. The store records them; others read them.
#[derive(Debug, Default)]
pub struct RevisionTimes {
    samples: Mutex<VecDeque<RevisionSample>>,
    /// The file that has the samples across restarts; `None` if they are only in memory.
    file: Option<Mutex<SampleFile>>,
}

#[derive(Debug)]
struct SampleFile {
    path: PathBuf,
    /// `None` after a failure: the next write creates the file again.
    open: Option<File>,
    /// The number of samples in the file.
    len: usize,
    /// Limits the log: on a full disk each write fails.
    log: LogInterval,
}

impl RevisionTimes {
    /// Reads the samples of the file at `path`, if it exists, and appends further samples to it. Samples
    /// after the first damaged one are ignored, and so are those above `newest`, the revision of the
    /// store: they are of another store. A file that cannot be read costs the times of its revisions.
    pub fn open(path: &Path, newest: ResourceVersion) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                let path = path.display();
                tracing::warn!(%path, %error, "cannot read the times of revisions");
            }
            Vec::new()
        });
        let mut samples: VecDeque<RevisionSample> = VecDeque::new();
        for record in bytes.chunks(RECORD_LEN) {
            let Some(sample) = RevisionSample::decode(record) else {
                break;
            };
            let last = samples.back();
            let follows = last.is_none_or(|last| {
                last.time_ms <= sample.time_ms && last.revision < sample.revision
            });
            if !follows || sample.revision > newest {
                break;
            }
            samples.push_back(sample);
        }
        let file = SampleFile {
            path: path.to_owned(),
            open: None,
            len: 0,
            log: LogInterval::growing(),
        };
        Self {
            samples: Mutex::new(samples),
            file: Some(Mutex::new(file)),
        }
    }

    /// Records that the store is at `revision` at `time_ms`; nothing if the last sample has this
    /// revision. Writes the file, without a sync: after a power failure some samples may be missing.
    pub fn record(&self, sample: RevisionSample) {
        // Before the samples, whose readers do not wait for the disk.
        let mut file = self.file.as_ref().map(Mutex::lock);
        let mut samples = self.samples.lock();
        let last = samples.back().copied();
        if last.is_some_and(|last| last.revision == sample.revision) {
            return;
        }
        // The store was replaced by an older one.
        let is_replaced = last.is_some_and(|last| last.revision > sample.revision);
        if is_replaced {
            samples.clear();
        }
        // The system's clock was wrong and is right now, or it steps back a little.
        let limit = sample.time_ms.saturating_add(CLOCK_STEP_MAX_MS);
        let is_corrected = samples.back().is_some_and(|last| last.time_ms > limit);
        if is_corrected {
            for wrong in samples.iter_mut() {
                wrong.time_ms = wrong.time_ms.min(sample.time_ms);
            }
        }
        let not_before = samples.back().map_or(0, |last| last.time_ms);
        let sample = RevisionSample {
            time_ms: sample.time_ms.max(not_before),
            ..sample
        };
        samples.push_back(sample);
        if samples.len() > SAMPLES_MAX {
            thin(&mut samples);
        }
        let Some(file) = &mut file else { return };
        let is_complete =
            !is_replaced && !is_corrected && file.open.is_some() && file.len < 2 * SAMPLES_MAX;
        let all: Option<Vec<u8>> =
            (!is_complete).then(|| samples.iter().flat_map(|sample| sample.encode()).collect());
        drop(samples);
        let written = match all {
            Some(all) => file.replace(&all),
            None => file.append(sample),
        };
        if let Err(error) = written {
            file.open = None;
            if file.log.next().is_some() {
                let path = file.path.display();
                tracing::warn!(%path, %error, "cannot write the times of revisions");
            }
        }
    }

    /// Returns true if the last sample has this revision.
    pub fn is_recorded(&self, revision: ResourceVersion) -> bool {
        self.newest().is_some_and(|last| last.revision == revision)
    }

    /// Returns true if the samples are also in a file.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Drops the samples of states before `compacted`, which can no longer be read.
    pub fn compacted(&self, compacted: ResourceVersion) {
        let mut samples = self.samples.lock();
        let old = samples.partition_point(|sample| sample.revision < compacted);
        samples.drain(..old);
    }

    /// Returns the last sample at or before `time_ms`; `None` if all are later.
    pub fn at(&self, time_ms: u64) -> Option<RevisionSample> {
        let samples = self.samples.lock();
        let after = samples.partition_point(|sample| sample.time_ms <= time_ms);
        samples.get(after.checked_sub(1)?).copied()
    }

    /// Returns the first sample whose state contains the change at `revision`: the change was made at the
    /// time of the sample, or at most one interval of the samples earlier. Returns `None` if the revision
    /// is later than all samples, or earlier than the first one.
    pub fn of(&self, revision: ResourceVersion) -> Option<RevisionSample> {
        let samples = self.samples.lock();
        let at = samples.partition_point(|sample| sample.revision < revision);
        let found = samples.get(at).copied()?;
        (at > 0 || found.revision == revision).then_some(found)
    }

    /// Returns the oldest sample after which the store has written at most `bytes_max` bytes.
    pub fn within_bytes(&self, bytes_max: u64) -> Option<RevisionSample> {
        let samples = self.samples.lock();
        let newest = samples.back()?.written_bytes;
        let from = newest.saturating_sub(bytes_max);
        let at = samples.partition_point(|sample| sample.written_bytes < from);
        samples.get(at).copied()
    }

    /// Returns the oldest sample.
    pub fn oldest(&self) -> Option<RevisionSample> {
        self.samples.lock().front().copied()
    }

    /// Returns the newest sample.
    pub fn newest(&self) -> Option<RevisionSample> {
        self.samples.lock().back().copied()
    }
}

/// Drops every second sample of the older half, except the first.
fn thin(samples: &mut VecDeque<RevisionSample>) {
    let half = samples.len() / 2;
    let mut index = 0;
    samples.retain(|_| {
        index += 1;
        index > half || index % 2 == 1
    });
}

impl SampleFile {
    fn append(&mut self, sample: RevisionSample) -> io::Result<()> {
        if let Some(file) = &mut self.open {
            file.write_all(&sample.encode())?;
            self.len += 1;
        }
        Ok(())
    }

    /// Replaces the file by one with these encoded samples.
    fn replace(&mut self, samples: &[u8]) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = open_private(&new)?;
        file.set_len(0)?;
        file.write_all(samples)?;
        std::fs::rename(&new, &self.path)?;
        self.open = Some(file);
        self.len = samples.len() / RECORD_LEN;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time_ms: u64, revision: u64) -> RevisionSample {
        RevisionSample {
            time_ms,
            revision: ResourceVersion::new(revision),
            written_bytes: revision * 10,
        }
    }

    fn revision(found: Option<RevisionSample>) -> Option<u64> {
        found.map(|sample| sample.revision.get())
    }

    #[test]
    fn a_time_has_the_revision_of_the_last_sample_before_it() {
        let times = RevisionTimes::default();
        for (time, revision) in [(1000, 5), (2000, 5), (3000, 9), (2500, 12), (4000, 20)] {
            times.record(sample(time, revision));
        }
        assert_eq!(times.at(999), None);
        for (time, expected) in [(1000, 5), (2999, 5), (3000, 12), (3999, 12), (9999, 20)] {
            assert_eq!(revision(times.at(time)), Some(expected), "{time}");
        }
        let ms = |revision| times.of(ResourceVersion::new(revision)).map(|s| s.time_ms);
        assert_eq!(
            [ms(4), ms(5), ms(6), ms(12), ms(21)],
            [None, Some(1000), Some(3000), Some(3000), None]
        );
        // 200 bytes are written: the last 80 are those after revision 12.
        assert_eq!(revision(times.within_bytes(80)), Some(12));
        assert_eq!(revision(times.within_bytes(79)), Some(20));
        assert_eq!(revision(times.within_bytes(1000)), Some(5));
        times.compacted(ResourceVersion::new(9));
        assert_eq!(times.at(2999), None, "its state is compacted");
        assert_eq!(revision(times.oldest()), Some(9));
    }

    /// The clock was a year ahead: the samples of that time count as present, or none would be compacted for a year.
    #[test]
    fn a_clock_that_was_ahead_is_corrected() {
        let times = RevisionTimes::default();
        let year = 365 * 86_400_000;
        for (time, revision) in [(1000, 5), (year, 9), (year + 1000, 12), (60_000, 20)] {
            times.record(sample(time, revision));
        }
        let ms = |revision| times.of(ResourceVersion::new(revision)).map(|s| s.time_ms);
        assert_eq!(
            [ms(5), ms(9), ms(12), ms(20)],
            [Some(1000), Some(60_000), Some(60_000), Some(60_000)]
        );
        assert_eq!(revision(times.at(60_000)), Some(20));
    }

    #[test]
    fn the_number_of_samples_is_limited() {
        let times = RevisionTimes::default();
        for number in 0..3 * SAMPLES_MAX as u64 {
            times.record(sample(number, number + 1));
        }
        assert!(times.samples.lock().len() <= SAMPLES_MAX);
        assert_eq!(revision(times.oldest()), Some(1));
        assert_eq!(revision(times.newest()), Some(3 * SAMPLES_MAX as u64));
        let found = times.at(1_000).expect("a sample");
        // Older samples are further apart.
        assert!(found.time_ms > 500, "{found:?}");
    }

    #[test]
    fn samples_survive_a_restart_up_to_the_first_damaged_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("times");
        let open = |newest| RevisionTimes::open(&path, ResourceVersion::new(newest));
        let times = open(1);
        for number in 1..=5 {
            times.record(sample(number * 1000, number));
        }
        drop(times);
        assert_eq!(revision(open(5).newest()), Some(5));
        assert_eq!(
            revision(open(3).newest()),
            Some(3),
            "later ones are of another store"
        );
        let times = open(5);
        times.record(sample(9000, 9));
        assert_eq!(revision(open(9).newest()), Some(9));
        let mut bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 6 * RECORD_LEN);
        bytes[2 * RECORD_LEN + 3] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(revision(open(9).newest()), Some(2));
    }
}
