//! Writes of one key, which are repeated if their outcome is unknown.
//!
//! A write is a transaction with the condition that the key was last written at revision R. If a
//! member hangs, or the connection or the leader is lost, while the transaction is in flight, etcd may
//! have executed it, may never execute it, or may execute it later: a process that was stopped
//! continues with the requests that it had received.
//!
//! # Why an update or a deletion can be sent again
//!
//! Executing it gives the key another revision than R, or removes it, and no later state of the key has
//! the revision R again. So at most one of all the transactions that are sent is executed, and a late one
//! has no effect.
//!
//! - If a repetition is executed, it is the only one: the write is done.
//! - If the condition of a repetition fails, the first change of the key after R decides. A lost
//!   transaction can only have been that change. If that change is another one, the write was refused. If
//!   it equals this write, this write was probably executed, but another writer may have made the same
//!   change (two servers that count from 5 to 6): both would count as done. The outcome remains unknown,
//!   and the write fails with an error that says so.
//!
//! # Why a creation cannot
//!
//! Its condition is that the key does not exist, which can become true again: the late transaction would
//! create an object again that was deleted in the meantime. So it fails with an unknown outcome.

use std::time::Duration;

use bytes::Bytes;
use etcd_client::proto::PbEvent;
use etcd_client::{
    Compare, CompareOp, EventType, PutOptions, Txn, TxnOp, TxnResponse, WatchOptions,
};

use super::cluster::RetryPolicy;
use super::failure::Failure;
use super::keys::raw_revision;
use super::watch;
use super::{Etcd3, WRITE_TIMEOUT};
use crate::{Expect, Put};
use watchet_api::{ResourceVersion, StorageKey};

/// The number of times that a write is sent if the outcome of the earlier ones is unknown.
const SENT_MAX: usize = 3;

/// Timeout of a read of the changes of a key.
const CHANGES_TIMEOUT: Duration = Duration::from_secs(3);

/// A write of one key.
struct Write {
    key: Vec<u8>,
    /// The revision of the key's last write; zero if it does not exist.
    expected: i64,
    change: Change,
}

/// The change of a key.
enum Change {
    /// Puts a value, attached to a lease.
    Put(Bytes, Option<i64>),
    /// Deletes the key.
    Delete,
}

impl Write {
    fn transaction(&self) -> Txn {
        let key = || self.key.clone();
        let change = match &self.change {
            Change::Put(value, lease) => {
                let options = lease.map(|id| PutOptions::new().with_lease(id));
                TxnOp::put(key(), value.to_vec(), options)
            }
            Change::Delete => TxnOp::delete(key(), None),
        };
        let condition = Compare::mod_revision(key(), CompareOp::Equal, self.expected);
        let transaction = Txn::new().when([condition]).and_then([change]);
        match self.is_creation() {
            true => transaction,
            false => transaction.or_else([TxnOp::get(key(), None)]),
        }
    }

    fn is_creation(&self) -> bool {
        self.expected == 0
    }

    /// Returns true if `event` is what this write does.
    fn equals(&self, event: &PbEvent) -> bool {
        let is_deletion = event.r#type == EventType::Delete as i32;
        let written = event.kv.as_ref().map_or(&[][..], |kv| &kv.value);
        match &self.change {
            Change::Put(value, _) => !is_deletion && written == value,
            Change::Delete => is_deletion,
        }
    }
}

impl Etcd3 {
    /// Executes a put, once or not at all.
    ///
    /// # Errors
    /// Returns [`Failure::OutcomeUnknown`] if the outcome is unknown.
    pub(super) async fn put_once(
        &self,
        put: &Put,
        lease: Option<i64>,
    ) -> Result<TxnResponse, Failure> {
        let write = Write {
            key: self.layout.key(&put.key),
            expected: match put.expect {
                Expect::Absent => 0,
                Expect::At(revision) => raw_revision(revision),
            },
            change: Change::Put(put.value.clone(), lease),
        };
        self.write(&write).await
    }

