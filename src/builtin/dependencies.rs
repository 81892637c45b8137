//! What the strategies of built-in resources depend on.

use std::sync::Arc;

use crate::apiextensions::Definitions;
use crate::services::ServiceRanges;

/// What the strategies of built-in resources depend on.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    /// The ranges that services get their addresses from.
    pub(crate) service_ranges: ServiceRanges,
    /// The state of the custom resources.
    pub(crate) definitions: Arc<Definitions>,
}
