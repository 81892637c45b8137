//! Ranges: limits, filters, order and the other options of a `RangeRequest`.

use std::cmp::Ordering;

use etcd_client::proto::{PbKeyValue, PbRangeRequest, PbRangeResponse, PbResponseHeader};

use super::errors::EtcdError;
use super::store::{KeyRange, View};

const ORDER_ASCENDING: i32 = 1;
const ORDER_DESCENDING: i32 = 2;

/// `RangeRequest.SortTarget.VALUE`.
const TARGET_VALUE: i32 = 4;

/// Executes a range on a view. The header has only the revision.
pub(super) fn range(
    view: View<'_>,
    request: &PbRangeRequest,
) -> Result<PbRangeResponse, EtcdError> {
    let keys = KeyRange::new(&request.key, &request.range_end);
    let found = view.range(&keys, request.revision)?;
    let count = i64::try_from(found.len()).unwrap_or(i64::MAX);
    let header = Some(PbResponseHeader {
        revision: view.revision,
        ..PbResponseHeader::default()
    });
    if request.count_only {
        return Ok(PbRangeResponse {
            header,
            count,
            ..PbRangeResponse::default()
        });
    }
    let limit = match usize::try_from(request.limit) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(limit) => limit,
    };
    // etcd reads no more keys than it needs if it neither sorts nor filters; an order that only follows from the target
    // comes after that.
    let reads = match request.sort_order == 0 && !has_bounds(request) {
        true => limit.saturating_add(1),
        false => usize::MAX,
    };
    let mut selected: Vec<_> = found
        .into_iter()
        .take(reads)
        .filter(|kv| is_selected(kv, request))
        .collect();
    match order(request) {
        Some(ORDER_DESCENDING) => selected.sort_by(|a, b| compare(b, a, request.sort_target)),
        Some(_) => selected.sort_by(|a, b| compare(a, b, request.sort_target)),
        None => {}
    }
    let more = selected.len() > limit;
    selected.truncate(limit);
    // Such a range reads only the index, which has no leases, unless it sorts by value.
    let omits_lease = view.store.keys_only_omits_lease && request.sort_target != TARGET_VALUE;
    let kvs = selected
        .iter()
        .map(|kv| without_value_if(kv, request.keys_only, omits_lease));
    Ok(PbRangeResponse {
        header,
        kvs: kvs.collect(),
        more,
        count,
    })
}

fn without_value_if(kv: &PbKeyValue, keys_only: bool, omits_lease: bool) -> PbKeyValue {
    if !keys_only {
        return kv.clone();
    }
    PbKeyValue {
        key: kv.key.clone(),
        value: Vec::new(),
        lease: if omits_lease { 0 } else { kv.lease },
        ..*kv
    }
}

fn has_bounds(request: &PbRangeRequest) -> bool {
    let bounds = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    bounds.iter().any(|bound| *bound != 0)
}

/// Returns true if the revisions of the key are in the bounds of the request; zero means no bound.
fn is_selected(kv: &PbKeyValue, request: &PbRangeRequest) -> bool {
    let within = |revision: i64, min: i64, max: i64| {
        (min == 0 || revision >= min) && (max == 0 || revision <= max)
    };
    within(
        kv.mod_revision,
        request.min_mod_revision,
        request.max_mod_revision,
    ) && within(
        kv.create_revision,
        request.min_create_revision,
        request.max_create_revision,
    )
}

/// Returns the order to sort in; `None` if the order of keys is the requested one.
fn order(request: &PbRangeRequest) -> Option<i32> {
    match (request.sort_order, request.sort_target) {
        (0 | ORDER_ASCENDING, 0) => None,
        (0, _) => Some(ORDER_ASCENDING),
        (order, _) => Some(order),
    }
}

fn compare(a: &PbKeyValue, b: &PbKeyValue, target: i32) -> Ordering {
    match target {
        1 => a.version.cmp(&b.version),
        2 => a.create_revision.cmp(&b.create_revision),
        3 => a.mod_revision.cmp(&b.mod_revision),
        TARGET_VALUE => a.value.cmp(&b.value),
        _ => a.key.cmp(&b.key),
    }
}
