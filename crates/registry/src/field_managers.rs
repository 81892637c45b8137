//! Managed fields in the write pipeline: the context and the types of a write, and the merge of an applied configuration.
//! `schema::managed` implements the rules.

use std::borrow::Cow;

use parking_lot::Mutex;
use serde_json::Value;

use super::error::ApiError;
use super::pipeline::Pipeline;
use super::registry::Registry;
use super::resource::Resource;
use super::stored_form::Current;
use super::version_converter::ConversionError;
use super::{conversion, metadata, scale};
use watchet_api::StatusCause;
use watchet_cacher::ReadError;
use watchet_schema::managed::{self, ApplyError, Scope, Versions, WriteContext};
use watchet_schema::{KindType, TypeRef};

/// The maximum number of members, outside of lists, of an object with managed fields. An object with more does not fit into
/// storage (1.5 MiB), since a member has at least six bytes, and its managed fields would take more memory than itself.
const MANAGED_MEMBERS_MAX: usize = 262_144;

impl Pipeline<'_> {
    /// Sets the managed fields of `object`, which is in stored form and replaces `live`. Omits them if there are too many.
    ///
    /// # Errors
    /// [`ApiError::NotServed`] when the definition changes while its webhook converts.
    pub(crate) async fn manage(
        &self,
        live: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        if members(object) > MANAGED_MEMBERS_MAX {
            metadata::put_managed_fields(Value::Null, object);
            return Ok(());
        }
        let mut kinds = self.kinds([live, Some(object)]);
        let api_version = self.target.resource.api_version();
        let context = self.write_context(&api_version);
        if kinds.may_call_webhook() {
            *object = loop {
                let mut managed = object.clone();
                managed::update(live, &mut managed, &context, &&kinds);
                if !kinds.convert_missing().await? {
                    break managed;
                }
            };
        } else {
            managed::update(live, object, &context, &&kinds);
        }
        // Managed fields have a few more levels of nesting than the object. If they would be too deep to be decoded
        // again, they are omitted.
        if metadata::check_depth(&object["metadata"], 1).is_err() {
            metadata::put_managed_fields(Value::Null, object);
        }
        Ok(())
    }

    /// Returns the present object with `config` applied, or a new object, in stored form.
    ///
    /// # Errors
    /// 400 if `config` is of another kind, or if its managed fields are too deep to be stored; 409 if other managers own
    /// fields that it changes; 500 if the object cannot be converted to a version in which fields are managed.
    pub(crate) async fn apply(
        &self,
        current: Option<&Current>,
        config: &Value,
    ) -> Result<Value, ApiError> {
        let resource = &self.target.resource;
        check_type(&self.target.of_bodies(), config)?;
        let live = current.map(|current| &current.value);
        let config = match (scale::is_of(self.target), live) {
            (true, Some(live)) => scale::configuration(self.target, live, config)?,
            _ => config.clone(),
        };
        let mut kinds = self.kinds([live, None]);
        let api_version = resource.api_version();
        let context = self.write_context(&api_version);
        let applied = loop {
            let applied = managed::apply(live, &config, self.options.force, &context, &&kinds);
            if !kinds.convert_missing().await? {
                break applied;
            }
        };
        if let (Err(ApplyError::Internal(_)), Some(error)) = (&applied, kinds.failed()) {
            return Err(error.into());
        }
        let mut object = applied.map_err(|error| match error {
            ApplyError::BadConfiguration(detail) => ApiError::BadRequest(detail),
            ApplyError::Conflicts(ref conflicts) => ApiError::ApplyConflict {
                causes: conflicts.iter().map(cause).collect(),
                message: error.to_string(),
            },
            ApplyError::Internal(detail) => ApiError::Read(ReadError::Undecodable(detail)),
        })?;
        if let Some(members) = object.as_object_mut() {
            metadata::check_metadata(members)?;
        }
        metadata::check_name(&self.target.name, &object)?;
        // Without managed fields the next apply could not remove the fields of this one.
        metadata::check_depth(&object["metadata"], 1)?;
        let namespace = self.target.namespace.as_deref();
        metadata::check_namespace(namespace.filter(|_| resource.namespaced), &mut object)?;
        // Nulls and zeros in a configuration are absent in a typed object.
        let object = match self.registry.kind_type(resource) {
            Some(kind) if resource.strategy.is_builtin() => kind.conform(&object).value,
            _ => object,
        };
        Ok(conversion::to_storage(
            self.registry.types(),
            resource,
            object,
        ))
    }

    fn write_context<'w>(&'w self, api_version: &'w str) -> WriteContext<'w> {
        let resource = &self.target.resource;
        let subresource = self.target.subresource.as_deref();
        WriteContext {
            name: &self.options.field_manager,
            api_version,
            subresource,
            scope: match subresource {
                Some("status" | "approval") => {
                    Scope::Status(resource.strategy.rules().metadata_written_with_status)
                }
                None | Some("finalize") if resource.has_status() => Scope::NoStatus,
                _ => Scope::All,
            },
            now: metadata::now(),
        }
    }

    /// Returns the types of all versions in the managed fields of these objects, and of the version that is written.
    fn kinds(&self, objects: [Option<&Value>; 2]) -> Kinds<'_> {
        let mut kinds = Kinds {
            registry: self.registry,
            resource: &self.target.resource,
            kinds: Vec::new(),
            converted: Vec::new(),
            missing: Mutex::default(),
        };
        kinds.add(&self.target.resource.api_version());
        for object in objects.into_iter().flatten() {
            let entries = object["metadata"]["managedFields"].as_array();
            for entry in entries.into_iter().flatten() {
                if let Some(version) = entry["apiVersion"].as_str() {
                    kinds.add(version);
                }
            }
        }
        kinds
    }
}

