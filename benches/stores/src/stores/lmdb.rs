//! LMDB: one transaction per group of writes, with its default durability, which calls `fdatasync` on the file.

use std::path::Path;

use anyhow::{Context as _, Result};
use lmdb::WriteFlags;
use lmdb::{
    Cursor as _, Database, DatabaseFlags, Environment, Error, RwTransaction, Transaction as _,
};

use super::{Engine, Transaction, Visit};
use crate::record::Head;

/// The maximum size of the file.
const MAP_BYTES: usize = 8 << 30;

struct Lmdb {
    environment: Environment,
    log: Database,
    current: Database,
}

pub(super) fn open(directory: &Path) -> Result<Box<dyn Engine>> {
    let environment = Environment::new()
        .set_max_dbs(2)
        .set_map_size(MAP_BYTES)
        .open(directory)?;
    Ok(Box::new(Lmdb {
        log: environment.create_db(Some("log"), DatabaseFlags::empty())?,
        current: environment.create_db(Some("current"), DatabaseFlags::empty())?,
        environment,
    }))
}

struct LmdbTransaction<'a> {
    transaction: RwTransaction<'a>,
    log: Database,
    current: Database,
}

impl Engine for Lmdb {
    fn commit(&mut self, change: &mut dyn FnMut(&mut dyn Transaction) -> Result<()>) -> Result<()> {
        let mut changes = LmdbTransaction {
            transaction: self.environment.begin_rw_txn()?,
            log: self.log,
            current: self.current,
        };
        change(&mut changes)?;
        Ok(changes.transaction.commit()?)
    }

    fn each(&self, visit: &mut Visit<'_>) -> Result<()> {
        let transaction = self.environment.begin_ro_txn()?;
        let mut cursor = transaction.open_ro_cursor(self.current)?;
        for entry in cursor.iter() {
            let (key, head) = entry?;
            let key = std::str::from_utf8(key)?;
            let modified = Head::decode(key, head)?.modified;
            let record = transaction.get(self.log, &modified.to_be_bytes());
            visit(key, head, record.context("a record is missing")?)?;
        }
        Ok(())
    }
}

impl Transaction for LmdbTransaction<'_> {
    fn head(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        found(self.transaction.get(self.current, &key))
    }

    fn record(&mut self, revision: u64) -> Result<Option<Vec<u8>>> {
        found(self.transaction.get(self.log, &revision.to_be_bytes()))
    }

    fn put(&mut self, key: &str, head: &[u8], revision: u64, record: &[u8]) -> Result<()> {
        let transaction = &mut self.transaction;
        transaction.put(
            self.log,
            &revision.to_be_bytes(),
            &record,
            WriteFlags::APPEND,
        )?;
        transaction.put(self.current, &key, &head, WriteFlags::empty())?;
        Ok(())
    }

    fn delete_record(&mut self, revision: u64) -> Result<()> {
        self.transaction
            .del(self.log, &revision.to_be_bytes(), None)?;
        Ok(())
    }
}

fn found(bytes: Result<&[u8], Error>) -> Result<Option<Vec<u8>>> {
    match bytes {
        Ok(bytes) => Ok(Some(bytes.to_vec())),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
