//! Checks a store beyond the checksums of its pages and records: each object is reachable, each record
//! belongs to a key, no revision of the history is missing, and each expiry time is that of a value.

use std::fmt;

use super::codec::{Head, Record};
use super::deadlines::Deadlines;
use super::error::Fault;
use super::layer::Position;
use super::snapshot::{Snapshot, misplaced, missing};

/// The number of keys or records after which progress is reported.
const PROGRESS_EVERY: u64 = 10_000;

/// The result of the check of a store that is sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckReport {
    /// The last revision.
    pub revision: u64,
    /// The revision up to which history is compacted.
    pub compacted: u64,
    /// The number of keys that exist.
    pub keys: u64,
    /// The number of deleted keys that history still has.
    pub deleted_keys: u64,
    /// The number of records: values, earlier values and deletions.
    pub records: u64,
    /// The number of keys with a TTL, which expire.
    pub with_ttl: u64,
    /// The number of records that only the write-ahead log has.
    pub records_in_log: u64,
    /// The size of the data file in bytes.
    pub data_file_bytes: u64,
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            revision,
            compacted,
            keys,
            deleted_keys,
            records,
            with_ttl,
            records_in_log,
            data_file_bytes,
        } = self;
        writeln!(f, "revision           {revision}")?;
        writeln!(f, "compacted revision {compacted}")?;
        writeln!(f, "objects            {keys}, {with_ttl} with a TTL")?;
        writeln!(f, "deleted objects    {deleted_keys} in the history")?;
        writeln!(
            f,
            "records            {records}, of which {records_in_log} are only in the log"
        )?;
        write!(f, "data file          {data_file_bytes} bytes")
    }
}

/// Checks everything that `snapshot` has. The size of the data file in the report is 0.
pub(super) fn check_snapshot(
    snapshot: &Snapshot,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<CheckReport, Fault> {
    let Position {
        revision,
        compacted,
        ..
    } = snapshot.position;
    let collected = snapshot.base.numbers.collected;
    let records = check_records(snapshot, collected, progress)?;
    let mut deadlines = Deadlines::load(snapshot)?.into_set();
    let with_ttl = deadlines.len() as u64;
    let (mut keys, mut deleted_keys, mut reachable) = (0, 0, 0);
    for entry in snapshot.heads_from("")? {
        let (key, head) = entry?;
        reachable += check_chain(snapshot, key.as_str(), head, collected)?;
        match head.live {
            true => keys += 1,
            false => deleted_keys += 1,
        }
        let deadline = (head.expires_ms, head.modified);
        if head.expires() && !deadlines.remove(&deadline) {
            return Err(Fault::Damaged(format!(
                "the expiry time of {key} is missing"
            )));
        }
        if (keys + deleted_keys) % PROGRESS_EVERY == 0 {
            progress("objects", keys + deleted_keys);
        }
    }
    if let Some((deadline, revision)) = deadlines.first() {
        return Err(Fault::Damaged(format!(
            "the expiry time {deadline} is for revision {revision}, which no key has"
        )));
    }
    if reachable != records {
        return Err(Fault::Damaged(format!(
            "it has {records} records, but {reachable} belong to keys"
        )));
    }
    Ok(CheckReport {
        revision,
        compacted,
        keys,
        deleted_keys,
        records,
        with_ttl,
        records_in_log: revision - snapshot.base.numbers.revision,
        data_file_bytes: 0,
    })
}

/// Decodes every record and returns their number. No revision after `collected` may be missing.
fn check_records(
    snapshot: &Snapshot,
    collected: u64,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<u64, Fault> {
    let (mut count, mut last) = (0, collected);
    for entry in snapshot.records(1, snapshot.position.revision)? {
        let (revision, bytes) = entry?;
        Record::decode(revision, bytes.get())?;
        count += 1;
        // A store begins at revision 1, which has no record.
        if revision > collected.max(1) {
            if revision != last.max(1) + 1 {
                let detail = format!("record of revision {} is missing", last.max(1) + 1);
                return Err(Fault::Damaged(detail));
            }
            last = revision;
        }
        if count % PROGRESS_EVERY == 0 {
            progress("records", count);
        }
    }
    if last.max(1) != snapshot.position.revision {
        let detail = format!("record of revision {} is missing", last.max(1) + 1);
        return Err(Fault::Damaged(detail));
    }
    Ok(count)
}

/// Checks the records of `key` from `head` on backwards, and returns their number.
fn check_chain(snapshot: &Snapshot, key: &str, head: Head, collected: u64) -> Result<u64, Fault> {
    let (mut revision, mut created, mut count) = (head.modified, head.created, 0);
    let mut may_be_collected = false;
    loop {
        let Some(bytes) = snapshot.record(revision)? else {
            // A deletion that was collected.
            return match may_be_collected && revision <= collected {
                true => Ok(count),
                false => Err(missing(key, revision)),
            };
        };
        let record = Record::decode(revision, bytes.get())?;
        let is_head = count > 0 || record.head(revision) == head;
        if record.key != key || !is_head {
            return Err(misplaced(key, revision));
        }
        if record.value.is_some() && record.created != created && !may_be_collected {
            let detail = format!("{key} at {revision} has another creation than at the next one");
            return Err(Fault::Damaged(detail));
        }
        count += 1;
        // Earlier records than one that was collected are deleted.
        if record.previous == 0 || revision <= collected {
            return Ok(count);
        }
        may_be_collected = record.is_create(revision);
        created = record.created;
        revision = record.previous;
    }
}
