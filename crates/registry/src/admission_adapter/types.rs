//! The served resources and the types of their kinds, for the type check of policies.

use super::attributes::{kind_of, resource_of};
use crate::registry::Registry;
use watchet_admission::request::{GroupVersionKind, GroupVersionResource};
use watchet_admission::types::Kinds;
use watchet_schema::KindType;

impl Kinds for Registry {
    fn resources(&self) -> Vec<GroupVersionResource> {
        let all = Self::resources(self);
        all.iter().map(|resource| resource_of(resource)).collect()
    }

    fn of_resource(&self, resource: &GroupVersionResource) -> Option<(GroupVersionKind, KindType)> {
        let found = self.resource(&resource.group, &resource.version, &resource.resource)?;
        Some((kind_of(&found), self.kind_type(&found)?))
    }

    fn of_kind(&self, kind: &GroupVersionKind) -> Option<KindType> {
        self.kind_type(&*self.resource_of_kind(kind)?)
    }
}
