//! Puts and deletions, alone and in transactions.

use etcd_client::proto::{
    PbDeleteRequest, PbDeleteResponse, PbPutRequest, PbPutResponse, PbResponseHeader,
};

use super::errors::EtcdError;
use super::store::{KeyRange, Store, Writer};

pub(super) fn header(revision: i64) -> Option<PbResponseHeader> {
    Some(PbResponseHeader {
        revision,
        ..PbResponseHeader::default()
    })
}

pub(super) fn check_lease(store: &Store, lease: i64) -> Result<(), EtcdError> {
    match lease == 0 || store.leases.contains_key(&lease) {
        true => Ok(()),
        false => Err(EtcdError::LeaseNotFound),
    }
}

pub(super) fn put(
    writer: &mut Writer<'_>,
    request: &PbPutRequest,
) -> Result<PbPutResponse, EtcdError> {
    let previous = writer.view().get(&request.key, 0);
    let (mut value, mut lease) = (request.value.clone(), request.lease);
    if request.ignore_value || request.ignore_lease {
        let previous = previous.as_ref().ok_or(EtcdError::KeyNotFound)?;
        if request.ignore_value {
            value.clone_from(&previous.value);
        }
        if request.ignore_lease {
            lease = previous.lease;
        }
    }
    let revision = writer.put(&request.key, value, lease);
    Ok(PbPutResponse {
        header: header(revision),
        prev_kv: previous.filter(|_| request.prev_kv).map(|kv| (*kv).clone()),
    })
}

pub(super) fn delete(writer: &mut Writer<'_>, request: &PbDeleteRequest) -> PbDeleteResponse {
    let deleted = writer.delete(&KeyRange::new(&request.key, &request.range_end));
    let count = i64::try_from(deleted.len()).unwrap_or(i64::MAX);
    let previous = deleted.iter().filter(|_| request.prev_kv);
    PbDeleteResponse {
        header: header(writer.revision()),
        deleted: count,
        prev_kvs: previous.map(|kv| (**kv).clone()).collect(),
    }
}