/// The versions that occur in managed fields, and the conversions of objects to them by a webhook. The rules of managed
/// fields do not wait for a webhook: they fail at the first missing conversion and are run again once it is available.
struct Kinds<'w> {
    registry: &'w Registry,
    resource: &'w Resource,
    kinds: Vec<(String, KindType)>,
    converted: Vec<Conversion>,
    /// What to convert before the next attempt: the `apiVersion` and the objects.
    missing: Mutex<Option<(String, Vec<Value>)>>,
}

/// The result of a conversion by a webhook.
struct Conversion {
    object: Value,
    api_version: String,
    result: Result<Value, ConversionError>,
}

impl Kinds<'_> {
    fn add(&mut self, api_version: &str) {
        if self.kinds.iter().any(|(version, _)| version == api_version) {
            return;
        }
        let resource = self.resource;
        let kind = match resource.strategy.converter() {
            None => KindType::builtin(self.registry.types(), api_version, &resource.kind),
            // Also of versions that are not served: a definition converts between all its versions.
            Some(converter) => converter.kind(api_version).cloned(),
        };
        let kind = kind.map(|kind| (api_version.to_owned(), kind));
        self.kinds.extend(kind);
    }

    /// Returns true if a webhook converts between versions in which fields are managed.
    fn may_call_webhook(&self) -> bool {
        self.kinds.len() > 1 && conversion::webhook_converter(self.resource).is_some()
    }

    /// Calls the webhook for the conversions that the last attempt missed. Returns false if it missed none.
    ///
    /// # Errors
    /// [`ApiError::NotServed`] when the definition changes meanwhile.
    async fn convert_missing(&mut self) -> Result<bool, ApiError> {
        let missing = self.missing.get_mut().take();
        let converter = self.resource.strategy.converter();
        let (Some((api_version, objects)), Some(converter)) = (missing, converter) else {
            return Ok(false);
        };
        let results = conversion::convert_all(converter, objects.clone(), &api_version).await?;
        let conversions = objects.into_iter().zip(results);
        self.converted
            .extend(conversions.map(|(object, result)| Conversion {
                object,
                api_version: api_version.clone(),
                result,
            }));
        Ok(true)
    }

    /// Returns the first error of the webhook.
    fn failed(&self) -> Option<ConversionError> {
        let mut all = self.converted.iter();
        all.find_map(|conversion| conversion.result.as_ref().err().cloned())
    }

    fn webhook_converted<'o>(
        &self,
        objects: &[&'o Value],
        api_version: &str,
    ) -> Result<Vec<Cow<'o, Value>>, String> {
        let mut converted = Vec::with_capacity(objects.len());
        let mut missing = Vec::new();
        for &object in objects {
            if object["apiVersion"] == api_version {
                converted.push(Cow::Borrowed(object));
                continue;
            }
            let mut object = object.clone();
            // As upstream, the webhook gets objects without managed fields.
            metadata::put_managed_fields(Value::Null, &mut object);
            let mut all = self.converted.iter();
            let is_same = |c: &&Conversion| c.api_version == api_version && c.object == object;
            match all.find(is_same) {
                Some(conversion) => match &conversion.result {
                    Ok(object) => converted.push(Cow::Owned(object.clone())),
                    Err(error) => return Err(error.to_string()),
                },
                None => missing.push(object),
            }
        }
        if missing.is_empty() {
            return Ok(converted);
        }
        *self.missing.lock() = Some((api_version.to_owned(), missing));
        Err(format!("not converted to {api_version} yet"))
    }
}

impl<'k> Versions<'k> for &'k Kinds<'_> {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'k>> {
        let mut kinds = self.kinds.iter();
        let (_, kind) = kinds.find(|(version, _)| version == api_version)?;
        Some(kind.root())
    }

    fn convert<'o>(
        &self,
        objects: &[&'o Value],
        api_version: &str,
    ) -> Result<Vec<Cow<'o, Value>>, String> {
        let of_each = |object: &&'o Value| -> Cow<'o, Value> {
            match self.resource.strategy.converter() {
                _ if object["apiVersion"] == api_version => Cow::Borrowed(object),
                Some(converter) => Cow::Owned(converter.renamed((*object).clone(), api_version)),
                None => {
                    let types = self.registry.types();
                    conversion::to_version(types, self.resource, object, api_version)
                }
            }
        };
        match conversion::webhook_converter(self.resource) {
            Some(_) => self.webhook_converted(objects, api_version),
            None => Ok(objects.iter().map(of_each).collect()),
        }
    }
}

/// Returns the number of members of an object and of the objects in it, outside of lists.
fn members(value: &Value) -> usize {
    let Value::Object(object) = value else {
        return 0;
    };
    object.len() + object.values().map(members).sum::<usize>()
}

fn cause(conflict: &managed::Conflict) -> StatusCause {
    StatusCause {
        reason: "FieldManagerConflict".to_owned(),
        message: conflict.to_string(),
        field: conflict.path.clone(),
    }
}

/// Checks that the configuration has the `apiVersion` and the kind of the resource.
fn check_type(resource: &Resource, config: &Value) -> Result<(), ApiError> {
    let text = |member: &str| config[member].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version == resource.api_version() && kind == resource.kind {
        return Ok(());
    }
    let slash = if api_version.contains('/') { "" } else { "/" };
    Err(ApiError::BadRequest(format!(
        "invalid object type: {slash}{api_version}, Kind={kind}"
    )))
}
