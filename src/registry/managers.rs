//! Managed fields in the pipeline of writes: who writes what here, by which types, and how an apply
//! becomes a write like others. The rules themselves are those of `managed`.

use serde_json::Value;

use super::subresources::scale;
use super::write::Current;
use super::writing::Writing;
use super::{ApiError, Resource, conversion, metadata, strategy};
use crate::api::StatusCause;
use crate::cacher::ReadError;
use crate::managed::{self, ApplyError, Scope, Writer};
use crate::schema::{KindType, TypeRef};

impl Writing<'_> {
    /// Writes into `object`, which is in stored form, who manages its fields once it has taken the place
    /// of `live`.
    pub(super) fn manage(&self, live: Option<&Value>, object: &mut Value) {
        let kinds = self.kinds([live, Some(object)]);
        let api_version = self.api_version();
        let by = self.writer(&api_version);
        managed::update(live, object, &by, &types(&kinds));
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
            _ => conversion::to_storage(self.registry.types(), resource, config.clone()),
        };
        let kinds = self.kinds([live, None]);
        let api_version = self.api_version();
        let by = self.writer(&api_version);
        let applied = managed::apply(live, &config, self.options.force, &by, &types(&kinds));
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
        // A configuration can say null where the object then says nothing.
        Ok(match self.registry.kind_type(resource) {
            Some(kind) if resource.custom.is_none() && !conversion::is_converted(resource) => {
                kind.conform(&object).value
            }
            _ => object,
        })
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

    /// The version of which fields are managed: of built-ins that are stored in another form, the stored one's.
    fn api_version(&self) -> String {
        let resource = &self.target.resource;
        match conversion::is_converted(resource) {
            true => "v1".to_owned(),
            false => resource.api_version(),
        }
    }

    /// The types of all versions that these objects have entries of, and of the one that is written.
    fn kinds(&self, objects: [Option<&Value>; 2]) -> Vec<(String, KindType)> {
        let mut kinds = Vec::new();
        self.add_kind(&self.api_version(), &mut kinds);
        for object in objects.into_iter().flatten() {
            let entries = object["metadata"]["managedFields"].as_array();
            for entry in entries.into_iter().flatten() {
                if let Some(version) = entry["apiVersion"].as_str() {
                    self.add_kind(version, &mut kinds);
                }
            }
        }
        kinds
    }

    fn add_kind(&self, api_version: &str, kinds: &mut Vec<(String, KindType)>) {
        if kinds.iter().any(|(known, _)| known == api_version) {
            return;
        }
        let resource = &self.target.resource;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = match &resource.custom {
            None => KindType::builtin(self.registry.types(), api_version, &resource.kind),
            Some(_) if group != resource.group => None,
            Some(_) => {
                let served = self.registry.resource(group, version, &resource.plural);
                served.and_then(|served| self.registry.kind_type(&served))
            }
        };
        kinds.extend(kind.map(|kind| (api_version.to_owned(), kind)));
    }
}

/// The look-up of types that `managed` asks.
fn types<'k>(kinds: &'k [(String, KindType)]) -> impl Fn(&str) -> Option<TypeRef<'k>> + 'k {
    move |version| {
        let found = kinds.iter().find(|(known, _)| known == version);
        found.map(|(_, kind)| kind.root())
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
