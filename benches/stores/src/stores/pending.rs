//! A transaction on a store whose batches cannot be read: reads look at the changes of the batch first.

use std::collections::HashMap;

use anyhow::Result;

use super::Transaction;

/// The reads and the batch of such a store.
pub(super) trait Batch {
    fn get_head(&self, key: &str) -> Result<Option<Vec<u8>>>;
    fn get_record(&self, revision: u64) -> Result<Option<Vec<u8>>>;
    fn add(&mut self, key: &str, head: &[u8], revision: u64, record: &[u8]);
    fn remove_record(&mut self, revision: u64);
}

/// A batch and its changes.
pub(super) struct Pending<B> {
    pub(super) batch: B,
    heads: HashMap<String, Vec<u8>>,
    records: HashMap<u64, Vec<u8>>,
}

impl<B: Batch> Pending<B> {
    pub(super) fn new(batch: B) -> Self {
        Self {
            batch,
            heads: HashMap::new(),
            records: HashMap::new(),
        }
    }
}

impl<B: Batch> Transaction for Pending<B> {
    fn head(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        match self.heads.get(key) {
            Some(head) => Ok(Some(head.clone())),
            None => self.batch.get_head(key),
        }
    }

    fn record(&mut self, revision: u64) -> Result<Option<Vec<u8>>> {
        match self.records.get(&revision) {
            Some(record) => Ok(Some(record.clone())),
            None => self.batch.get_record(revision),
        }
    }

    fn put(&mut self, key: &str, head: &[u8], revision: u64, record: &[u8]) -> Result<()> {
        self.heads.insert(key.to_owned(), head.to_vec());
        self.records.insert(revision, record.to_vec());
        self.batch.add(key, head, revision, record);
        Ok(())
    }

    fn delete_record(&mut self, revision: u64) -> Result<()> {
        self.batch.remove_record(revision);
        Ok(())
    }
}
