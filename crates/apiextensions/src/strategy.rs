//! The strategies of custom resources and of their definitions.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::batches::RequestedVersion;
use super::custom::Custom;
use super::definition::Definition;
use super::definitions::Definitions;
use super::v1beta1;
use super::{cleanup, definition, schema};
use watchet_api::{ColumnSet, EventType, Object, StatusCause, UserInfo};
use watchet_cacher::{ReadError, StoredTransform};
use watchet_registry::Causes;
use watchet_registry::ScalePaths;
use watchet_registry::table_columns::TableColumn;
use watchet_registry::{ApiError, Resource, Rules, SchemaValidator, Strategy, put};
use watchet_registry::{ConversionError, VersionConverter};
use watchet_schema::KindType;
use watchet_schema::openapi::SchemaText;
use watchet_tasks::Tasks;

/// The time limit for a write of a definition to wait until the server serves the definition.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(10);

/// The estimated memory in bytes that a definition may take: some 38,000 properties. It is less than for other objects,
/// because the schema is in memory once more while it is checked.
const DEFINITION_BYTES_MAX: usize = 30 << 20;

impl Custom {
    /// Returns the rules of all custom resources.
    pub(super) fn rules() -> Rules {
        Rules {
            has_generation: true,
            allows_unconditional_update: false,
            metadata_written_with_status: &[],
            allows_unqualified_finalizers: true,
            ..Rules::DEFAULT
        }
    }

    /// The strategy of a custom resource.
    pub(super) fn of(resource: &Resource) -> Option<Arc<Self>> {
        let strategy: Arc<dyn Any + Send + Sync> = resource.strategy.clone();
        strategy.downcast().ok()
    }
}

impl Strategy for Custom {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn is_builtin(&self) -> bool {
        false
    }

    fn is_served(&self) -> bool {
        self.served
    }

    fn check_creatable(&self) -> Result<(), ApiError> {
        match self.terminating {
            true => Err(ApiError::MethodNotAllowed(
                "create not allowed while custom resource definition is terminating".to_owned(),
            )),
            false => Ok(()),
        }
    }

    fn deprecation_warning(&self) -> Option<&str> {
        self.deprecation.as_deref()
    }

    fn kind_type(&self) -> Option<&KindType> {
        Some(&self.kind)
    }

    fn open_api_schema(&self) -> Option<&SchemaText> {
        Some(&self.schema)
    }

    fn version_number(&self) -> u32 {
        self.ordinal
    }

    fn table_columns(&self) -> &[TableColumn] {
        self.printer.columns()
    }

    fn table_cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        self.printer.cells(object, now)
    }

    fn body_strategy(&self) -> Option<Arc<dyn Strategy>> {
        Some(self.body_strategy.clone())
    }

    fn keeps_form(&self) -> bool {
        true
    }

    fn apply_schema(&self, object: &mut Value) -> Result<(), ApiError> {
        let filled = self.structure.fill_all(object);
        filled.map_err(|too_many| ApiError::TooLarge(too_many.to_string()))?;
        Ok(())
    }

    fn prepare_for_create(&self, resource: &Resource, _user: &UserInfo, object: &mut Value) {
        if resource.has_status() {
            put(object, "status", None);
        }
    }

    fn scale_paths(&self) -> ScalePaths {
        match &self.scale {
            Some(scale) => ScalePaths::custom(
                &scale.spec_replicas_path,
                &scale.status_replicas_path,
                scale.label_selector_path.as_deref().unwrap_or_default(),
            ),
            None => ScalePaths::default(),
        }
    }

    fn begin_write(&self) -> Result<Option<TaskTrackerToken>, ApiError> {
        self.writes.begin().map(Some)
    }

    fn converter(&self) -> Option<&dyn VersionConverter> {
        Some(self)
    }

    fn schema_validator(&self) -> Option<&dyn SchemaValidator> {
        Some(self)
    }
}

#[async_trait]
impl VersionConverter for Custom {
    fn uses_webhook(&self) -> bool {
        self.versions.uses_webhook()
    }

    fn may_differ_in_storage(&self) -> bool {
        self.converts
    }

    fn is_storage_version(&self) -> bool {
        self.stores
    }

    fn storage_version(&self) -> &str {
        self.versions.stored_as()
    }

    fn outdated(&self) -> &CancellationToken {
        self.versions.outdated()
    }

    fn kind(&self, api_version: &str) -> Option<&KindType> {
        self.versions.kind(api_version)
    }

    fn stored_transform(&self) -> Arc<dyn StoredTransform> {
        self.versions.clone()
    }

    fn complete(&self, object: &mut Value) {
        let _changed = self.versions.complete(object);
    }

    fn renamed(&self, object: Value, api_version: &str) -> Value {
        self.versions.renamed(object, api_version)
    }

