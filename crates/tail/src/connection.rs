//! A `ListerWatcher` that also reports when the connection is lost and restored.

use futures_util::StreamExt as _;

use super::output::StatusReporter;
use watchet_api::ResourceVersion;
use watchet_reflector::{ChangeStream, ListerWatcher, Listing, SourceError};

/// A `ListerWatcher` that passes on the results of another and reports them.
pub(super) struct ReportingSource<L> {
    source: L,
    reporter: StatusReporter,
}

impl<L> ReportingSource<L> {
    pub(super) fn new(source: L, reporter: StatusReporter) -> Self {
        Self { source, reporter }
    }
}

impl<L: ListerWatcher> ListerWatcher for ReportingSource<L> {
    type Object = L::Object;

    async fn list(&mut self) -> Result<Listing<L::Object>, SourceError> {
        let listed = self.source.list().await;
        report(&self.reporter, listed.as_ref().err());
        listed
    }

    async fn watch(
        &mut self,
        after: ResourceVersion,
    ) -> Result<ChangeStream<L::Object>, SourceError> {
        let opened = self.source.watch(after).await;
        report(&self.reporter, opened.as_ref().err());
        let reporter = self.reporter.clone();
        let changes = opened?.inspect(move |batch| {
            if let Err(error) = batch {
                report(&reporter, Some(error));
            }
        });
        Ok(Box::pin(changes))
    }
}

fn report(reporter: &StatusReporter, failed: Option<&SourceError>) {
    match failed {
        None => reporter.connected(),
        Some(SourceError::Unavailable { detail, .. }) => reporter.disconnected(detail),
        // The server responds, so this is not a disconnect; a list recovers.
        Some(error @ (SourceError::Expired { .. } | SourceError::Undecodable { .. })) => {
            reporter.refused(&error.to_string());
        }
    }
}
