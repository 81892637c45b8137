//! Keys of objects in a store or queue: `<namespace>/<name>` or `<name>`, without the resource.

use super::KubeObject;
use watchet_api::ObjectKey;

/// A text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected key format: {0:?}")]
pub struct InvalidObjectKey(pub String);

/// Returns the key of an object: `<namespace>/<name>`, or `<name>` without a namespace.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchet_client::{key_of, split_key};
///
/// let mut pod = Pod::default();
/// pod.metadata.name = Some("web-0".into());
/// assert_eq!(key_of(&pod).as_str(), "web-0");
/// pod.metadata.namespace = Some("shop".into());
/// let key = key_of(&pod);
/// assert_eq!(key.as_str(), "shop/web-0");
/// assert_eq!(split_key(key.as_str()).unwrap(), (Some("shop"), "web-0"));
/// assert!(split_key("a/b/c").is_err());
/// ```
pub fn key_of<T: KubeObject>(object: &T) -> ObjectKey {
    let (namespace, name) = names(object);
    ObjectKey::new(namespace, name)
}

/// Splits a key into namespace and name.
///
/// # Errors
/// [`InvalidObjectKey`] if it contains more than one `/`.
pub fn split_key(key: &str) -> Result<(Option<&str>, &str), InvalidObjectKey> {
    match key.split_once('/') {
        None => Ok((None, key)),
        Some((_, name)) if name.contains('/') => Err(InvalidObjectKey(key.to_owned())),
        Some((namespace, name)) => Ok((Some(namespace), name)),
    }
}

/// Returns the namespace and name of an object. A missing name is empty, as in client-go.
pub(super) fn names<T: KubeObject>(object: &T) -> (Option<&str>, &str) {
    let metadata = object.metadata();
    let namespace = metadata.namespace.as_deref();
    let name = metadata.name.as_deref().unwrap_or_default();
    (namespace.filter(|namespace| !namespace.is_empty()), name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use proptest::prelude::*;

    use super::super::PartialObjectMetadata;
    use super::*;

    fn object(namespace: Option<&str>, name: &str) -> PartialObjectMetadata {
        PartialObjectMetadata {
            metadata: ObjectMeta {
                namespace: namespace.map(str::to_owned),
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..PartialObjectMetadata::default()
        }
    }

    #[test]
    fn an_empty_namespace_is_none() {
        assert_eq!(key_of(&object(Some(""), "node-1")).as_str(), "node-1");
        assert_eq!(key_of(&object(None, "node-1")).as_str(), "node-1");
        assert_eq!(key_of(&object(Some("ns"), "a")).as_str(), "ns/a");
    }

    #[test]
    fn key_with_two_slashes_is_rejected() {
        let error = split_key("a/b/c").unwrap_err();
        assert_eq!(error.to_string(), "unexpected key format: \"a/b/c\"");
        assert_eq!(split_key("a/b"), Ok((Some("a"), "b")));
        assert_eq!(split_key("a"), Ok((None, "a")));
    }

    proptest! {
        #[test]
        fn splitting_is_the_inverse(namespace in "[a-z0-9-]{0,9}", name in "[a-z0-9.-]{1,9}") {
            let key = key_of(&object(Some(&namespace), &name));
            let namespace = Some(&*namespace).filter(|namespace| !namespace.is_empty());
            prop_assert_eq!(split_key(key.as_str()), Ok((namespace, &*name)));
        }
    }
}