    async fn convert(
        &self,
        objects: Vec<Value>,
        api_version: &str,
    ) -> Result<Vec<Value>, ConversionError> {
        self.versions.convert(objects, api_version).await
    }

    async fn convert_cached(
        &self,
        columns: &Arc<ColumnSet>,
        objects: Vec<(EventType, Arc<Object>)>,
    ) -> Result<Vec<Arc<Object>>, ConversionError> {
        let version = RequestedVersion {
            api_version: &self.api_version,
            ordinal: self.ordinal,
            columns,
        };
        self.versions.convert_cached(version, objects).await
    }
}

#[async_trait]
impl SchemaValidator for Custom {
    fn has_ratcheting(&self) -> bool {
        true
    }

    async fn validate(
        &self,
        tasks: &Tasks,
        old: Option<&Value>,
        object: &Value,
        causes: &mut Causes,
    ) -> Result<(), ApiError> {
        if !self.structure.has_rules() {
            schema::validate(&self.structure, object, old, causes);
            return Ok(());
        }
        let (structure, object, old) = (self.structure.clone(), object.clone(), old.cloned());
        validate_aside(tasks, causes, move |causes| {
            schema::validate(&structure, &object, old.as_ref(), causes);
        })
        .await
    }
}

/// Validates on another thread: rules may take the time of their whole budget, and a definition may have thousands of
/// rules to compile.
async fn validate_aside(
    tasks: &Tasks,
    causes: &mut Causes,
    validate: impl FnOnce(&mut Causes) + Send + 'static,
) -> Result<(), ApiError> {
    let validating = tasks.spawn_blocking("custom-resource-checks", move || {
        let mut causes = Causes::default();
        validate(&mut causes);
        causes
    });
    // The task panicked, which the group reports, or it was not started because the server stops.
    let found = validating.await.map_err(|_| ReadError::Stopped)?;
    found
        .into_vec()
        .into_iter()
        .for_each(|cause| causes.push(cause));
    Ok(())
}

/// How CustomResourceDefinitions differ from other built-in resources.
#[derive(Debug)]
pub struct DefinitionStrategy(pub Arc<Definitions>);

impl Strategy for DefinitionStrategy {
    fn upgrade_stored(&self, stored: &[u8]) -> Option<Vec<u8>> {
        v1beta1::upgrade_stored(stored)
    }

    fn keeps_form(&self) -> bool {
        true
    }

    fn object_bytes_max(&self) -> usize {
        DEFINITION_BYTES_MAX
    }

    fn apply_schema(&self, object: &mut Value) -> Result<(), ApiError> {
        definition::set_defaults(object);
        Ok(())
    }

    fn prepare_for_create(&self, _resource: &Resource, _user: &UserInfo, object: &mut Value) {
        definition::prepare_create(object);
    }

    fn prepare_for_update(
        &self,
        resource: &Resource,
        subresource: Option<&str>,
        stored: &Value,
        object: &mut Value,
    ) {
        resource.reset_unwritable(subresource, stored, object);
        if subresource.is_none() {
            definition::prepare_update(object);
        }
    }

    fn begin_deletion(&self, object: &mut Value) {
        cleanup::begin(object);
    }

    fn after_request<'a>(&'a self, written: &'a Object) -> Option<BoxFuture<'a, ()>> {
        Some(self.wait_until_served(written).boxed())
    }

    fn schema_validator(&self) -> Option<&dyn SchemaValidator> {
        Some(self)
    }
}

impl DefinitionStrategy {
    /// Waits until the server serves the definition as written, so that the client's next request can use it. Other
    /// servers apply the definition when their watches receive it.
    async fn wait_until_served(&self, written: &Object) {
        let at = written.resource_version();
        let mut served = self.0.served.subscribe();
        let is_served = served.wait_for(|served| served.is_some_and(|served| served >= at));
        if tokio::time::timeout(WRITE_WAIT_MAX, is_served)
            .await
            .is_err()
        {
            let name = written.key().name();
            tracing::warn!(name, %at, "a definition is not served yet as it was written");
        }
    }
}

#[async_trait]
impl SchemaValidator for DefinitionStrategy {
    fn has_ratcheting(&self) -> bool {
        false
    }

    async fn validate(
        &self,
        tasks: &Tasks,
        old: Option<&Value>,
        object: &Value,
        causes: &mut Causes,
    ) -> Result<(), ApiError> {
        let definition = match Definition::deserialize(object) {
            Ok(definition) => definition,
            Err(error) => {
                causes.push(StatusCause::invalid("spec", "", &error.to_string()));
                return Ok(());
            }
        };
        let old = old.and_then(|old| Definition::deserialize(old).ok());
        validate_aside(tasks, causes, move |causes| {
            definition.check(old.as_ref(), causes);
        })
        .await
    }
}
