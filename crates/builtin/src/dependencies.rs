//! The dependencies of the strategies of built-in resources.

use std::sync::Arc;

use watchet_apiextensions::Definitions;
use watchet_services::ServiceRanges;

/// The dependencies of the strategies of built-in resources.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    /// The ranges of the cluster IPs and node ports of services.
    pub(crate) service_ranges: ServiceRanges,
    /// The state of the custom resources.
    pub(crate) definitions: Arc<Definitions>,
}
