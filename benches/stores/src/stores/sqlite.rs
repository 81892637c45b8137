//! SQLite with a write-ahead log (`journal_mode=WAL`): one transaction per group of writes, with `synchronous=FULL`, which
//! syncs the log at each commit.

use std::path::Path;

use anyhow::Result;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Engine, Transaction, Visit};

const CREATE: &str = "CREATE TABLE IF NOT EXISTS log (revision INTEGER PRIMARY KEY, record BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS current (key TEXT PRIMARY KEY, head BLOB NOT NULL, modified INTEGER NOT NULL)
    WITHOUT ROWID;";

struct Sqlite(Connection);

pub(super) fn open(directory: &Path) -> Result<Box<dyn Engine>> {
    let connection = Connection::open(directory.join("store.sqlite"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(CREATE)?;
    Ok(Box::new(Sqlite(connection)))
}

impl Engine for Sqlite {
    fn commit(&mut self, change: &mut dyn FnMut(&mut dyn Transaction) -> Result<()>) -> Result<()> {
        let mut transaction = self.0.transaction()?;
        change(&mut transaction)?;
        Ok(transaction.commit()?)
    }

    fn each(&self, visit: &mut Visit<'_>) -> Result<()> {
        let mut statement = self.0.prepare(
            "SELECT key, head, record FROM current LEFT JOIN log ON revision = modified ORDER BY key",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let key = row.get_ref(0)?.as_str()?;
            visit(key, row.get_ref(1)?.as_blob()?, row.get_ref(2)?.as_blob()?)?;
        }
        Ok(())
    }
}

impl Transaction for rusqlite::Transaction<'_> {
    fn head(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        let mut statement = self.prepare_cached("SELECT head FROM current WHERE key = ?")?;
        Ok(statement.query_row([key], |row| row.get(0)).optional()?)
    }

    fn record(&mut self, revision: u64) -> Result<Option<Vec<u8>>> {
        let mut statement = self.prepare_cached("SELECT record FROM log WHERE revision = ?")?;
        let revision = revision.cast_signed();
        Ok(statement
            .query_row([revision], |row| row.get(0))
            .optional()?)
    }

    fn put(&mut self, key: &str, head: &[u8], revision: u64, record: &[u8]) -> Result<()> {
        let revision = revision.cast_signed();
        self.prepare_cached("INSERT INTO log VALUES (?, ?)")?
            .execute(params![revision, record])?;
        self.prepare_cached("INSERT OR REPLACE INTO current VALUES (?, ?, ?)")?
            .execute(params![key, head, revision])?;
        Ok(())
    }

    fn delete_record(&mut self, revision: u64) -> Result<()> {
        self.prepare_cached("DELETE FROM log WHERE revision = ?")?
            .execute([revision.cast_signed()])?;
        Ok(())
    }
}
