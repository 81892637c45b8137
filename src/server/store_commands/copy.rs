//! `watchet store export` and `import`: copies between a stopped embedded store and an etcd.

use std::path::Path;

use clap::ArgMatches;

use super::error::StoreError;
use crate::server::config::flags::Flags;

#[cfg(not(feature = "etcd"))]
mod without_etcd {
    use super::*;

    fn unsupported(flags: &Flags) -> StoreError {
        let error = flags.etcd_servers.error(
            "this build has no support for etcd; build it with the feature `etcd`, which is on by default",
        );
        StoreError::Config(error)
    }

    /// Returns an error that says that this build has no support for etcd.
    pub(in super::super) async fn export(
        _matches: &ArgMatches,
        flags: &Flags,
        _data_dir: &Path,
    ) -> Result<(), StoreError> {
        Err(unsupported(flags))
    }

    /// As [`export`].
    pub(in super::super) async fn import(
        _matches: &ArgMatches,
        flags: &Flags,
        _data_dir: &Path,
    ) -> Result<(), StoreError> {
        Err(unsupported(flags))
    }
}

#[cfg(feature = "etcd")]
mod with_etcd {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::StreamExt as _;
    use jiff::Timestamp;

    use super::super::directory::{
        existing_store, lock_existing, print, print_replaced, store_directory,
    };
    use super::super::progress::Progress;
    use super::*;
    use crate::api::{ResourceVersion, StorageKey};
    use crate::metrics::Metrics;
    use crate::server::config::storage::{self, EtcdConfig};
    use crate::server::process::files::DataDir;
    use crate::server::process::open_etcd;
    use crate::storage::embedded::{self, Embedded, EmbeddedConfig, StoredValue};
    use crate::storage::etcd3::Etcd3;
    use crate::storage::{Expect, Outcome, Put, Storage as _, StorageError};

    /// Copies all objects to etcd.
    pub(in super::super) async fn export(
        matches: &ArgMatches,
        flags: &Flags,
        data_dir: &Path,
    ) -> Result<(), StoreError> {
        let config = etcd_config(flags)?;
        let _locked = lock_existing(data_dir)?;
        let etcd = connect(&config).await?;
        let found = etcd.count().await?;
        if found > 0 && !matches.get_flag("force") {
            return Err(StoreError::Refused(format!(
                "etcd at {} has {found} keys under {}: choose another --etcd-prefix, or give --force to \
                 overwrite those that the store has too",
                config.servers.join(","),
                config.prefix
            )));
        }
        let store = Embedded::open(&store_directory(data_dir), EmbeddedConfig::default())?;
        let at = store.current_revision().await?;
        let mut values = std::pin::pin!(store.values_in_order().await?);
        let (mut progress, mut copied, mut expired) = (Progress::new("exported"), 0_u64, 0_u64);
        while let Some(value) = values.next().await {
            match write(&etcd, value?).await? {
                true => copied += 1,
                false => expired += 1,
            }
            progress.report("objects", copied);
        }
        let now = etcd.current_revision().await?;
        print(&format!(
            "Exported {copied} objects of revision {at} to {} under {}, which is at revision {now}; {expired} had expired",
            config.servers.join(","),
            config.prefix
        ))?;
        if now < at {
            print(
                "The revision of etcd is lower than that of the store: restart clients that have seen the store, or \
                 raise the revision of etcd (etcdutl snapshot restore --bump-revision 1000000000 --mark-compacted)",
            )?;
        }
        Ok(())
    }

    /// Creates the store with all objects of etcd.
    pub(in super::super) async fn import(
        matches: &ArgMatches,
        flags: &Flags,
        data_dir: &Path,
    ) -> Result<(), StoreError> {
        let config = etcd_config(flags)?;
        let _locked = DataDir::lock(data_dir)?;
        let etcd = connect(&config).await?;
        let mut progress = Progress::new("imported");
        let read = etcd.values_in_order(|count| progress.report("objects", count));
        let (at, mut values) = read.await?;
        let directory = store_directory(data_dir);
        let revision = unique_revisions(at.get(), &mut values);
        let existing = existing_store(matches);
        let replaced = embedded::create_from(&values, revision, &directory, existing)?;
        print_replaced(replaced.as_deref())?;
        print(&format!(
            "Imported {} objects of revision {at} of {} to {}, which is at revision {revision}",
            values.len(),
            config.servers.join(","),
            directory.display()
        ))?;
        Ok(())
    }

    fn etcd_config(flags: &Flags) -> Result<EtcdConfig, StoreError> {
        let config = storage::etcd(flags)?;
        if config.servers.is_empty() {
            let missing = flags.etcd_servers.error(
                "is missing: give the endpoints of etcd, e.g. --etcd-servers http://127.0.0.1:2379",
            );
            return Err(missing.into());
        }
        Ok(config)
    }

