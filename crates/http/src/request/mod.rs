//! What a request contains: the `RequestInfo` of its path, its query and options, its `Accept` header, its body.

pub(crate) mod accept;
pub(crate) mod body;
pub(crate) mod body_limits;
mod body_memory;
pub(crate) mod expected_kind;
pub(crate) mod options;
pub(crate) mod percent;
pub(crate) mod query;
pub(crate) mod received_request;
pub(crate) mod request_body;
pub(crate) mod request_info;
