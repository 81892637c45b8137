//! Managed fields in the pipeline of writes: who writes what here, by which types, and how an apply
//! becomes a write like others. The rules themselves are those of `managed`.

use std::borrow::Cow;

use parking_lot::Mutex;
use serde_json::Value;

use super::conversion::ConversionError;
use super::guaranteed_update::Current;
use super::pipeline::Writing;
use super::scale;
use super::strategy::has_status;
use super::{ApiError, Registry, Resource, conversion, metadata};
use crate::api::StatusCause;
use crate::cacher::ReadError;
use crate::schema::managed::{self, ApplyError, Scope, Versions, WriteContext};
use crate::schema::{KindType, TypeRef};

impl Writing<'_> {
    /// Writes into `object`, which is in stored form, who manages its fields once it has taken the place
    /// of `live`.
    ///
    /// # Errors
    /// [`ApiError::NotServed`] when the definition changes while its webhook converts.
    pub(crate) async fn manage(
        &self,
        live: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        let mut kinds = self.kinds([live, Some(object)]);
        let api_version = self.target.resource.api_version();
        let by = self.writer(&api_version);
        if kinds.may_ask_a_webhook() {
            *object = loop {
                let mut managed = object.clone();
                managed::update(live, &mut managed, &by, &&kinds);
                if !kinds.convert_missing().await? {
                    break managed;
                }
            };
        } else {
            managed::update(live, object, &by, &&kinds);
        }
        // They nest a few levels deeper than what they tell of. What is stored must be readable: of an
        // object that is as deep as one may be nobody knows who manages it.
        if metadata::check_depth(&object["metadata"], 1).is_err() {
            metadata::put_managed_fields(Value::Null, object);
        }
        Ok(())
    }

    /// What `config` makes of the object, or the new object that it describes, in stored form.
    ///
    /// # Errors
    /// 400 when it cannot be applied to anything of this kind, or when who manages its fields cannot be
    /// stored; 409 when others manage what it changes; 500 when it cannot be converted to a version in which
    /// somebody manages fields.
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
        let by = self.writer(&api_version);
        let applied = loop {
            let applied = managed::apply(live, &config, self.options.force, &by, &&kinds);
            if !kinds.convert_missing().await? {
                break applied;
            }
        };
        if let (Err(ApplyError::Internal(_)), Some(error)) = (&applied, kinds.failed()) {
            return Err(error.into());
        }
        let mut object = applied.map_err(|error| match error {
            ApplyError::BadConfiguration(told) => ApiError::BadRequest(told),
            ApplyError::Conflicts(ref conflicts) => ApiError::ApplyConflict {
                causes: conflicts.iter().map(cause).collect(),
                message: error.to_string(),
            },
            ApplyError::Internal(detail) => ApiError::Read(ReadError::Undecodable(detail)),
        })?;
        if !object["metadata"].is_object() {
            object["metadata"] = Value::Object(serde_json::Map::new());
        }
        metadata::check_name(&self.target.name, &object)?;
        // An apply that is not known to be one could not be followed by another.
        metadata::check_depth(&object["metadata"], 1)?;
        let namespace = self.target.namespace.as_deref();
        metadata::check_namespace(namespace.filter(|_| resource.namespaced), &mut object)?;
        // A configuration can say null, or zero, where the object then says nothing.
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

    fn writer<'w>(&'w self, api_version: &'w str) -> WriteContext<'w> {
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
                None | Some("finalize") if has_status(resource) => Scope::NoStatus,
                _ => Scope::All,
            },
            now: metadata::now(),
        }
    }

    /// The types of all versions that these objects have entries of, and of the one that is written.
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

/// The versions of a resource of which there are managed fields, and the object in those that a webhook
/// converts it to. The rules of managed fields do not wait for a webhook: they fail on the first conversion that
/// is not there and begin again once it is.
struct Kinds<'w> {
    registry: &'w Registry,
    resource: &'w Resource,
    kinds: Vec<(String, KindType)>,
    converted: Vec<Conversion>,
    /// What to convert before the next attempt: the `apiVersion` and the objects.
    missing: Mutex<Option<(String, Vec<Value>)>>,
}

/// What a webhook made of an object.
struct Conversion {
    object: Value,
    api_version: String,
    result: Result<Value, ConversionError>,
}

impl Kinds<'_> {
    fn add(&mut self, api_version: &str) {
        if self.kinds.iter().any(|(known, _)| known == api_version) {
            return;
        }
        let resource = self.resource;
        let kind = match resource.strategy.converter() {
            None => KindType::builtin(self.registry.types(), api_version, &resource.kind),
            // Also of versions that are not served: a definition converts between all that it has.
            Some(converter) => converter.kind(api_version).cloned(),
        };
        let kind = kind.map(|kind| (api_version.to_owned(), kind));
        self.kinds.extend(kind);
    }

    /// Returns true if a webhook converts between versions in which somebody manages fields.
    fn may_ask_a_webhook(&self) -> bool {
        self.kinds.len() > 1 && conversion::webhook_converter(self.resource).is_some()
    }

    /// Has the webhook convert what the last attempt found missing. Returns false if that was nothing.
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

    /// Returns why the webhook has not converted an object, if it has failed.
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
            // The webhook has no use for them, as upstream.
            metadata::put_managed_fields(Value::Null, &mut object);
            let mut all = self.converted.iter();
            let is_it = |c: &&Conversion| c.api_version == api_version && c.object == object;
            match all.find(is_it) {
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
        let (_, kind) = kinds.find(|(known, _)| known == api_version)?;
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

fn cause(conflict: &managed::Conflict) -> StatusCause {
    StatusCause {
        reason: "FieldManagerConflict".to_owned(),
        message: conflict.to_string(),
        field: conflict.path.clone(),
    }
}

/// A configuration says of which kind it is.
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