    async fn connect(config: &EtcdConfig) -> Result<Arc<Etcd3>, StoreError> {
        Ok(open_etcd::connect(config, Duration::ZERO, None, &Metrics::new()).await?)
    }

    /// Writes a value to etcd; returns false if it has expired.
    async fn write(etcd: &Etcd3, value: StoredValue) -> Result<bool, StoreError> {
        let key = StorageKey::new(&value.key)
            .map_err(|error| StorageError::Corrupt(error.to_string()))?;
        let ttl = match value.expires_ms {
            0 => None,
            expires_ms => {
                let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
                match expires_ms.checked_sub(now) {
                    None | Some(0) => return Ok(false),
                    Some(left) => Some(Duration::from_millis(left)),
                }
            }
        };
        let mut put = Put {
            key,
            value: value.value,
            expect: Expect::Absent,
            ttl,
        };
        while let Outcome::Refused(found) = etcd.put(put.clone()).await? {
            // With --force: overwrites what is there.
            let found = match found {
                Some(found) => Some(found),
                None => etcd.get(&put.key).await?.0,
            };
            put.expect = found.map_or(Expect::Absent, |found| Expect::At(found.mod_revision));
        }
        Ok(true)
    }

    /// Gives values that were written by one transaction revisions of their own: the embedded store has one value per
    /// revision. The values are in the order of their revisions, and remain so.
    ///
    /// Returns the revision of the store with these values of etcd at revision `at`. If any value was changed, it is a
    /// later one than `at`, so that clients that have seen the values of etcd list again: a watch from `at` would not
    /// report that the resource versions changed.
    pub(super) fn unique_revisions(at: u64, values: &mut [StoredValue]) -> u64 {
        let (mut last, mut is_changed) = (0, false);
        for value in values {
            let revision = value.mod_revision.get().max(last + 1);
            is_changed |= revision != value.mod_revision.get();
            value.mod_revision = ResourceVersion::new(revision);
            last = revision;
        }
        at.max(last) + u64::from(is_changed)
    }
}

#[cfg(feature = "etcd")]
pub(super) use with_etcd::{export, import};
#[cfg(not(feature = "etcd"))]
pub(super) use without_etcd::{export, import};

#[cfg(all(test, feature = "etcd"))]
mod tests {
    use super::with_etcd::unique_revisions;
    use crate::api::{ResourceVersion, StorageKey};
    use crate::storage::embedded::{
        Embedded, EmbeddedConfig, ExistingStore, StoredValue, create_from,
    };
    use crate::storage::{Storage as _, StorageError};

    fn values<const N: usize>(revisions: [u64; N]) -> [StoredValue; N] {
        revisions.map(|revision| StoredValue {
            key: format!("/pods/ns/{revision}"),
            value: Default::default(),
            create_revision: ResourceVersion::new(revision),
            mod_revision: ResourceVersion::new(revision),
            expires_ms: 0,
        })
    }

    /// The store was at the revision of etcd, so that a client with an old resource version of an object went on from a
    /// watch, and its updates of the object were conflicts forever.
    #[test]
    fn values_of_a_transaction_get_revisions_of_their_own() {
        let mut changed = values([3, 5, 5, 5, 6, 20]);
        assert_eq!(unique_revisions(20, &mut changed), 21);
        let revisions = changed.map(|value| value.mod_revision.get());
        assert_eq!(revisions, [3, 5, 6, 7, 8, 20]);
        assert_eq!(unique_revisions(25, &mut values([3, 5, 5, 20])), 26);
        assert_eq!(unique_revisions(2, &mut values([2, 2])), 4);
        assert_eq!(unique_revisions(25, &mut values([3, 5, 20])), 25);
        assert_eq!(unique_revisions(1, &mut []), 1);
    }

    /// A watch from the revision of etcd gets a 410 if resource versions differ from those in etcd.
    #[tokio::test]
    async fn clients_list_again_if_resource_versions_were_changed() {
        for (revisions, goes_on) in [([3, 5, 5, 20], false), ([3, 4, 5, 20], true)] {
            let directory = tempfile::tempdir().unwrap();
            let store = directory.path().join("store");
            let mut values = values(revisions);
            for (index, value) in values.iter_mut().enumerate() {
                value.key = format!("/pods/ns/{index}");
            }
            let revision = unique_revisions(20, &mut values);
            create_from(&values, revision, &store, ExistingStore::Refuse).unwrap();
            let store = Embedded::open(&store, EmbeddedConfig::default()).unwrap();
            let prefix = StorageKey::new("/pods/").unwrap();
            let watch = store.watch(&prefix, ResourceVersion::new(20)).await;
            match goes_on {
                true => assert!(watch.is_ok(), "{watch:?}"),
                false => assert!(
                    matches!(watch, Err(StorageError::Compacted { .. })),
                    "{watch:?}"
                ),
            }
        }
    }
}
