//! The table of served resources, as one immutable snapshot: requests look things up in it without a
//! lock, and it is replaced as a whole when resources that are defined at run time are added, changed or removed.

use std::collections::HashMap;
use std::sync::Arc;

use super::Resource;
use super::conversion::VersionConverter;

/// What is served at one moment.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// In discovery's order: groups together, preferred version of a group first.
    all: Vec<Arc<Resource>>,
    by_plural: HashMap<String, Vec<Arc<Resource>>>,
    /// By storage prefix: of the resources that share one, the one that they are stored as, or the first.
    owners: HashMap<String, Arc<Resource>>,
}

impl Table {
    /// The table of `builtins` and then `custom`; of two by the same name the first is served. What is not
    /// to be served can only be found by where its objects are stored.
    pub(crate) fn new(builtins: &[Arc<Resource>], custom: Vec<Arc<Resource>>) -> Self {
        let mut table = Self::default();
        for resource in builtins.iter().cloned().chain(custom) {
            let strategy = &resource.strategy;
            if strategy
                .converter()
                .is_some_and(VersionConverter::is_storage_version)
            {
                let prefix = resource.storage_prefix.clone();
                table.owners.insert(prefix, resource.clone());
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
            let prefix = resource.storage_prefix.clone();
            if resource.is_stored() {
                table
                    .owners
                    .entry(prefix)
                    .or_insert_with(|| resource.clone());
            }
            table.all.push(resource);
        }
        table
    }

    /// Every resource, in discovery's order.
    pub(crate) fn all(&self) -> &[Arc<Resource>] {
        &self.all
    }

    /// The resource of this group (empty for core), version and plural name.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let mut same_plural = self.by_plural.get(plural)?.iter();
        same_plural.find(|resource| is(resource, group, version))
    }

    /// The resource of this group and plural name, in the group's preferred version.
    pub(crate) fn preferred(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        let mut same_plural = self.by_plural.get(plural)?.iter();
        same_plural.find(|resource| resource.group == group)
    }

    /// Of the resources that share a storage prefix the one that names their cache, its columns and
    /// their metrics.
    pub(crate) fn owner(&self, storage_prefix: &str) -> Option<&Arc<Resource>> {
        self.owners.get(storage_prefix)
    }
}

fn is(resource: &Resource, group: &str, version: &str) -> bool {
    resource.group == group && resource.version == version
}
