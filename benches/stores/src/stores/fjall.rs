//! fjall: one batch per group of writes, and `fdatasync` of the journal before the batch is visible.

use std::path::Path;

use anyhow::{Context as _, Result};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};

use super::pending::{Batch, Pending};
use super::{Engine, Transaction, Visit};
use crate::record::Head;

struct Fjall {
    database: Database,
    log: Keyspace,
    current: Keyspace,
}

pub(super) fn open(directory: &Path) -> Result<Box<dyn Engine>> {
    let database = Database::builder(directory.join("fjall")).open()?;
    Ok(Box::new(Fjall {
        log: database.keyspace("log", KeyspaceCreateOptions::default)?,
        current: database.keyspace("current", KeyspaceCreateOptions::default)?,
        database,
    }))
}

struct FjallBatch<'a> {
    store: &'a Fjall,
    batch: OwnedWriteBatch,
}

impl Engine for Fjall {
    fn commit(&mut self, change: &mut dyn FnMut(&mut dyn Transaction) -> Result<()>) -> Result<()> {
        let batch = self.database.batch();
        let mut pending = Pending::new(FjallBatch {
            store: self,
            batch: batch.durability(Some(PersistMode::SyncData)),
        });
        change(&mut pending)?;
        Ok(pending.batch.batch.commit()?)
    }

    fn each(&self, visit: &mut Visit<'_>) -> Result<()> {
        for entry in self.current.iter() {
            let (key, head) = entry.into_inner()?;
            let key = std::str::from_utf8(&key)?;
            let modified = Head::decode(key, &head)?.modified;
            let record = self.log.get(modified.to_be_bytes())?;
            visit(key, &head, &record.context("a record is missing")?)?;
        }
        Ok(())
    }
}

impl Batch for FjallBatch<'_> {
    fn get_head(&self, key: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.store.current.get(key)?.map(|head| head.to_vec()))
    }

    fn get_record(&self, revision: u64) -> Result<Option<Vec<u8>>> {
        let record = self.store.log.get(revision.to_be_bytes())?;
        Ok(record.map(|record| record.to_vec()))
    }

    fn add(&mut self, key: &str, head: &[u8], revision: u64, record: &[u8]) {
        self.batch.insert(&self.store.current, key, head);
        self.batch
            .insert(&self.store.log, revision.to_be_bytes(), record);
    }

    fn remove_record(&mut self, revision: u64) {
        self.batch.remove(&self.store.log, revision.to_be_bytes());
    }
}
