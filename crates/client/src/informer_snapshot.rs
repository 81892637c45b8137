//! The state of an informer at the time of a scrape.

use std::sync::Arc;

use super::{HandlerMetrics, ReflectorMetrics};
/// The state of an informer at the time of a scrape.
#[derive(Debug)]
pub(super) struct InformerSnapshot {
    pub name: String,
    pub reflector: Option<Arc<ReflectorMetrics>>,
    pub synced: bool,
    pub objects: usize,
    pub queued: usize,
    /// By number.
    pub handlers: Vec<(String, Arc<HandlerMetrics>)>,
}
