//! Tokens that a node requests: for its pods, and for the audiences that these use.

use std::sync::Arc;

use serde_json::Value;

use super::super::super::cluster::{ClusterError, GroupResource};
use super::super::super::error::AdmissionError;
use super::super::object::list;
use super::of_node::OfNode;
use watchet_auth::{Attributes, Decision};

/// The verb on an audience that permits a node to request tokens for it that no volume of the pod uses.
const REQUEST_AUDIENCE: &str = "request-serviceaccounts-token-audience";

/// The types of volumes that CSI drivers have replaced, and these drivers.
const MIGRATED_VOLUMES: &[(&str, &str)] = &[
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("portworxVolume", "pxd.portworx.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
];

/// Why the audiences of a volume are not known.
enum Unknown {
    /// An object that the volume refers to does not exist.
    Absent(String),
    Unreadable(ClusterError),
}

impl From<ClusterError> for Unknown {
    fn from(error: ClusterError) -> Self {
        Self::Unreadable(error)
    }
}

impl OfNode<'_> {
    /// A node may create tokens for its pods only.
    pub(super) async fn token(&self) -> Result<(), AdmissionError> {
        let bound = &self.request.object["spec"]["boundObjectRef"];
        let text = |member: &str| bound[member].as_str().unwrap_or_default();
        if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
            return self.refuse("node requested token not bound to a pod");
        }
        let uid = text("uid");
        if uid.is_empty() {
            return self.refuse("node requested token with a pod binding without a uid");
        }
        let pod = self.stored_pod(text("name")).await?;
        if pod["metadata"]["uid"] != uid {
            return self.refuse(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ));
        }
        if pod["spec"]["nodeName"] != self.node {
            return self
                .refuse("node requested token bound to a pod scheduled on a different node");
        }
        self.audience(&pod).await
    }

    /// A token has at most one audience, which a volume of its pod uses, or which an authorizer permits to the node (the
    /// feature ServiceAccountNodeAudienceRestriction of kube-apiserver).
    async fn audience(&self, pod: &Value) -> Result<(), AdmissionError> {
        let requested = list(&self.request.object["spec"]["audiences"]);
        let audience = match requested {
            [] => "",
            [audience] => audience.as_str().unwrap_or_default(),
            _ => return self.refuse("node may only request 0 or 1 audiences"),
        };
        let mut absent = Vec::new();
        for volume in list(&pod["spec"]["volumes"]) {
            match self.volume_uses(pod, volume, audience).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Unknown::Absent(why)) if absent.contains(&why) => {}
                Err(Unknown::Absent(why)) => absent.push(why),
                Err(Unknown::Unreadable(error)) => return Err(error.into()),
            }
        }
        match &*absent {
            [] => self.is_permitted(audience).await,
            [why] => self.refuse(format!("error validating audience {audience:?}: {why}")),
            several => self.refuse(format!(
                "error validating audience {audience:?}: [{}]",
                several.join(", ")
            )),
        }
    }

    async fn is_permitted(&self, audience: &str) -> Result<(), AdmissionError> {
        let user = self.request.user;
        let attributes = Attributes {
            user: Arc::new(user.clone()),
            verb: REQUEST_AUDIENCE.to_owned(),
            is_resource_request: true,
            api_version: "v1".to_owned(),
            resource: audience.to_owned(),
            namespace: self.request.namespace.to_owned(),
            name: self.request.name.to_owned(),
            ..Attributes::default()
        };
        let decision = self.cluster.authorizer().authorize(&attributes).await;
        match matches!(decision, Decision::Allow(_)) {
            true => Ok(()),
            false => self.refuse(format!(
                "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
                user.name
            )),
        }
    }

    /// Returns true if a volume uses tokens for the audience: as a projected volume, or by its CSI driver.
    async fn volume_uses(
        &self,
        pod: &Value,
        volume: &Value,
        audience: &str,
    ) -> Result<bool, Unknown> {
        let is_meant = |of: &Value| of["audience"].as_str().unwrap_or_default() == audience;
        let mut sources = list(&volume["projected"]["sources"]).iter();
        if sources.any(|source| {
            source["serviceAccountToken"].is_object() && is_meant(&source["serviceAccountToken"])
        }) {
            return Ok(true);
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let claim = match &volume["persistentVolumeClaim"]["claimName"] {
            _ if volume["ephemeral"]["volumeClaimTemplate"].is_object() => {
                let (pod, volume) = (text(&pod["metadata"]["name"]), text(&volume["name"]));
                Some(format!("{pod}-{volume}"))
            }
            Value::String(name) => Some(name.clone()),
            _ => None,
        };
        let driver = match claim {
            Some(claim) => self.driver_of_claim(&claim).await?,
            None => driver_of(volume),
        };
        let Some(driver) = driver else {
            return Ok(false);
        };
        const DRIVERS: GroupResource<'static> = GroupResource::new("storage.k8s.io", "csidrivers");
        let driver = self
            .existing(DRIVERS, "csidriver.storage.k8s.io", "", &driver)
            .await?;
        Ok(list(&driver["spec"]["tokenRequests"]).iter().any(is_meant))
    }

    /// Returns the CSI driver of the persistent volume that a claim is bound to.
    async fn driver_of_claim(&self, claim: &str) -> Result<Option<String>, Unknown> {
        const CLAIMS: GroupResource<'static> = GroupResource::new("", "persistentvolumeclaims");
        const VOLUMES: GroupResource<'static> = GroupResource::new("", "persistentvolumes");
        let namespace = self.request.namespace;
        let claim = self
            .existing(CLAIMS, "persistentvolumeclaim", namespace, claim)
            .await?;
        let volume = claim["spec"]["volumeName"].as_str().unwrap_or_default();
        let volume = self
            .existing(VOLUMES, "persistentvolume", "", volume)
            .await?;
        Ok(driver_of(&volume["spec"]))
    }

    async fn existing(
        &self,
        resource: GroupResource<'_>,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, Unknown> {
        let absent = || Unknown::Absent(format!("{kind} {name:?} not found"));
        if name.is_empty() {
            return Err(absent());
        }
        let found = self
            .cluster
            .object_or_latest(resource, namespace, name)
            .await?;
        found.ok_or_else(absent)
    }
}

/// Returns the CSI driver of a volume of a pod, or of the spec of a persistent volume.
fn driver_of(volume: &Value) -> Option<String> {
    if let Some(driver) = volume["csi"]["driver"].as_str() {
        return Some(driver.to_owned());
    }
    let mut migrated = MIGRATED_VOLUMES.iter();
    let found = migrated.find(|(member, _)| volume[*member].is_object());
    found.map(|(_, driver)| (*driver).to_owned())
}
