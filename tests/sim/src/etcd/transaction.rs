//! Transactions: comparisons, and the operations of the branch they choose.

use std::cmp::Ordering;

use etcd_client::proto::{
    PbCompare, PbKeyValue, PbResponseOp, PbTargetUnion, PbTxnOpRequest, PbTxnOpResponse,
    PbTxnRequest, PbTxnRequestOp, PbTxnResponse,
};

use super::errors::EtcdError;
use super::read;
use super::store::{KeyRange, Store, View, Writer};
use super::writes::{check_lease, delete, header, put};

/// `Compare.CompareTarget.VALUE`.
const TARGET_VALUE: i32 = 3;

/// Executes a transaction with writes.
pub(super) fn apply(store: &mut Store, request: &PbTxnRequest) -> Result<PbTxnResponse, EtcdError> {
    let view = View {
        store,
        revision: store.revision,
        compacted: store.compacted,
    };
    // The comparisons of nested transactions also see the state before the outer one.
    let plan = plan(view, request);
    check(view, request, &plan)?;
    let mut writer = Writer::begin(store);
    let mut response = execute(&mut writer, request, &plan)?;
    response.header = header(writer.revision());
    writer.commit();
    Ok(response)
}

/// Executes a transaction without writes on a view.
pub(super) fn read_only(
    view: View<'_>,
    request: &PbTxnRequest,
) -> Result<PbTxnResponse, EtcdError> {
    let plan = plan(view, request);
    check(view, request, &plan)?;
    let mut response = read_planned(view, request, &plan)?;
    response.header = header(view.revision);
    Ok(response)
}

/// Returns true if neither branch writes.
pub(super) fn is_read_only(request: &PbTxnRequest) -> bool {
    operations(request).all(|operation| match &operation.request {
        Some(PbTxnOpRequest::RequestRange(_)) | None => true,
        Some(PbTxnOpRequest::RequestTxn(inner)) => is_read_only(inner),
        Some(_) => false,
    })
}

/// Returns true if all reads of the transaction are serializable.
pub(super) fn is_serializable(request: &PbTxnRequest) -> bool {
    operations(request).all(|operation| match &operation.request {
        Some(PbTxnOpRequest::RequestRange(range)) => range.serializable,
        _ => false,
    })
}

/// Returns true if a branch has a put.
pub(super) fn has_puts(request: &PbTxnRequest) -> bool {
    operations(request).any(|operation| match &operation.request {
        Some(PbTxnOpRequest::RequestPut(_)) => true,
        Some(PbTxnOpRequest::RequestTxn(inner)) => has_puts(inner),
        _ => false,
    })
}

fn operations(request: &PbTxnRequest) -> impl Iterator<Item = &PbTxnRequestOp> {
    request.success.iter().chain(&request.failure)
}

/// The branches that the comparisons choose, of a transaction and of the transactions nested in the chosen branch.
struct Plan {
    succeeded: bool,
    nested: Vec<Plan>,
}

fn plan(view: View<'_>, request: &PbTxnRequest) -> Plan {
    let succeeded = request.compare.iter().all(|compare| holds(view, compare));
    let nested =
        branch(request, succeeded)
            .iter()
            .filter_map(|operation| match &operation.request {
                Some(PbTxnOpRequest::RequestTxn(inner)) => Some(plan(view, inner)),
                _ => None,
            });
    let nested = nested.collect();
    Plan { succeeded, nested }
}

fn branch(request: &PbTxnRequest, succeeded: bool) -> &[PbTxnRequestOp] {
    if succeeded {
        &request.success
    } else {
        &request.failure
    }
}

/// Returns true if the comparison holds for every key of its range, or for an absent key.
fn holds(view: View<'_>, compare: &PbCompare) -> bool {
    let range = KeyRange::new(&compare.key, &compare.range_end);
    let found = view.range(&range, 0).unwrap_or_default();
    if found.is_empty() {
        // An absent key has no value to compare.
        return compare.target != TARGET_VALUE && holds_for(&PbKeyValue::default(), compare);
    }
    found.iter().all(|kv| holds_for(kv, compare))
}

