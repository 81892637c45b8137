//! OwnerReferencesPermissionEnforcement: a change of an object's owners requires permission to delete the object, and
//! an owner reference that blocks the owner's deletion requires permission to set finalizers on the owner.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::super::cluster::Cluster;
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, GroupVersionKind, Operation, Request};
use super::plugin::AdmissionPlugin;
use watchet_api::UserInfo;
use watchet_auth::{Attributes, Authorizer};

/// The OwnerReferencesPermissionEnforcement admission plugin; see the module.
#[derive(Debug)]
pub(super) struct OwnerReferencesPermissionEnforcement;

#[async_trait]
impl AdmissionPlugin for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    /// A write to a pod's status does not change its owners.
    fn validates(&self, request: Request<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update)
            && !request.is_of_subresource("", "pods", "status")
    }

    async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let (old, new) = (owners(&attributes.old_object), owners(&attributes.object));
        if old == new {
            return Ok(());
        }
        let authorizer = cluster.authorizer();
        if attributes.operation == Operation::Update {
            let delete = Attributes {
                user: Arc::new(attributes.user.clone()),
                verb: "delete".to_owned(),
                is_resource_request: true,
                api_group: attributes.resource.group.clone(),
                api_version: attributes.resource.version.clone(),
                resource: attributes.resource.resource.clone(),
                subresource: attributes.subresource.to_owned(),
                namespace: attributes.namespace.to_owned(),
                name: attributes.name.to_owned(),
                ..Attributes::default()
            };
            let decision = authorizer.authorize(&delete).await;
            if !decision.is_allowed() {
                let reason = decision.reason();
                return Err(attributes.forbidden(format!(
                    "cannot set an ownerRef on a resource you can't delete: {reason}, <nil>"
                )));
            }
        }
        let blocking: Vec<&Value> = new
            .iter()
            .filter(|owner| newly_blocks(owner, old))
            .collect();
        if blocking.is_empty() {
            return Ok(());
        }
        let any = update_finalizers(attributes.user, "*", "*", "", "*");
        if authorizer.authorize(&any).await.is_allowed() {
            return Ok(());
        }
        for owner in blocking {
            check_owner(cluster, &*authorizer, attributes, owner).await?;
        }
        Ok(())
    }
}

fn owners(object: &Value) -> &[Value] {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.map_or(&[], Vec::as_slice)
}

/// Returns true if `owner` blocks the deletion of an owner that the `old` references do not block.
fn newly_blocks(owner: &Value, old: &[Value]) -> bool {
    let blocks = |owner: &Value| owner["blockOwnerDeletion"] == true;
    let same = old.iter().find(|other| other["uid"] == owner["uid"]);
    blocks(owner) && !same.is_some_and(blocks)
}

fn update_finalizers(
    user: &UserInfo,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Attributes {
    Attributes {
        user: Arc::new(user.clone()),
        verb: "update".to_owned(),
        is_resource_request: true,
        api_group: group.to_owned(),
        api_version: "*".to_owned(),
        resource: resource.to_owned(),
        subresource: "finalizers".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    }
}

/// Rejects an owner whose finalizers the user may not set.
async fn check_owner(
    cluster: &dyn Cluster,
    authorizer: &dyn Authorizer,
    attributes: &AdmissionRequest<'_>,
    owner: &Value,
) -> Result<(), AdmissionError> {
    let kind = GroupVersionKind::of(owner);
    let Some(mapping) = cluster.mapping(&kind) else {
        let api_version = owner["apiVersion"].as_str().unwrap_or_default();
        let GroupVersionKind { kind, .. } = kind;
        return Err(attributes.forbidden(format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion \
             {api_version} Kind {kind}: no matches for kind {kind:?} in version {api_version:?}"
        )));
    };
    let namespace = match mapping.is_namespaced {
        true => attributes.namespace,
        false => "",
    };
    let resource = mapping.resource;
    let name = owner["name"].as_str().unwrap_or_default();
    let (group, resource) = (&resource.group, &resource.resource);
    let update = update_finalizers(attributes.user, group, resource, namespace, name);
    let decision = authorizer.authorize(&update).await;
    match decision.is_allowed() {
        true => Ok(()),
        false => Err(attributes.forbidden(format!(
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set \
             finalizers on: {}, <nil>",
            decision.reason()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{FakeCluster, attributes, refusal};
    use super::*;

    fn pod(owners: Value) -> Value {
        json!({"metadata": {"name": "p", "namespace": "n", "ownerReferences": owners}})
    }

    fn owner(kind: &str, blocks: bool) -> Value {
        json!([{
            "apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "blockOwnerDeletion": blocks,
        }])
    }

    async fn check(
        operation: Operation,
        allowed: fn(&Attributes) -> bool,
        (old, new): (Value, Value),
        expected: Option<&str>,
    ) {
        let cluster = FakeCluster {
            allowed,
            ..FakeCluster::default()
        };
        let old = match operation {
            Operation::Create => Value::Null,
            _ => pod(old),
        };
        let new = pod(new);
        let write = attributes(operation, ("", "pods"), &new, &old);
        let plugin = &OwnerReferencesPermissionEnforcement;
        let result = cluster.validate(plugin, write).await;
        match expected {
            None => result.unwrap(),
            Some(why) => assert_eq!(refusal(result), format!("pods \"p\" is forbidden: {why}")),
        }
    }

    #[tokio::test]
    async fn change_of_owners_requires_delete() {
        use Operation::{Create, Update};
        let change = || (json!([]), owner("ConfigMap", false));
        let why = "cannot set an ownerRef on a resource you can't delete: , <nil>";
        check(Update, |_| false, change(), Some(why)).await;
        check(Create, |_| false, change(), None).await;
        check(
            Update,
            |attributes| attributes.verb == "delete",
            change(),
            None,
        )
        .await;
        let same = (owner("ConfigMap", true), owner("ConfigMap", true));
        check(Update, |_| false, same, None).await;
    }

    #[tokio::test]
    async fn block_owner_deletion_requires_update_of_finalizers() {
        use Operation::{Create, Update};
        let newly_blocking = || (owner("ConfigMap", false), owner("ConfigMap", true));
        let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set \
                   finalizers on: , <nil>";
        check(Create, |_| false, newly_blocking(), Some(why)).await;
        check(
            Update,
            |attributes| attributes.verb == "delete",
            newly_blocking(),
            Some(why),
        )
        .await;
        let of_owner: fn(&Attributes) -> bool = |attributes| {
            let place = (
                &*attributes.resource,
                &*attributes.namespace,
                &*attributes.name,
            );
            attributes.verb == "delete" || place == ("configmaps", "n", "o")
        };
        check(Update, of_owner, newly_blocking(), None).await;
        check(
            Create,
            |attributes| attributes.resource == "*",
            newly_blocking(),
            None,
        )
        .await;
        let unknown = (json!([]), owner("Thing", true));
        let why = "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for \
                   APIVersion v1 Kind Thing: no matches for kind \"Thing\" in version \"v1\"";
        check(Create, |_| false, unknown, Some(why)).await;
    }
}