    /// Executes a deletion, once or not at all.
    ///
    /// # Errors
    /// Returns [`Failure::OutcomeUnknown`] if the outcome is unknown.
    pub(super) async fn delete_once(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<TxnResponse, Failure> {
        let write = Write {
            key: self.layout.key(key),
            expected: raw_revision(expect),
            change: Change::Delete,
        };
        self.write(&write).await
    }

    async fn write(&self, write: &Write) -> Result<TxnResponse, Failure> {
        let mut lost = None;
        for _ in 0..SENT_MAX {
            let result = self.send(write).await;
            match (result, lost.take()) {
                (Err(failure @ Failure::Unavailable(_)), _) if !write.is_creation() => {
                    lost = Some(failure);
                }
                (Ok(response), Some(lost)) if !response.succeeded() => {
                    return self.resolve(write, response, &lost).await;
                }
                // It may have been executed, whatever happened to the repetition.
                (Err(failure), Some(lost)) => {
                    return Err(unknown(&lost, &failure.reason()));
                }
                (Err(failure @ Failure::Unavailable(_)), None) => {
                    return Err(unknown(
                        &failure,
                        "it was not repeated, because it creates a key",
                    ));
                }
                (result, None) => return result,
                (Ok(response), Some(_)) => return Ok(response),
            }
        }
        Err(match lost {
            Some(lost) => unknown(&lost, &format!("it was sent {SENT_MAX} times")),
            None => Failure::NotSent("the write was not sent".to_owned()),
        })
    }

    async fn send(&self, write: &Write) -> Result<TxnResponse, Failure> {
        self.cluster
            .call(RetryPolicy::NonRepeatable, WRITE_TIMEOUT, |member| {
                let mut kv = member.calls().kv;
                let transaction = write.transaction();
                async move { Ok(kv.txn(transaction).await?) }
            })
            .await
    }

    /// Returns `response`, that of a refused repetition, if the lost transactions were not executed.
    async fn resolve(
        &self,
        write: &Write,
        response: TxnResponse,
        lost: &Failure,
    ) -> Result<TxnResponse, Failure> {
        match self.first_change(write).await {
            Ok(event) if write.equals(&event) => Err(unknown(
                lost,
                "the key was changed in the same way since, by this write or by an equal one",
            )),
            Ok(_) => Ok(response),
            Err(failure) => Err(unknown(lost, &failure.reason())),
        }
    }

    /// Returns the first change of the key after the expected revision, which must exist.
    async fn first_change(&self, write: &Write) -> Result<PbEvent, Failure> {
        let options = WatchOptions::new().with_start_revision(write.expected.saturating_add(1));
        self.cluster
            .call(RetryPolicy::Repeatable, CHANGES_TIMEOUT, |member| {
                let (key, options) = (write.key.clone(), options.clone());
                async move {
                    let mut opened = watch::open(member, key, options).await?;
                    opened.first_event().await
                }
            })
            .await
    }
}

fn unknown(lost: &Failure, detail: &str) -> Failure {
    let reason = lost.reason();
    Failure::OutcomeUnknown(format!("{reason}; {detail}"))
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::PbKeyValue;

    use super::*;

    fn event(event_type: EventType, value: &str) -> PbEvent {
        PbEvent {
            r#type: event_type as i32,
            kv: Some(PbKeyValue {
                value: value.into(),
                ..PbKeyValue::default()
            }),
            prev_kv: None,
        }
    }

    #[test]
    fn only_an_equal_change_leaves_the_outcome_open() {
        let write = |change| Write {
            key: b"/registry/a".to_vec(),
            expected: 5,
            change,
        };
        let put = write(Change::Put("6".into(), None));
        assert!(put.equals(&event(EventType::Put, "6")));
        assert!(!put.equals(&event(EventType::Put, "7")));
        assert!(!put.equals(&event(EventType::Delete, "")));
        let delete = write(Change::Delete);
        assert!(delete.equals(&event(EventType::Delete, "")));
        assert!(!delete.equals(&event(EventType::Put, "")));
    }
}