fn holds_for(kv: &PbKeyValue, compare: &PbCompare) -> bool {
    let with = |actual: i64, expected: Option<i64>| actual.cmp(&expected.unwrap_or(0));
    let union = compare.target_union.as_ref();
    let number = match union {
        Some(
            PbTargetUnion::Version(number)
            | PbTargetUnion::CreateRevision(number)
            | PbTargetUnion::ModRevision(number)
            | PbTargetUnion::Lease(number),
        ) => Some(*number),
        _ => None,
    };
    let ordering = match compare.target {
        0 => with(kv.version, number),
        1 => with(kv.create_revision, number),
        2 => with(kv.mod_revision, number),
        TARGET_VALUE => match union {
            Some(PbTargetUnion::Value(value)) => kv.value.cmp(value),
            _ => kv.value.as_slice().cmp(&[]),
        },
        _ => with(kv.lease, number),
    };
    match compare.result {
        0 => ordering == Ordering::Equal,
        1 => ordering == Ordering::Greater,
        2 => ordering == Ordering::Less,
        _ => ordering != Ordering::Equal,
    }
}

/// Checks everything that can fail before anything is written.
fn check(view: View<'_>, request: &PbTxnRequest, plan: &Plan) -> Result<(), EtcdError> {
    let check_put = |operation: &PbTxnOpRequest| match operation {
        PbTxnOpRequest::RequestPut(put) => {
            let needs_previous = put.ignore_value || put.ignore_lease;
            if needs_previous && view.get(&put.key, 0).is_none() {
                return Err(EtcdError::KeyNotFound);
            }
            check_lease(view.store, put.lease)
        }
        _ => Ok(()),
    };
    let check_range = |operation: &PbTxnOpRequest| match operation {
        PbTxnOpRequest::RequestRange(range) => view.check(range.revision).map(drop),
        _ => Ok(()),
    };
    if view.store.checks_in_order {
        return check_each(request, plan, &|operation| {
            check_put(operation)?;
            check_range(operation)
        });
    }
    check_each(request, plan, &check_put)?;
    check_each(request, plan, &check_range)
}

/// Checks each operation of the chosen branches, until one fails.
fn check_each(
    request: &PbTxnRequest,
    plan: &Plan,
    check: &dyn Fn(&PbTxnOpRequest) -> Result<(), EtcdError>,
) -> Result<(), EtcdError> {
    let mut nested = plan.nested.iter();
    let operations = branch(request, plan.succeeded).iter();
    for operation in operations.filter_map(|operation| operation.request.as_ref()) {
        match (operation, &mut nested) {
            (PbTxnOpRequest::RequestTxn(inner), nested) => {
                if let Some(plan) = nested.next() {
                    check_each(inner, plan, check)?;
                }
            }
            (other, _) => check(other)?,
        }
    }
    Ok(())
}

fn execute(
    writer: &mut Writer<'_>,
    request: &PbTxnRequest,
    plan: &Plan,
) -> Result<PbTxnResponse, EtcdError> {
    let mut nested = plan.nested.iter();
    let mut responses = Vec::new();
    for operation in branch(request, plan.succeeded) {
        let response = match &operation.request {
            Some(PbTxnOpRequest::RequestRange(range)) => {
                PbTxnOpResponse::ResponseRange(read::range(writer.view(), range)?)
            }
            Some(PbTxnOpRequest::RequestPut(request)) => {
                PbTxnOpResponse::ResponsePut(put(writer, request)?)
            }
            Some(PbTxnOpRequest::RequestDeleteRange(request)) => {
                PbTxnOpResponse::ResponseDeleteRange(delete(writer, request))
            }
            Some(PbTxnOpRequest::RequestTxn(inner)) => match nested.next() {
                Some(plan) => PbTxnOpResponse::ResponseTxn(execute(writer, inner, plan)?),
                None => continue,
            },
            None => continue,
        };
        responses.push(response);
    }
    Ok(answer(plan, responses))
}

fn read_planned(
    view: View<'_>,
    request: &PbTxnRequest,
    plan: &Plan,
) -> Result<PbTxnResponse, EtcdError> {
    let mut nested = plan.nested.iter();
    let mut responses = Vec::new();
    for operation in branch(request, plan.succeeded) {
        let response = match &operation.request {
            Some(PbTxnOpRequest::RequestRange(range)) => {
                PbTxnOpResponse::ResponseRange(read::range(view, range)?)
            }
            Some(PbTxnOpRequest::RequestTxn(inner)) => match nested.next() {
                Some(plan) => PbTxnOpResponse::ResponseTxn(read_planned(view, inner, plan)?),
                None => continue,
            },
            _ => continue,
        };
        responses.push(response);
    }
    Ok(answer(plan, responses))
}

fn answer(plan: &Plan, responses: Vec<PbTxnOpResponse>) -> PbTxnResponse {
    let responses = responses.into_iter().map(Some);
    PbTxnResponse {
        header: header(0),
        succeeded: plan.succeeded,
        responses: responses
            .map(|response| PbResponseOp { response })
            .collect(),
    }
}
