//! The trait of in-process admission plugins.

use std::fmt;

use async_trait::async_trait;

use super::super::cluster::Cluster;
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Request};

/// An in-process admission plugin.
#[async_trait]
pub trait AdmissionPlugin: Send + Sync + fmt::Debug {
    /// Returns upstream's name of the plugin.
    fn name(&self) -> &'static str;

    /// Returns true if [`mutate`](Self::mutate) has to be called for such a request.
    fn mutates(&self, _request: Request<'_>) -> bool {
        false
    }

    /// Returns true if [`validate`](Self::validate) has to be called for such a request.
    fn validates(&self, _request: Request<'_>) -> bool {
        false
    }

    /// Changes the object of a request, or rejects the request.
    ///
    /// # Errors
    /// The plugin rejects the request, or cannot read what it needs.
    async fn mutate(
        &self,
        _cluster: &dyn Cluster,
        _attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        Ok(())
    }

    /// Rejects a request whose object must not be stored. The object is complete and valid.
    ///
    /// # Errors
    /// The plugin rejects the request, or cannot read what it needs.
    async fn validate(
        &self,
        _cluster: &dyn Cluster,
        _attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        Ok(())
    }
}
