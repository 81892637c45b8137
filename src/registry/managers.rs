//! Managed fields in the pipeline of writes: who writes what here, by which types, and how an apply
//! becomes a write like others. The rules themselves are those of `managed`.

use std::borrow::Cow;

use serde_json::Value;

use super::subresources::scale;
use super::write::Current;
use super::writing::Writing;
use super::{ApiError, Registry, Resource, conversion, metadata, strategy};
use crate::api::StatusCause;
use crate::cacher::ReadError;
use crate::managed::{self, ApplyError, Scope, Versions, Writer};
use crate::schema::{KindType, TypeRef};

impl Writing<'_> {
    /// Writes into `object`, which is in stored form, who manages its fields once it has taken the place
    /// of `live`.
    pub(super) fn manage(&self, live: Option<&Value>, object: &mut Value) {
        let kinds = self.kinds([live, Some(object)]);
        let api_version = self.target.resource.api_version();
        let by = self.writer(&api_version);
        managed::update(live, object, &by, &&kinds);
        // They nest a few levels deeper than what they tell of. What is stored must be readable: of an
        // object that is as deep as one may be nobody knows who manages it.
        if metadata::check_depth(&object["metadata"], 1).is_err() {
            metadata::put_managed_fields(Value::Null, object);
        }
    }

    /// What `config` makes of the object, or the new object that it describes, in stored form.
    ///
    /// # Errors
    /// 400 when it cannot be applied to anything of this kind, or when who manages its fields cannot be
    /// stored; 409 when others manage what it changes.
    pub(super) fn apply(
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
        let kinds = self.kinds([live, None]);
        let api_version = resource.api_version();
        let by = self.writer(&api_version);
        let applied = managed::apply(live, &config, self.options.force, &by, &&kinds);
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
            Some(kind) if resource.custom.is_none() => kind.conform(&object).value,
            _ => object,
        };
        Ok(conversion::to_storage(
            self.registry.types(),
            resource,
            object,
        ))
    }

    fn writer<'w>(&'w self, api_version: &'w str) -> Writer<'w> {
        let resource = &self.target.resource;
        let subresource = self.target.subresource.as_deref();
        Writer {
            name: &self.options.field_manager,
            api_version,
            subresource,
            scope: match subresource {
                Some("status" | "approval") => {
                    Scope::Status(strategy::written_with_status(resource))
                }
                None if strategy::has_status(resource) => Scope::NoStatus,
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

/// The versions of a resource of which there are managed fields.
struct Kinds<'w> {
    registry: &'w Registry,
    resource: &'w Resource,
    kinds: Vec<(String, KindType)>,
}

impl Kinds<'_> {
    fn add(&mut self, api_version: &str) {
        if self.kinds.iter().any(|(known, _)| known == api_version) {
            return;
        }
        let resource = self.resource;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = match &resource.custom {
            None => KindType::builtin(self.registry.types(), api_version, &resource.kind),
            Some(_) if group != resource.group => None,
            Some(_) => {
                let served = self.registry.resource(group, version, &resource.plural);
                served.and_then(|served| self.registry.kind_type(&served))
            }
        };
        let kind = kind.map(|kind| (api_version.to_owned(), kind));
        self.kinds.extend(kind);
    }
}

impl<'k> Versions<'k> for &'k Kinds<'_> {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'k>> {
        let mut kinds = self.kinds.iter();
        let (_, kind) = kinds.find(|(known, _)| known == api_version)?;
        Some(kind.root())
    }

    /// Custom resources are written in the version of the request, and compared by the types of the others.
    fn convert<'o>(&self, object: &'o Value, api_version: &str) -> Cow<'o, Value> {
        match self.resource.custom {
            Some(_) => Cow::Borrowed(object),
            None => conversion::to_version(self.registry.types(), object, api_version),
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
