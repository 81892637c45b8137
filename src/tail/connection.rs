//! The informer's source, which also says when the server is lost and when it is back. It changes
//! nothing of what it passes on.

use futures_util::StreamExt as _;

use super::output::Teller;
use crate::api::ResourceVersion;
use crate::reflector::{ChangeStream, ListerWatcher, Listing, SourceError};

/// A source that tells.
pub(super) struct Telling<L> {
    source: L,
    teller: Teller,
}

impl<L> Telling<L> {
    pub(super) fn new(source: L, teller: Teller) -> Self {
        Self { source, teller }
    }
}

impl<L: ListerWatcher> ListerWatcher for Telling<L> {
    type Object = L::Object;

    async fn list(&mut self) -> Result<Listing<L::Object>, SourceError> {
        let listed = self.source.list().await;
        tell(&self.teller, listed.as_ref().err());
        listed
    }

    async fn watch(
        &mut self,
        after: ResourceVersion,
    ) -> Result<ChangeStream<L::Object>, SourceError> {
        let opened = self.source.watch(after).await;
        tell(&self.teller, opened.as_ref().err());
        let teller = self.teller.clone();
        let changes = opened?.inspect(move |batch| {
            if let Err(error) = batch {
                tell(&teller, Some(error));
            }
        });
        Ok(Box::pin(changes))
    }
}

fn tell(teller: &Teller, failed: Option<&SourceError>) {
    match failed {
        None => teller.connected(),
        Some(SourceError::Unavailable { detail, .. }) => teller.disconnected(detail),
        // It answers; what happened meanwhile is found out by a list.
        Some(error @ (SourceError::Expired { .. } | SourceError::Undecodable { .. })) => {
            teller.tell(&format!("listing again: {error}"));
        }
    }
}
