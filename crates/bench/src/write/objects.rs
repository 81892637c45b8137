//! The objects of `bench write`: their names and content, and what is known of each.

use bytes::Bytes;
use http::Method;
use tokio::sync::{Mutex, MutexGuard};

use crate::args::{Resource, WriteLoadArgs, WriteVerb};
use crate::client::{ClientError, Connection, query_value};
use crate::encoding::{Encoding, Wire};
use crate::mark::{MARK, Mark};
use crate::objects::{self, Spec};

/// The label that selects the objects of one namespace argument.
const LABEL: &str = "watchet-bench-write";

/// The names and content of the objects.
#[derive(Debug)]
pub(super) struct Objects {
    resource: Resource,
    namespace: String,
    /// The number of namespaces: more than one for deletecollection.
    pub namespaces: u32,
    /// The number of objects in each namespace.
    pub count: u32,
    size: usize,
    labels: [(String, String); 1],
    is_collection: bool,
    /// Whether creates and updates have bodies in protobuf.
    is_protobuf: bool,
}

impl Objects {
    pub(super) fn new(load: &WriteLoadArgs, accept: Encoding) -> Self {
        let is_collection = load.verb == WriteVerb::Deletecollection;
        Self {
            resource: load.resource,
            namespaces: if is_collection {
                load.requests.get()
            } else {
                1
            },
            count: load.objects.get(),
            size: load.size,
            labels: [(LABEL.to_owned(), load.namespace.clone())],
            namespace: load.namespace.clone(),
            is_collection,
            is_protobuf: accept == Encoding::Protobuf
                && matches!(load.verb, WriteVerb::Create | WriteVerb::Update),
        }
    }

    /// Returns the media type of [`Self::body`].
    pub(super) fn media_type(&self) -> &'static str {
        let wire = if self.is_protobuf {
            Wire::Protobuf
        } else {
            Wire::Json
        };
        wire.media_type()
    }

    fn namespace(&self, number: u32) -> String {
        match self.is_collection {
            true => format!("{}-{number}", self.namespace),
            false => self.namespace.clone(),
        }
    }

    /// Returns the path of the collection in namespace `number`.
    pub(super) fn collection(&self, number: u32) -> String {
        objects::collection(self.resource, Some(&self.namespace(number)))
    }

    /// Returns the path of an object in the first namespace.
    pub(super) fn path(&self, object: u32) -> String {
        format!("{}/{}", self.collection(0), name(object))
    }

    /// Returns the path that lists the objects of all namespaces of the run.
    pub(super) fn list_path(&self) -> String {
        let collection = match self.is_collection {
            true => objects::collection(self.resource, None),
            false => self.collection(0),
        };
        format!("{collection}?{}", self.selector())
    }

    /// Returns the path that deletes the objects in namespace `number`.
    pub(super) fn delete_path(&self, number: u32) -> String {
        let collection = self.collection(number);
        format!("{collection}?gracePeriodSeconds=0&{}", self.selector())
    }

    fn selector(&self) -> String {
        let [(key, value)] = &self.labels;
        format!("labelSelector={}", query_value(&format!("{key}={value}")))
    }

    /// Returns an object.
    pub(super) fn body(
        &self,
        namespace: u32,
        object: u32,
        mark: Option<Mark>,
        version: Option<u64>,
    ) -> Bytes {
        let mark = mark.map(|mark| mark.to_string());
        let spec = Spec {
            name: &name(object),
            namespace: &self.namespace(namespace),
            node: Some("bench-node"),
            labels: &self.labels,
            annotation: mark.as_deref().map(|mark| (MARK, mark)),
            version,
            size: self.size,
        };
        match self.is_protobuf {
            true => objects::render_protobuf(self.resource, &spec),
            false => objects::render(self.resource, &spec),
        }
    }

    /// Creates the namespaces, unless they exist, and deletes the objects of earlier runs.
    ///
    /// # Errors
    /// A request fails.
    pub(super) async fn prepare_namespaces(
        &self,
        connection: &mut Connection,
    ) -> Result<(), ClientError> {
        for number in 0..self.namespaces {
            objects::make_namespace(connection, &self.namespace(number)).await?;
        }
        self.clear(connection).await
    }

    /// Deletes the objects.
    ///
    /// # Errors
    /// A request fails.
    pub(super) async fn clear(&self, connection: &mut Connection) -> Result<(), ClientError> {
        for number in 0..self.namespaces {
            let path = self.delete_path(number);
            connection.send(Method::DELETE, &path, Bytes::new()).await?;
        }
        Ok(())
    }
}

fn name(object: u32) -> String {
    format!("bench-write-{object}")
}

/// The version and mark of the last acknowledged write, if there was one.
type LastWrite = Option<(u64, Mark)>;

/// What is known of each object.
#[derive(Debug)]
pub(super) struct ObjectStates(Vec<Mutex<LastWrite>>);

impl ObjectStates {
    pub(super) fn new(count: u32) -> Self {
        Self((0..count).map(|_| Mutex::new(None)).collect())
    }

    pub(super) fn len(&self) -> u32 {
        self.0.len() as u32
    }

    /// Waits until no other request changes the object.
    pub(super) async fn lock(&self, object: u32) -> MutexGuard<'_, LastWrite> {
        self.0[object as usize].lock().await
    }

    /// Returns the versions and marks of the objects that were written.
    pub(super) async fn written(&self) -> Vec<(u64, Option<Mark>)> {
        let mut written = Vec::new();
        for state in &self.0 {
            written.extend(
                state
                    .lock()
                    .await
                    .map(|(version, mark)| (version, Some(mark))),
            );
        }
        written
    }
}
