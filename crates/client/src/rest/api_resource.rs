//! `ApiResource`: identifies a collection of the API and its path. Whether a server has it is known
//! by [`Discovery`](super::Discovery).

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope, Resource};

use super::path::Path;

/// A resource: its group, version and plural name, the kind of its objects, and whether they are
/// namespaced.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use watchet_client::ApiResource;
///
/// let deployments = ApiResource::of::<Deployment>();
/// assert_eq!(deployments.to_string(), "deployments.v1.apps");
/// assert_eq!(deployments, ApiResource::namespaced("apps", "v1", "deployments", "Deployment"));
/// assert_eq!(deployments.api_version(), "apps/v1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApiResource {
    /// `apps`; empty for the core group.
    pub group: String,
    /// `v1`
    pub version: String,
    /// The name in paths: `deployments`.
    pub plural: String,
    /// `Deployment`; empty if unknown, then the kind of objects is not checked.
    pub kind: String,
    /// Whether the objects are namespaced.
    pub namespaced: bool,
}

/// Whether the objects of a type are namespaced; implemented for the types of `k8s-openapi`.
pub trait ObjectScope {
    /// Whether they are namespaced.
    const NAMESPACED: bool;
}

impl ObjectScope for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl ObjectScope for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

impl ApiResource {
    /// Returns the resource of a type of `k8s-openapi`.
    pub fn of<K>() -> Self
    where
        K: Resource,
        K::Scope: ObjectScope,
    {
        Self {
            group: K::GROUP.to_owned(),
            version: K::VERSION.to_owned(),
            plural: K::URL_PATH_SEGMENT.to_owned(),
            kind: K::KIND.to_owned(),
            namespaced: K::Scope::NAMESPACED,
        }
    }

    /// Returns a namespaced resource.
    pub fn namespaced(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced: true,
        }
    }

    /// Returns a cluster-scoped resource.
    pub fn cluster(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self {
            namespaced: false,
            ..Self::namespaced(group, version, plural, kind)
        }
    }

    /// Returns group and version as in objects: `apps/v1`, `v1`.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns the escaped path of the collection, in one namespace or in all: `/api/v1/namespaces/a/pods`.
    pub fn url_path(&self, namespace: Option<&str>) -> String {
        self.path(namespace).as_str().to_owned()
    }

    /// Returns the path of the collection, in one namespace or in all.
    pub(crate) fn path(&self, namespace: Option<&str>) -> Path {
        let root = match self.group.as_str() {
            "" => Path::new("/api"),
            group => Path::new("/apis").segment(group),
        };
        let root = root.segment(&self.version);
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => root.segment("namespaces").segment(namespace),
            None => root,
        }
        .segment(&self.plural)
    }
}

impl std::fmt::Display for ApiResource {
    /// Formats the resource as kubectl does: `deployments.v1.apps`, `pods`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.plural),
            group => write!(f, "{}.{}.{group}", self.plural, self.version),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};

    use super::*;

    #[test]
    fn objects_are_where_upstream_has_them() {
        let pods = ApiResource::of::<Pod>();
        assert_eq!(pods.path(None).as_str(), "/api/v1/pods");
        assert_eq!(pods.path(Some("a")).as_str(), "/api/v1/namespaces/a/pods");
        let foos = ApiResource::namespaced("ex.io", "v1alpha1", "foos", "Foo");
        assert_eq!(
            foos.path(Some("a")).as_str(),
            "/apis/ex.io/v1alpha1/namespaces/a/foos"
        );
        let nodes = ApiResource::of::<Node>();
        assert_eq!(nodes.path(Some("a")).as_str(), "/api/v1/nodes");
        assert_eq!(
            (nodes.api_version().as_str(), nodes.to_string().as_str()),
            ("v1", "nodes")
        );
    }
}
