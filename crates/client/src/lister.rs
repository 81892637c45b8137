//! `Lister`: reads from an informer's indexer by namespace, name and labels. It never sends a
//! request, so results can be slightly outdated.

use std::fmt;
use std::sync::Arc;

use super::{KubeObject, NAMESPACE_INDEX, ThreadSafeStore};
use watchet_api::{LabelSelector, ObjectKey};

/// Reads all objects of an informer. Clones share the indexer.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use watchet_api::LabelSelector;
/// use watchet_client::{Indexers, Lister, ThreadSafeStore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let indexer = Arc::new(ThreadSafeStore::new(Indexers::namespaced()));
/// let mut pod = Pod::default();
/// pod.metadata.namespace = Some("shop".to_owned());
/// pod.metadata.name = Some("web-0".to_owned());
/// pod.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
/// indexer.add(Arc::new(pod));
///
/// let pods = Lister::new("pods", indexer);
/// assert_eq!(pods.list(&"app=web".parse()?).len(), 1);
/// assert_eq!(pods.namespaced("bank").list(&LabelSelector::default()).len(), 0);
/// assert!(pods.namespaced("shop").get("web-0").is_ok());
/// let error = pods.namespaced("shop").get("web-1").unwrap_err();
/// assert_eq!(error.to_string(), "pods \"web-1\" not found");
/// # Ok(())
/// # }
/// ```
pub struct Lister<T> {
    resource: Arc<str>,
    indexer: Arc<ThreadSafeStore<T>>,
}

/// Reads the objects of one namespace; see [`Lister::namespaced`].
pub struct NamespaceLister<T> {
    all: Lister<T>,
    namespace: String,
}

/// The indexer has no such object. The server may have one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource} {name:?} not found")]
pub struct NotFound {
    /// The resource, with its group: `deployments.apps`.
    pub resource: Arc<str>,
    /// The requested name.
    pub name: String,
}

impl<T: KubeObject> Lister<T> {
    /// Creates a lister of `indexer` for `resource`, as in `deployments.apps`.
    pub fn new(resource: &str, indexer: Arc<ThreadSafeStore<T>>) -> Self {
        Self {
            resource: resource.into(),
            indexer,
        }
    }

    /// Returns the objects of all namespaces that `selector` matches, in key order.
    pub fn list(&self, selector: &LabelSelector) -> Vec<Arc<T>> {
        selected(&self.indexer.list(), selector)
    }

    /// Returns an object without a namespace.
    ///
    /// # Errors
    /// [`NotFound`]
    pub fn get(&self, name: &str) -> Result<Arc<T>, NotFound> {
        self.by_key(name, name)
    }

    /// Returns a lister of one namespace.
    pub fn namespaced(&self, namespace: &str) -> NamespaceLister<T> {
        NamespaceLister {
            all: self.clone(),
            namespace: namespace.to_owned(),
        }
    }

    fn by_key(&self, key: &str, name: &str) -> Result<Arc<T>, NotFound> {
        self.indexer.get_by_key(key).ok_or_else(|| NotFound {
            resource: self.resource.clone(),
            name: name.to_owned(),
        })
    }
}

impl<T: KubeObject> NamespaceLister<T> {
    /// Returns the objects that `selector` matches, in key order.
    pub fn list(&self, selector: &LabelSelector) -> Vec<Arc<T>> {
        match self.all.indexer.by_index(NAMESPACE_INDEX, &self.namespace) {
            Ok(objects) => selected(&objects, selector),
            // The store has no namespace index. An informer's has.
            Err(_unknown) => {
                let mut objects = self.all.list(selector);
                let namespace = Some(&*self.namespace);
                objects.retain(|object| object.metadata().namespace.as_deref() == namespace);
                objects
            }
        }
    }

    /// Returns the object with this name.
    ///
    /// # Errors
    /// [`NotFound`]
    pub fn get(&self, name: &str) -> Result<Arc<T>, NotFound> {
        let key = ObjectKey::new(Some(&self.namespace), name);
        self.all.by_key(key.as_str(), name)
    }
}

fn selected<'a, T: KubeObject>(
    objects: impl IntoIterator<Item = &'a Arc<T>>,
    selector: &LabelSelector,
) -> Vec<Arc<T>> {
    let is_selected = |object: &&Arc<T>| {
        let labels = object.metadata().labels.as_ref();
        selector.matches(|key| {
            labels
                .and_then(|labels| labels.get(key))
                .map(String::as_str)
        })
    };
    objects.into_iter().filter(is_selected).cloned().collect()
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Self {
        Self {
            resource: self.resource.clone(),
            indexer: self.indexer.clone(),
        }
    }
}

impl<T> Clone for NamespaceLister<T> {
    fn clone(&self) -> Self {
        Self {
            all: self.all.clone(),
            namespace: self.namespace.clone(),
        }
    }
}

impl<T> fmt::Debug for Lister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister")
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for NamespaceLister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceLister")
            .field("resource", &self.all.resource)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}
