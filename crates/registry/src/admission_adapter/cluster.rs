//! Implements `Cluster` for the registry: gives admission plugins access to namespaces, objects and parameters of policies,
//! and converts, patches and mutates objects for webhooks and policies.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::attributes::{kind_of, resource_of};
use super::mutation;
use crate::error::ApiError;
use crate::location::ObjectLocation;
use crate::registry::Registry;
use crate::resource::Resource;
use crate::target::Target;
use crate::{conversion, json_patch, metadata, names, namespaces, read};
use watchet_admission::cluster::{
    Cluster, ClusterError, Equivalent, Freshness, GroupResource, Mapping, Mutation, MutationError,
    NamespaceState, ParamError, ParamQuery,
};
use watchet_admission::request::{AdmissionRequest, GroupVersionKind, GroupVersionResource};
use watchet_api::{GetOptions, ListOptions, Object, ResourceVersion, WriteOptions};
use watchet_auth::Authorizer;
use watchet_cacher::ReadError;

impl Registry {
    /// Returns a resource in its preferred version.
    fn preferred(&self, resource: GroupResource<'_>) -> Result<Arc<Resource>, ClusterError> {
        let GroupResource { group, resource } = resource;
        let found = self.preferred_resource(group, resource);
        found.ok_or_else(|| {
            ClusterError::Failed(format!("{resource:?} of group {group:?} is not served"))
        })
    }

    /// Returns an object as clients of `resource` see it.
    fn value_of(&self, resource: &Arc<Resource>, object: &Object) -> Result<Value, ApiError> {
        let body = object.body_slice();
        let converted = conversion::converted(resource, body)?;
        serde_json::from_slice(converted.as_deref().unwrap_or(body))
            .map_err(|error| ReadError::Undecodable(error.to_string()).into())
    }

    /// Returns the resourceVersion with which admission plugins list `resource`: 0, or none for a consistent list while the
    /// cache has not received an object that this server has created.
    fn list_version(&self, resource: &Resource, freshness: Freshness) -> Option<ResourceVersion> {
        let is_sufficient = freshness == Freshness::Cached && self.has_own_creates(resource);
        is_sufficient.then_some(ResourceVersion::ZERO)
    }

    /// Returns the served resource of a kind.
    pub(crate) fn resource_of_kind(&self, kind: &GroupVersionKind) -> Option<Arc<Resource>> {
        let is = |r: &&Arc<Resource>| {
            r.group == kind.group && r.version == kind.version && r.kind == kind.kind
        };
        self.resources().iter().find(is).cloned()
    }
}

