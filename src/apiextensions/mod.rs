//! Custom resources: what a CustomResourceDefinition makes the server serve. Definitions are objects
//! like others; `follow` watches them in their own cache, so that it makes no difference which server
//! took them in, judges their names and puts what they define into the registry's table.
//!
//! # Definitions
//!
//! - *Definition*: a CustomResourceDefinition. Its *versions* are resources of the registry that share
//!   a storage prefix, `<group>/<plural>`, and with that a cache.
//! - *Storage version*: the one that new objects are stored in.
//!
//! # Invariants
//!
//! 1. What is served is made from definitions as storage has them: never from a request's body.
//! 2. Whoever reads from this server that a definition is established can use what it defines here; and who
//!    was answered that it is written finds what it says in force.
//! 3. A definition goes after its objects: one of that name that comes later finds none.
//! 4. What is written is decided by the definition that is served when it is stored (`writes`, which says how
//!    far that goes with several servers).

mod batches;
mod checks;
mod cleanup;
mod columns;
mod conditions;
mod converted;
mod definition;
mod follow;
mod json_path;
mod resources;
mod review;
mod schema;
mod strategy;
mod structural;
mod versions;
mod write_barrier;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::watch;

use self::columns::Printer;
use self::definition::Scale;
use self::schema::Schema;
use self::write_barrier::WriteBarrier;
use crate::api::ResourceVersion;
use crate::registry::ResourceProvider;
use crate::registry::{ApiError, Registry, Resource};
use crate::registry::{Change, Current, Decide, ObjectLocation};
use crate::registry::{Rules, Strategy};
use crate::schema::KindType;

pub(crate) use self::strategy::DefinitionStrategy;
use self::versions::Versions;

/// How long a server that starts waits for the definitions that storage has; as long as a cache that
/// fills itself may take.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// How long whoever wrote a definition waits for it to be served.
const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// What a custom resource is besides what every resource is.
#[derive(Debug)]
pub(crate) struct Custom {
    /// Its definition is being deleted: nothing new may come.
    pub(crate) terminating: bool,
    /// What to tell those who use a version that is going away.
    deprecation: Option<String>,
    /// Where its objects keep their scale, if the version has one.
    scale: Option<Scale>,
    /// Which of its definition's versions it is, counted from 1: they share a cache, and what is made of
    /// its events is kept by this.
    ordinal: u32,
    /// Whether clients can ask for it. One that is not served is known when objects are stored in it.
    pub(crate) served: bool,
    /// Whether objects are stored in it.
    pub(crate) stores: bool,
    pub(crate) printer: Printer,
    /// It and its siblings.
    pub(crate) versions: Arc<Versions>,
    /// Whether storage may have objects of another version.
    converts: bool,
    /// The type of its objects, by its schema.
    pub(crate) kind: KindType,
    /// Its `openAPIV3Schema`, null if it has none, as the documents of OpenAPI show it.
    schema: Arc<Value>,
    /// Its `apiVersion`.
    api_version: String,
    /// The compiled schema.
    structure: Arc<Schema>,
    /// The writes that were decided by this state of the definition.
    writes: WriteBarrier,
    rules: Rules,
    /// The strategy of the kinds of its subresources.
    body_strategy: Arc<dyn Strategy>,
}

/// What the registry knows of definitions as such.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// Every definition up to this version is served; none before those that storage had at the start are.
    served: watch::Sender<Option<ResourceVersion>>,
    cleanup: cleanup::Cleanup,
    /// What webhooks made of the objects of all of them.
    converted: Arc<converted::Pool>,
}

/// Serves the custom resources of a registry.
#[derive(Debug)]
pub(crate) struct CustomResources(pub(crate) Arc<Definitions>);

#[async_trait]
impl ResourceProvider for CustomResources {
    fn start(&self, registry: &Arc<Registry>) {
        let following = follow::follow(registry.clone(), self.0.clone());
        registry.tasks().spawn("custom-resources", following);
    }

    async fn wait_until_started(&self) -> Result<(), ApiError> {
        self.0.wait_until_served(ResourceVersion::ZERO).await
    }

    async fn wait_until_served(
        &self,
        registry: &Registry,
        version: ResourceVersion,
    ) -> Result<(), ApiError> {
        let changed = registry
            .changed_up_to(&follow::definitions(registry), version)
            .await?;
        // If etcd cannot report its progress, nothing newer than the cache is known.
        self.0.wait_until_served(changed.unwrap_or_default()).await
    }
}

impl Definitions {
    /// Waits until the definitions up to `version` are served.
    ///
    /// # Errors
    /// [`ApiError::Timeout`].
    async fn wait_until_served(&self, version: ResourceVersion) -> Result<(), ApiError> {
        let mut served = self.served.subscribe();
        let there = served.wait_for(|served| served.is_some_and(|served| served >= version));
        match tokio::time::timeout(SERVED_WITHIN, there).await {
            Ok(Ok(_)) => Ok(()),
            // `self` has the sender, so only time can run out.
            _ => Err(ApiError::Timeout(format!(
                "the custom resource definitions were not read within {SERVED_WITHIN:?}"
            ))),
        }
    }
}

/// A write of the server's own: what it makes of an object that is there.
struct Edit<'a, F> {
    location: &'a ObjectLocation,
    edit: F,
}

impl<F: FnMut(&Value) -> Change + Send> Decide for Edit<'_, F> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let current = current.ok_or_else(|| self.location.not_found())?;
        Ok((self.edit)(&current.value))
    }
}

/// Writes what `edit` returns for the object at `place`. Does nothing if the object does not exist.
async fn write_edited(
    registry: &Registry,
    location: &ObjectLocation,
    edit: impl FnMut(&Value) -> Change + Send,
) -> Result<(), ApiError> {
    let mut edit = Edit { location, edit };
    match registry.guaranteed_write(location, false, &mut edit).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
