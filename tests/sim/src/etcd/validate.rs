//! The checks of requests before they are executed, in etcd's order.

use std::collections::BTreeSet;

use etcd_client::proto::{
    PbDeleteRequest, PbPutRequest, PbRangeRequest, PbTxnOpRequest, PbTxnRequest, PbTxnRequestOp,
};

use super::errors::EtcdError;
use super::store::KeyRange;

/// The default of `--max-txn-ops`.
const TXN_OPERATIONS_MAX: usize = 128;

fn key(key: &[u8]) -> Result<(), EtcdError> {
    match key {
        [] => Err(EtcdError::EmptyKey),
        _ => Ok(()),
    }
}

pub(super) fn range(request: &PbRangeRequest) -> Result<(), EtcdError> {
    key(&request.key)
}

pub(super) fn put(request: &PbPutRequest) -> Result<(), EtcdError> {
    key(&request.key)?;
    if request.ignore_value && !request.value.is_empty() {
        return Err(EtcdError::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(EtcdError::LeaseProvided);
    }
    Ok(())
}

pub(super) fn delete(request: &PbDeleteRequest) -> Result<(), EtcdError> {
    key(&request.key)
}

pub(super) fn txn(request: &PbTxnRequest) -> Result<(), EtcdError> {
    txn_within(request, TXN_OPERATIONS_MAX)?;
    distinct(&request.success)?;
    distinct(&request.failure)?;
    Ok(())
}

fn txn_within(request: &PbTxnRequest, operations_max: usize) -> Result<(), EtcdError> {
    let count = request
        .compare
        .len()
        .max(request.success.len())
        .max(request.failure.len());
    let rest = operations_max
        .checked_sub(count)
        .ok_or(EtcdError::TooManyOps)?;
    for compare in &request.compare {
        key(&compare.key)?;
    }
    for operation in request.success.iter().chain(&request.failure) {
        match &operation.request {
            Some(PbTxnOpRequest::RequestRange(request)) => range(request)?,
            Some(PbTxnOpRequest::RequestPut(request)) => put(request)?,
            Some(PbTxnOpRequest::RequestDeleteRange(request)) => delete(request)?,
            Some(PbTxnOpRequest::RequestTxn(request)) => txn_within(request, rest)?,
            None => return Err(EtcdError::KeyNotFound),
        }
    }
    Ok(())
}

/// The keys that a branch puts, and the ranges that it deletes.
#[derive(Default)]
struct Written {
    puts: BTreeSet<Vec<u8>>,
    deletes: Vec<KeyRange>,
}

impl Written {
    fn put(&mut self, key: &[u8], may_repeat: bool) -> Result<(), EtcdError> {
        let deleted = self.deletes.iter().any(|range| range.contains(key));
        let repeated = !self.puts.insert(key.to_vec()) && !may_repeat;
        match deleted || repeated {
            true => Err(EtcdError::DuplicateKey),
            false => Ok(()),
        }
    }
}

/// Checks that no key is put twice, or put and deleted, by one branch. The branches of a nested transaction exclude each
/// other.
fn distinct(operations: &[PbTxnRequestOp]) -> Result<Written, EtcdError> {
    let mut written = Written::default();
    for operation in operations {
        if let Some(PbTxnOpRequest::RequestDeleteRange(request)) = &operation.request {
            // etcd takes the end of a deletion of all keys from one on literally: an empty range.
            if request.range_end != [0] {
                let range = KeyRange::new(&request.key, &request.range_end);
                written.deletes.push(range);
            }
        }
    }
    for operation in operations {
        if let Some(PbTxnOpRequest::RequestTxn(inner)) = &operation.request {
            let then = distinct(&inner.success)?;
            let otherwise = distinct(&inner.failure)?;
            for key in &then.puts {
                written.put(key, false)?;
            }
            for key in &otherwise.puts {
                written.put(key, then.puts.contains(key))?;
            }
            written.deletes.extend(then.deletes);
            written.deletes.extend(otherwise.deletes);
        }
    }
    for operation in operations {
        if let Some(PbTxnOpRequest::RequestPut(request)) = &operation.request {
            written.put(&request.key, false)?;
        }
    }
    Ok(written)
}