#[async_trait]
impl Cluster for Registry {
    async fn namespace(&self, name: &str) -> Result<Option<Value>, ClusterError> {
        let location = ObjectLocation::new(&self.namespaces, None, name)?;
        if let Some(cached) = self.peek(&self.namespaces, &location.key) {
            let value = serde_json::from_slice(cached.body_slice());
            return value
                .map(Some)
                .map_err(|error| ClusterError::Failed(error.to_string()));
        }
        // The cache may not have received the object yet.
        match self.read_stored(&location).await {
            Ok(current) => Ok(Some(current.value)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn namespace_state(&self, name: &str) -> Result<NamespaceState, ClusterError> {
        Ok(namespaces::state(self, name).await?)
    }

    async fn object(
        &self,
        resource: GroupResource<'_>,
        namespace: &str,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Value>, ClusterError> {
        // Plugins run before validation, so that a pod can refer to a name that no object can have.
        if !names::path_segment_problems(name).is_empty() {
            return Ok(None);
        }
        let resource = self.preferred(resource)?;
        let target = Target {
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            name: name.to_owned(),
            subresource: None,
            resource,
        };
        let options = GetOptions {
            resource_version: match freshness {
                Freshness::Cached => Some(ResourceVersion::ZERO),
                Freshness::Latest => None,
            },
        };
        let found = match read::get(self, &target, options).await {
            Ok(object) => self.value_of(&target.resource, &object).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        };
        Ok(found?)
    }

    async fn objects(
        &self,
        resource: GroupResource<'_>,
        namespace: &str,
        freshness: Freshness,
    ) -> Result<Vec<Value>, ClusterError> {
        let resource = self.preferred(resource)?;
        let resource_version = self.list_version(&resource, freshness);
        // Avoids the list in the usual case of quotas and limit ranges, which most writes read: there are none. A cache
        // that is not initialized has no size, so it does not count as empty.
        let is_empty = || {
            self.cache_size(&resource)
                .is_some_and(|size| size.objects == 0)
        };
        if resource_version.is_some() && is_empty() {
            return Ok(Vec::new());
        }
        let options = ListOptions {
            resource_version,
            ..ListOptions::default()
        };
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let list = read::list(self, &resource, namespace, &options).await?;
        let objects = list.items.iter();
        let values = objects.map(|object| self.value_of(&resource, object));
        let values = values.collect::<Result<_, ApiError>>();
        Ok(values?)
    }

    fn mapping(&self, kind: &GroupVersionKind) -> Option<Mapping> {
        let resource = self.resource_of_kind(kind)?;
        Some(Mapping {
            resource: resource_of(&resource),
            is_namespaced: resource.namespaced,
        })
    }

    async fn replace_status(
        &self,
        resource: GroupResource<'_>,
        object: &Value,
    ) -> Result<bool, ClusterError> {
        let target = Target {
            resource: self.preferred(resource)?,
            namespace: Some(metadata::text(object, "namespace").to_owned()),
            name: metadata::text(object, "name").to_owned(),
            subresource: Some("status".to_owned()),
        };
        let options = WriteOptions::of_server();
        match self.update(&target, object.clone(), &options).await {
            Ok(_) => Ok(true),
            Err(ApiError::Conflict { .. }) => Ok(false),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn authorizer(&self) -> Arc<dyn Authorizer> {
        Registry::authorizer(self).clone()
    }

    fn equivalents(&self, resource: &GroupVersionResource) -> Vec<Equivalent> {
        let Some(own) = self.resource(&resource.group, &resource.version, &resource.resource)
        else {
            return Vec::new();
        };
        let others = self.resources();
        // Resources that are not stored share the empty prefix.
        let same = others.iter().filter(|r| {
            Arc::ptr_eq(r, &own) || r.is_stored() && r.storage_prefix == own.storage_prefix
        });
        same.map(|r| Equivalent {
            resource: resource_of(r),
            kind: kind_of(r),
        })
        .collect()
    }

    async fn convert(&self, object: Value, kind: &GroupVersionKind) -> Result<Value, String> {
        let own = GroupVersionKind::of(&object);
        let (from, to) = (self.resource_of_kind(&own), self.resource_of_kind(kind));
        match (from, to) {
            (Some(_), Some(to)) if to.strategy.converter().is_some() => {
                conversion::converted_to(&to, object)
                    .await
                    .map_err(|error| error.to_string())
            }
            (Some(from), Some(to)) => {
                let stored = conversion::to_storage(self.types(), &from, object);
                let mut shown = conversion::from_storage(&to, stored);
                shown["apiVersion"] = to.api_version().into();
                Ok(shown)
            }
            _ => Err(format!("cannot convert {own:?} to {kind:?}")),
        }
    }

    async fn patched(
        &self,
        write: &AdmissionRequest<'_>,
        kind: &GroupVersionKind,
        mut object: Value,
        patch: ::json_patch::Patch,
    ) -> Result<Value, String> {
        json_patch::apply(&mut object, &patch).map_err(|error| error.to_string())?;
        let is = GroupVersionKind::of(&object);
        if is != *kind {
            return Err(format!("the patch changes {kind:?} to {is:?}"));
        }
        let Some(resource) = self.resource_of_kind(kind) else {
            // The kind of a subresource has no defaults.
            return Ok(object);
        };
        metadata::check_shape(&resource, &mut object).map_err(|error| error.to_string())?;
        if let Some(kind) = self
            .kind_type(&resource)
            .filter(|_| resource.strategy.is_builtin())
        {
            let decoded = kind.conform(&object);
            if let Some(type_error) = decoded.type_error {
                return Err(type_error);
            }
            object = decoded.value;
        }
        let namespace = Some(write.namespace).filter(|_| resource.namespaced);
        metadata::check_namespace(namespace, &mut object).map_err(|error| error.to_string())?;
        resource.strategy.set_defaults(&resource, &mut object);
        Ok(object)
    }

    async fn mutated(
        &self,
        write: &AdmissionRequest<'_>,
        kind: &GroupVersionKind,
        object: &Value,
        mutation: Mutation,
    ) -> Result<Value, MutationError> {
        mutation::mutated(self, write, kind, object, mutation)
    }

    async fn params(
        &self,
        kind: &GroupVersionKind,
        binding_namespace: &str,
        write_namespace: &str,
        query: &ParamQuery,
    ) -> Result<Vec<Value>, ParamError> {
        let resource = self.resource_of_kind(kind);
        let resource = resource.ok_or_else(|| ParamError::NoSuchKind(kind.to_string()))?;
        let namespace = match (resource.namespaced, binding_namespace, write_namespace) {
            (true, "", "") => return Err(ParamError::NoNamespace),
            (true, "", namespace) | (true, namespace, _) => Some(namespace),
            (false, "", _) => None,
            (false, ..) => return Err(ParamError::NeedlessNamespace),
        };
        let unreadable = |error: ApiError| ParamError::Unreadable(error.to_string());
        let mut options = ListOptions::default();
        let objects = match query {
            ParamQuery::Name(name) => {
                let target = Target {
                    resource: resource.clone(),
                    namespace: namespace.map(str::to_owned),
                    name: name.clone(),
                    subresource: None,
                };
                match read::get(self, &target, Default::default()).await {
                    Ok(object) => vec![object],
                    Err(error) if error.is_not_found() => Vec::new(),
                    Err(error) => return Err(unreadable(error)),
                }
            }
            ParamQuery::Selector(selector) => {
                options.labels = selector.clone();
                let list = read::list(self, &resource, namespace, &options).await;
                list.map_err(unreadable)?.items
            }
        };
        let objects = objects.iter();
        let values = objects.map(|object| self.value_of(&resource, object));
        let values = values.collect::<Result<_, _>>();
        values.map_err(unreadable)
    }
}
