//! `RoleVersions`: a resourceVersion for each kind of roles and bindings.

use watchet_api::ResourceVersion;
use watchet_auth::rbac::RbacKind;

/// A resourceVersion for each kind of roles and bindings; zero at first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoleVersions([ResourceVersion; RbacKind::ALL.len()]);

impl RoleVersions {
    /// Raises the version of a kind; a lower version changes nothing.
    pub(super) fn raise(&mut self, kind: RbacKind, version: ResourceVersion) {
        let own = &mut self.0[kind as usize];
        *own = version.max(*own);
    }

    /// Returns true if the version of each kind is at least that in `other`.
    pub fn has_reached(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| own >= other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_must_be_reached() {
        let (mut one, mut other) = (RoleVersions::default(), RoleVersions::default());
        assert!(one.has_reached(&other));
        other.raise(RbacKind::Role, ResourceVersion::new(3));
        one.raise(RbacKind::ClusterRole, ResourceVersion::new(4));
        assert!(!one.has_reached(&other));
        one.raise(RbacKind::Role, ResourceVersion::new(3));
        one.raise(RbacKind::Role, ResourceVersion::new(2));
        assert!(one.has_reached(&other));
    }
}
