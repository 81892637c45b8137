//! The table of served resources, as one immutable snapshot. Requests read it without a lock. It is replaced as a whole
//! when resources that are defined at run time are added, changed or removed.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::ApiError;
use super::resource::Resource;
use super::version_converter::VersionConverter;
use watchet_api::ColumnSet;

/// The resources that are served at one time.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The resources in discovery order: groups together, the preferred version of a group first.
    all: Vec<Arc<Resource>>,
    by_plural: HashMap<String, Vec<Arc<Resource>>>,
    /// The owners of the caches, by storage prefix.
    owners: HashMap<String, Owner>,
}

/// The resource that owns the cache of a storage prefix.
#[derive(Debug)]
struct Owner {
    /// The version that objects are stored in, or the first version.
    resource: Arc<Resource>,
    /// The columns of the resources with this prefix that have the same fields, under their own labels.
    columns: Vec<Arc<ColumnSet>>,
}

/// Returns true if both have the same fields. Their labels may differ: each version of a custom resource has its own.
pub(crate) fn has_same_fields(one: &Arc<ColumnSet>, other: &Arc<ColumnSet>) -> bool {
    if Arc::ptr_eq(one, other) {
        return true;
    }
    let (one, other) = (one.fields().iter(), other.fields().iter());
    one.map(|field| (&field.path, &field.default))
        .eq(other.map(|field| (&field.path, &field.default)))
}

impl Table {
    /// Returns the table of `builtins` and then `custom`. If two resources have the same name, the table serves only
    /// the first one. A resource that is not served can be found by its storage prefix only.
    pub(crate) fn new(builtins: &[Arc<Resource>], custom: Vec<Arc<Resource>>) -> Self {
        let mut table = Self::default();
        for resource in builtins.iter().cloned().chain(custom) {
            let strategy = &resource.strategy;
            if strategy
                .converter()
                .is_some_and(VersionConverter::is_storage_version)
            {
                table.set_owner(&resource);
            }
            if !strategy.is_served() {
                continue;
            }
            let same_plural = table.by_plural.entry(resource.plural.clone()).or_default();
            let same = |other: &Arc<Resource>| is(other, &resource.group, &resource.version);
            if same_plural.iter().any(same) {
                continue;
            }
            same_plural.push(resource.clone());
            if resource.is_stored() && !table.owners.contains_key(&resource.storage_prefix) {
                table.set_owner(&resource);
            }
            table.all.push(resource);
        }
        for resource in &table.all {
            if let Some(owner) = table.owners.get_mut(&resource.storage_prefix)
                && has_same_fields(&resource.columns, &owner.resource.columns)
            {
                owner.columns.push(resource.columns.clone());
            }
        }
        table
    }

    fn set_owner(&mut self, resource: &Arc<Resource>) {
        let owner = Owner {
            resource: resource.clone(),
            columns: Vec::new(),
        };
        self.owners.insert(resource.storage_prefix.clone(), owner);
    }

    /// Returns every served resource, in the order of discovery.
    pub(crate) fn all(&self) -> &[Arc<Resource>] {
        &self.all
    }

    /// Returns the resource of this group (empty for core), version and plural name.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let mut same_plural = self.by_plural.get(plural)?.iter();
        same_plural.find(|resource| is(resource, group, version))
    }

    /// Returns the resource of this group and plural name, in the group's preferred version.
    pub(crate) fn preferred(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        let mut same_plural = self.by_plural.get(plural)?.iter();
        same_plural.find(|resource| resource.group == group)
    }

    /// Returns the resource that owns the cache of a storage prefix, and whose name, columns and metrics the cache
    /// uses.
    pub(crate) fn owner(&self, storage_prefix: &str) -> Option<&Arc<Resource>> {
        let owner = self.owners.get(storage_prefix)?;
        Some(&owner.resource)
    }

    /// Returns the resource that owns the cache of `resource`.
    ///
    /// # Errors
    /// [`ApiError::NotServed`] if the definition of `resource` was removed or has other selectable fields now.
    pub(crate) fn cache_owner(&self, resource: &Resource) -> Result<&Arc<Resource>, ApiError> {
        let owner = self.owners.get(&resource.storage_prefix);
        let owner = owner.ok_or(ApiError::NotServed)?;
        // Selectors refer to the columns of their resource by number.
        let mut columns = owner.columns.iter();
        let has_columns_of_cache = resource.is_builtin()
            || columns.any(|columns| Arc::ptr_eq(columns, &resource.columns))
            || has_same_fields(&resource.columns, &owner.resource.columns);
        match has_columns_of_cache {
            true => Ok(&owner.resource),
            false => Err(ApiError::NotServed),
        }
    }
}

fn is(resource: &Resource, group: &str, version: &str) -> bool {
    resource.group == group && resource.version == version
}
