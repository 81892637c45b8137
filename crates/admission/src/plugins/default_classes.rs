//! DefaultStorageClass and DefaultIngressClass: a new claim or ingress that specifies no class gets the one whose
//! annotation marks it as the default.

use async_trait::async_trait;
use serde_json::Value;

use super::super::cluster::{Cluster, Freshness, GroupResource};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Request};
use super::object::name_of;
use super::plugin::AdmissionPlugin;

/// A plugin that sets the class of new objects.
#[derive(Debug)]
pub(super) struct DefaultClass {
    name: &'static str,
    /// The resource whose objects get a class.
    target: GroupResource<'static>,
    /// The field of their spec that has the name of the class.
    member: &'static str,
    /// The annotation that had the name of the class before the field existed.
    annotation: &'static str,
    classes: GroupResource<'static>,
    /// The annotations that mark a class as the default.
    marks: &'static [&'static str],
}

/// The plugin that sets the StorageClass of claims.
pub(super) const STORAGE: DefaultClass = DefaultClass {
    name: "DefaultStorageClass",
    target: GroupResource::new("", "persistentvolumeclaims"),
    member: "storageClassName",
    annotation: "volume.beta.kubernetes.io/storage-class",
    classes: GroupResource::new("storage.k8s.io", "storageclasses"),
    marks: &[
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ],
};

/// The plugin that sets the IngressClass of ingresses.
pub(super) const INGRESS: DefaultClass = DefaultClass {
    name: "DefaultIngressClass",
    target: GroupResource::new("networking.k8s.io", "ingresses"),
    member: "ingressClassName",
    annotation: "kubernetes.io/ingress.class",
    classes: GroupResource::new("networking.k8s.io", "ingressclasses"),
    marks: &["ingressclass.kubernetes.io/is-default-class"],
};

#[async_trait]
impl AdmissionPlugin for DefaultClass {
    fn name(&self) -> &'static str {
        self.name
    }

    fn mutates(&self, request: Request<'_>) -> bool {
        request.creates(self.target.group, self.target.resource)
    }

    async fn mutate(
        &self,
        cluster: &dyn Cluster,
        attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let object = &attributes.object;
        let annotations = &object["metadata"]["annotations"];
        // The empty name counts as specified: it requests no class.
        if annotations.get(self.annotation).is_some() || !object["spec"][self.member].is_null() {
            return Ok(());
        }
        let classes = cluster.objects(self.classes, "", Freshness::Cached).await;
        let classes = classes.map_err(|error| error.or_failed(|why| attributes.forbidden(why)))?;
        let spec = attributes.object.to_mut();
        let spec = spec.get_mut("spec").and_then(Value::as_object_mut);
        if let (Some(class), Some(spec)) = (self.default_of(&classes), spec) {
            spec.insert(self.member.to_owned(), name_of(class).into());
        }
        Ok(())
    }
}

impl DefaultClass {
    /// Returns the newest default class; of several equally new ones the first by name.
    fn default_of<'a>(&self, classes: &'a [Value]) -> Option<&'a Value> {
        let is_default = |class: &&Value| {
            let annotations = &class["metadata"]["annotations"];
            self.marks.iter().any(|mark| annotations[*mark] == "true")
        };
        let created = |class: &Value| {
            let created = class["metadata"]["creationTimestamp"].as_str();
            created.unwrap_or_default().to_owned()
        };
        classes.iter().filter(is_default).min_by(|one, other| {
            let newer = created(other).cmp(&created(one));
            newer.then_with(|| name_of(one).cmp(name_of(other)))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::FakeCluster;
    use super::*;

    fn class(name: &str, created: &str, mark: &str, value: &str) -> Value {
        json!({"metadata": {
            "name": name, "creationTimestamp": created, "annotations": {mark: value},
        }})
    }

    #[tokio::test]
    async fn the_newest_default_is_chosen() {
        let mark = STORAGE.marks[0];
        let old = "2026-01-01T00:00:00Z";
        let new = "2026-02-01T00:00:00Z";
        let mut cluster = FakeCluster::default();
        let claim = |spec: Value| json!({"metadata": {"name": "c"}, "spec": spec});
        let chosen = async |cluster: &FakeCluster, claim: Value| {
            let created = cluster
                .create(&STORAGE, "persistentvolumeclaims", claim)
                .await;
            created.unwrap()["spec"]["storageClassName"].clone()
        };
        assert_eq!(chosen(&cluster, claim(json!({}))).await, Value::Null);
        for class in [
            class("a", old, mark, "true"),
            class("c", new, STORAGE.marks[1], "true"),
            class("b", new, mark, "true"),
            class("0", new, mark, "false"),
        ] {
            cluster.add("storage.k8s.io", "storageclasses", class);
        }
        assert_eq!(chosen(&cluster, claim(json!({}))).await, "b");
        let none = claim(json!({"storageClassName": ""}));
        assert_eq!(chosen(&cluster, none).await, "");
        let mut annotated = claim(json!({}));
        annotated["metadata"]["annotations"] = json!({STORAGE.annotation: "x"});
        assert_eq!(chosen(&cluster, annotated).await, Value::Null);
    }

    #[tokio::test]
    async fn ingress_gets_the_default_class() {
        let mut cluster = FakeCluster::default();
        let class = class("nginx", "2026-01-01T00:00:00Z", INGRESS.marks[0], "true");
        cluster.add("networking.k8s.io", "ingressclasses", class);
        let ingress = json!({"metadata": {"name": "i"}, "spec": {}});
        let resource = ("networking.k8s.io", "ingresses");
        let created = cluster.create_of(&INGRESS, resource, ingress).await;
        assert_eq!(created.unwrap()["spec"]["ingressClassName"], "nginx");
    }
}
