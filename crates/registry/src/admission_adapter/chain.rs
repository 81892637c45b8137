//! Runs the admission chain for a write: plugins, policies and webhooks.

use std::borrow::Cow;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::attributes::{AdmissionAttributes, client_request, plugin_request, write_options};
use crate::error::ApiError;
use crate::guaranteed_update::WRITE_DEADLINE;
use crate::registry::Registry;
use crate::stored_form::Current;
use crate::target::Target;
use crate::{conversion, metadata, scale};
use watchet_admission::Mutators;
use watchet_admission::plugins::Step;
use watchet_admission::request::Operation;
use watchet_api::{DeleteOptions, WriteOptions};
use watchet_schema::managed;

impl Registry {
    /// Returns `object` (null for a delete), which is in stored form, after the mutating plugins, policies and webhooks. If
    /// a policy or a webhook changes it, every plugin runs again, and the policies and webhooks with the reinvocation
    /// policy `IfNeeded`.
    ///
    /// # Errors
    /// The errors of admission.
    pub(crate) async fn mutated(
        &self,
        attributes: AdmissionAttributes<'_>,
        object: Value,
        old: Option<&Current>,
    ) -> Result<Value, ApiError> {
        let object = self.mutated_by_plugins(attributes, object, old).await?;
        let until = Instant::now() + WRITE_DEADLINE;
        let Some(mut mutators) = self.dynamic_admission.mutators(until).await? else {
            return Ok(object);
        };
        let object = self
            .mutated_by(&mut mutators, attributes, object, old)
            .await?;
        if !mutators.begin_second_round() {
            return Ok(object);
        }
        let object = self.mutated_by_plugins(attributes, object, old).await?;
        self.mutated_by(&mut mutators, attributes, object, old)
            .await
    }

    async fn mutated_by_plugins(
        &self,
        attributes: AdmissionAttributes<'_>,
        object: Value,
        old: Option<&Current>,
    ) -> Result<Value, ApiError> {
        if !self.plugins.mutates(attributes.request()) {
            return Ok(object);
        }
        let mut request = plugin_request(attributes, Cow::Owned(object), old);
        self.plugins.mutate(self, &mut request).await?;
        Ok(request.object.into_owned())
    }

    async fn mutated_by(
        &self,
        mutators: &mut Mutators<'_>,
        attributes: AdmissionAttributes<'_>,
        object: Value,
        old: Option<&Current>,
    ) -> Result<Value, ApiError> {
        let mut request = client_request(attributes, object.clone(), old)?;
        let before = request.object.clone();
        mutators.mutate(self, &mut request).await?;
        let changed = request.object.into_owned();
        if changed == *before {
            return Ok(object);
        }
        let target = attributes.target;
        if scale::is_of(target) {
            // The managed fields of the scale are already set, so changes by a webhook have no manager.
            return scale::applied(target, &object, &changed);
        }
        let mut changed = conversion::to_storage(self.types(), &target.resource, changed);
        if let Some(problem) = managed::decode_error(&changed) {
            let entries = object["metadata"]["managedFields"].clone();
            metadata::put_managed_fields(entries, &mut changed);
            attributes.warnings.add(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused \
                 by an outdated mutating admission controller; please fix your requests: {problem}"
            ));
        }
        Ok(changed)
    }

    /// Validates a write by the plugins, policies and webhooks.
    ///
    /// # Errors
    /// The errors of admission.
    pub(crate) async fn admit(
        &self,
        attributes: AdmissionAttributes<'_>,
        object: &Value,
        old: Option<&Current>,
    ) -> Result<(), ApiError> {
        self.admit_by_plugins(attributes, object, old, Step::BeforeWebhooks)
            .await?;
        if self.dynamic_admission.has_validators().await? {
            let request = client_request(attributes, object.clone(), old)?;
            let until = Instant::now() + WRITE_DEADLINE;
            self.dynamic_admission
                .validate(self, &request, until)
                .await?;
        }
        self.admit_by_plugins(attributes, object, old, Step::AfterWebhooks)
            .await
    }

    async fn admit_by_plugins(
        &self,
        attributes: AdmissionAttributes<'_>,
        object: &Value,
        old: Option<&Current>,
        step: Step,
    ) -> Result<(), ApiError> {
        if !self.plugins.validates(attributes.request(), step) {
            return Ok(());
        }
        let request = plugin_request(attributes, Cow::Borrowed(object), old);
        Ok(self.plugins.validate(self, &request, step).await?)
    }

    /// Returns the body of a POST to a subresource or of a review after mutating and validating admission.
    ///
    /// # Errors
    /// The errors of admission.
    pub async fn admitted_post(
        &self,
        target: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        let body = self.mutated_post(target, body, options).await?;
        self.admit_post(target, &body, options).await?;
        Ok(body)
    }

    /// Returns the body of a POST after mutating admission.
    ///
    /// # Errors
    /// The errors of admission.
    pub async fn mutated_post(
        &self,
        target: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        let options_object = || write_options("CreateOptions", options);
        let attributes = AdmissionAttributes::of_post(target, options, &options_object);
        self.mutated(attributes, body, None).await
    }

    /// Validates the body of a POST.
    ///
    /// # Errors
    /// The errors of admission.
    pub async fn admit_post(
        &self,
        target: &Target,
        body: &Value,
        options: &WriteOptions,
    ) -> Result<(), ApiError> {
        let options_object = || write_options("CreateOptions", options);
        let attributes = AdmissionAttributes::of_post(target, options, &options_object);
        self.admit(attributes, body, None).await
    }

    /// Runs admission for the deletion of `current`.
    ///
    /// # Errors
    /// The errors of admission.
    pub(crate) async fn admit_delete(
        &self,
        target: &Target,
        current: &Current,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let options_object = || {
            let mut object = serde_json::to_value(options).unwrap_or_default();
            if let Some(members) = object.as_object_mut() {
                // Options without a value are omitted.
                members.retain(|_, value| {
                    !value.is_null() && *value != Value::Bool(false) && *value != json!([])
                });
            }
            object["kind"] = "DeleteOptions".into();
            object["apiVersion"] = "meta.k8s.io/v1".into();
            object
        };
        let attributes = AdmissionAttributes {
            operation: Operation::Delete,
            target,
            user: &options.user,
            dry_run: !options.dry_run.is_empty(),
            warnings: &options.warnings,
            audit_annotations: &options.audit_annotations,
            options: &options_object,
        };
        self.mutated(attributes, Value::Null, Some(current)).await?;
        self.admit(attributes, &Value::Null, Some(current)).await
    }
}
