//! redb alone: one transaction per group of writes, with `Durability::Immediate`, its default. The cache of pages has the
//! size of watchet's.

use std::path::Path;

use anyhow::{Context as _, Result};
use redb::{
    Database, Durability, ReadableDatabase as _, ReadableTable as _, Table, TableDefinition,
};

use super::{Engine, Transaction, Visit};
use crate::record::Head;

const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
const CURRENT: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("current");

const PAGE_CACHE_BYTES: usize = 4 << 20;

struct Redb(Database);

pub(super) fn open(directory: &Path) -> Result<Box<dyn Engine>> {
    let database = Database::builder()
        .set_cache_size(PAGE_CACHE_BYTES)
        .create(directory.join("store.redb"))?;
    Ok(Box::new(Redb(database)))
}

struct Tables<'txn> {
    log: Table<'txn, u64, &'static [u8]>,
    current: Table<'txn, &'static str, &'static [u8]>,
}

impl Engine for Redb {
    fn commit(&mut self, change: &mut dyn FnMut(&mut dyn Transaction) -> Result<()>) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        change(&mut Tables {
            log: transaction.open_table(LOG)?,
            current: transaction.open_table(CURRENT)?,
        })?;
        Ok(transaction.commit()?)
    }

    fn each(&self, visit: &mut Visit<'_>) -> Result<()> {
        let transaction = self.0.begin_read()?;
        let log = transaction.open_table(LOG)?;
        for entry in transaction.open_table(CURRENT)?.iter()? {
            let (key, head) = entry?;
            let modified = Head::decode(key.value(), head.value())?.modified;
            let record = log.get(modified)?.context("a record is missing")?;
            visit(key.value(), head.value(), record.value())?;
        }
        Ok(())
    }
}

impl Transaction for Tables<'_> {
    fn head(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.current.get(key)?.map(|head| head.value().to_vec()))
    }

    fn record(&mut self, revision: u64) -> Result<Option<Vec<u8>>> {
        Ok(self
            .log
            .get(revision)?
            .map(|record| record.value().to_vec()))
    }

    fn put(&mut self, key: &str, head: &[u8], revision: u64, record: &[u8]) -> Result<()> {
        self.log.insert(revision, record)?;
        self.current.insert(key, head)?;
        Ok(())
    }

    fn delete_record(&mut self, revision: u64) -> Result<()> {
        self.log.remove(revision)?;
        Ok(())
    }
}
