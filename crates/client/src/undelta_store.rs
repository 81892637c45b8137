//! `UndeltaStore`: a Reflector's store for consumers that need the complete collection at each
//! change, such as a kubelet's [`PodConfig`](super::kubelet::PodConfig).

use std::fmt;
use std::sync::Arc;

use super::{KubeObject, Objects, key_of};
use watchet_api::ResourceVersion;
use watchet_reflector::{Change, ChangeBatch, ObjectMap, ReflectorStore, SourceError};

/// Stores a collection and pushes a snapshot of it at each change, in constant time. A slow
/// consumer delays the next change.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use watchet_client::{Objects, UndeltaStore};
///
/// let (send, mut pushed) = tokio::sync::mpsc::channel::<Objects<Pod>>(9);
/// let mut store = UndeltaStore::new(move |pods| {
///     let send = send.clone();
///     async move { send.send(pods).await.unwrap() }
/// });
/// let pod = Arc::new(Pod::default());
/// store.replace(vec![]).await;
/// store.add(pod.clone()).await;
/// store.delete(&pod).await;
/// let mut lengths = Vec::new();
/// while let Ok(pods) = pushed.try_recv() {
///     lengths.push(pods.len());
/// }
/// assert_eq!(lengths, [0, 1, 0]);
/// # }
/// ```
pub struct UndeltaStore<T, P> {
    objects: ObjectMap<T>,
    push: P,
}

impl<T, P, F> UndeltaStore<T, P>
where
    T: KubeObject,
    P: FnMut(Objects<T>) -> F,
    F: Future<Output = ()>,
{
    /// Creates an empty store; nothing is pushed before the first change.
    pub fn new(push: P) -> Self {
        Self {
            objects: ObjectMap::new(),
            push,
        }
    }

    /// Adds or replaces an object.
    pub async fn add(&mut self, object: Arc<T>) {
        self.objects.insert(key_of(&*object), object);
        self.push().await;
    }

    /// As [`Self::add`].
    pub async fn update(&mut self, object: Arc<T>) {
        self.add(object).await;
    }

    /// Deletes an object.
    pub async fn delete(&mut self, object: &T) {
        self.objects.remove(&key_of(object));
        self.push().await;
    }

    /// Replaces the content by these objects; pushes even if it is empty.
    pub async fn replace(&mut self, objects: Vec<Arc<T>>) {
        let objects = objects.into_iter();
        self.objects = objects.map(|object| (key_of(&*object), object)).collect();
        self.push().await;
    }

    /// Returns a snapshot of all objects, in key order.
    pub fn list(&self) -> Objects<T> {
        Objects::new(self.objects.clone())
    }

    async fn push(&mut self) {
        let all = self.list();
        (self.push)(all).await;
    }
}

impl<T, P, F> ReflectorStore for UndeltaStore<T, P>
where
    T: KubeObject,
    P: FnMut(Objects<T>) -> F + Send + 'static,
    F: Future<Output = ()> + Send,
{
    type Object = T;

    async fn replace(&mut self, objects: Vec<Arc<T>>, _at: ResourceVersion) {
        Self::replace(self, objects).await;
    }

    async fn watching(&mut self) {}

    async fn apply(&mut self, batch: ChangeBatch<T>) {
        for change in batch.changes {
            match change {
                Change::Added(object) | Change::Modified(object) => self.add(object).await,
                Change::Deleted(object) => self.delete(&object).await,
            }
        }
    }

    async fn failed(&mut self, error: &SourceError) {
        tracing::warn!(%error, "list or watch failed");
    }
}

impl<T, P> fmt::Debug for UndeltaStore<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UndeltaStore")
            .field("objects", &self.objects.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use parking_lot::Mutex;

    use super::super::PartialObjectMetadata as Meta;
    use super::*;

    fn object(name: &str, version: &str) -> Arc<Meta> {
        let mut object = Meta::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        Arc::new(object)
    }

    #[test]
    fn each_change_pushes_the_whole_list() {
        let pushed = Arc::new(Mutex::new(Vec::new()));
        let lists = pushed.clone();
        let mut store = UndeltaStore::new(move |objects: Objects<Meta>| {
            let versions = objects
                .iter()
                .filter_map(|o| o.metadata.resource_version.clone());
            lists.lock().push(versions.collect::<Vec<_>>().join(" "));
            std::future::ready(())
        });
        let at = ResourceVersion::new;
        let changes = vec![
            Change::Added(object("b", "3")),
            Change::Modified(object("a", "4")),
            Change::Deleted(object("b", "5")),
        ];
        let filling = async {
            ReflectorStore::replace(&mut store, vec![], at(1)).await;
            ReflectorStore::replace(&mut store, vec![object("a", "1")], at(2)).await;
            store.apply(ChangeBatch { changes, at: at(5) }).await;
            let bookmark = ChangeBatch {
                changes: vec![],
                at: at(6),
            };
            store.apply(bookmark).await;
        };
        filling.now_or_never().expect("nothing waits");
        assert_eq!(*pushed.lock(), ["", "1", "1 3", "4 3", "4"]);
        assert_eq!(store.list().len(), 1);
    }
}
