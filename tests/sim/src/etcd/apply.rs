//! Log entries and their execution: puts, deletions, transactions, compactions, leases and alarms. A header in a
//! response has only the revision.

use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbDeleteRequest, PbDeleteResponse,
    PbLeaseGrantRequest, PbLeaseGrantResponse, PbLeaseRevokeResponse, PbPutRequest, PbPutResponse,
    PbTxnRequest, PbTxnResponse,
};

use super::errors::EtcdError;
use super::store::{KeyRange, Lease, Store, Writer};
use super::transaction;
use super::writes::{check_lease, delete, header, put};

/// The shortest lease in seconds: one and a half election timeouts, rounded up.
const LEASE_TTL_MIN: i64 = 2;

/// The longest lease in seconds.
const LEASE_TTL_MAX: i64 = 9_000_000_000;

/// The operation of a log entry.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Put(PbPutRequest),
    Delete(PbDeleteRequest),
    Txn(PbTxnRequest),
    Compact(PbCompactionRequest),
    LeaseGrant(PbLeaseGrantRequest),
    LeaseRevoke(i64),
    NoSpaceAlarm(bool),
}

/// The result of a log entry.
#[derive(Debug, Clone)]
pub(super) enum Applied {
    Put(PbPutResponse),
    Delete(PbDeleteResponse),
    Txn(PbTxnResponse),
    Compact(PbCompactionResponse),
    LeaseGrant(PbLeaseGrantResponse),
    LeaseRevoke(PbLeaseRevokeResponse),
    Alarm,
}

/// Executes an operation on the state.
pub(super) fn apply(store: &mut Store, operation: &Operation) -> Result<Applied, EtcdError> {
    if store.corrupt && !matches!(operation, Operation::NoSpaceAlarm(_)) {
        return Err(EtcdError::Corrupt);
    }
    if store.no_space && needs_space(operation) {
        return Err(EtcdError::NoSpace);
    }
    match operation {
        Operation::Put(request) => {
            check_lease(store, request.lease)?;
            let mut writer = Writer::begin(store);
            let response = put(&mut writer, request)?;
            writer.commit();
            Ok(Applied::Put(response))
        }
        Operation::Delete(request) => {
            let mut writer = Writer::begin(store);
            let response = delete(&mut writer, request);
            writer.commit();
            Ok(Applied::Delete(response))
        }
        Operation::Txn(request) => transaction::apply(store, request).map(Applied::Txn),
        Operation::Compact(request) => compact(store, request.revision).map(Applied::Compact),
        Operation::LeaseGrant(request) => grant(store, request).map(Applied::LeaseGrant),
        Operation::LeaseRevoke(id) => revoke(store, *id).map(Applied::LeaseRevoke),
        Operation::NoSpaceAlarm(on) => {
            store.no_space = *on;
            Ok(Applied::Alarm)
        }
    }
}

/// Returns true if the operation is refused while the database is full.
fn needs_space(operation: &Operation) -> bool {
    match operation {
        Operation::Put(_) | Operation::LeaseGrant(_) => true,
        Operation::Txn(request) => transaction::has_puts(request),
        _ => false,
    }
}

fn compact(store: &mut Store, revision: i64) -> Result<PbCompactionResponse, EtcdError> {
    if revision <= store.compacted {
        return Err(EtcdError::Compacted);
    }
    if revision > store.revision {
        return Err(EtcdError::FutureRevision);
    }
    store.compacted = revision;
    let header = header(store.revision);
    Ok(PbCompactionResponse { header })
}

fn grant(
    store: &mut Store,
    request: &PbLeaseGrantRequest,
) -> Result<PbLeaseGrantResponse, EtcdError> {
    if request.ttl > LEASE_TTL_MAX {
        return Err(EtcdError::LeaseTtlTooLarge);
    }
    if store.leases.contains_key(&request.id) {
        return Err(EtcdError::LeaseExists);
    }
    let ttl = request.ttl.max(LEASE_TTL_MIN);
    let lease = Lease {
        ttl,
        ..Lease::default()
    };
    store.leases.insert(request.id, lease);
    Ok(PbLeaseGrantResponse {
        header: header(store.revision),
        id: request.id,
        ttl,
        ..PbLeaseGrantResponse::default()
    })
}

/// Deletes the lease and its keys, which have one revision.
fn revoke(store: &mut Store, id: i64) -> Result<PbLeaseRevokeResponse, EtcdError> {
    let lease = store.leases.get(&id).ok_or(EtcdError::LeaseNotFound)?;
    let keys = lease.keys.clone();
    let mut writer = Writer::begin(store);
    for key in &keys {
        writer.delete(&KeyRange::new(key, &[]));
    }
    let revision = writer.commit();
    store.leases.remove(&id);
    Ok(PbLeaseRevokeResponse {
        header: header(revision),
    })
}
