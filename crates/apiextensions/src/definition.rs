//! The types of a stored CustomResourceDefinition. Absent and null members are empty. `checks` validates definitions.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use watchet_schema::openapi::SchemaText;

/// A definition.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Definition {
    pub(super) metadata: Metadata,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) spec: Spec,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) status: DefinitionStatus,
}

/// The members of the metadata that this crate uses.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) generation: i64,
    #[serde(default)]
    pub(super) deletion_timestamp: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) annotations: std::collections::BTreeMap<String, String>,
}

/// The specification.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) group: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) names: Names,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) scope: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) versions: Vec<Version>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) conversion: Conversion,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) preserve_unknown_fields: bool,
}

/// The names of the resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Names {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) plural: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) singular: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) list_kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) short_names: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) categories: Vec<String>,
}

/// One version of the resource.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Version {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) served: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) storage: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) deprecated: bool,
    #[serde(default)]
    pub(super) deprecation_warning: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) schema: VersionSchema,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) subresources: Subresources,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) additional_printer_columns: Vec<Column>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) selectable_fields: Vec<SelectableField>,
}

/// The schema of a version.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct VersionSchema {
    #[serde(default, rename = "openAPIV3Schema")]
    pub(super) open_api: Option<SchemaText>,
}

/// The subresources of a version.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct Subresources {
    #[serde(default)]
    pub(super) status: Option<Value>,
    #[serde(default)]
    pub(super) scale: Option<Scale>,
}

/// The JSONPaths of the fields that the subresource `scale` shows, such as `.spec.replicas`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Scale {
    /// The desired number of replicas.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) spec_replicas_path: String,
    /// The present number of replicas.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) status_replicas_path: String,
    /// The text of a label selector of the pods.
    #[serde(default)]
    pub(super) label_selector_path: Option<String>,
}

/// A column of Tables.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Column {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) r#type: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) format: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) description: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) priority: i32,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) json_path: String,
}

/// A field that field selectors can use.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SelectableField {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) json_path: String,
}

/// The conversion of objects between versions.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Conversion {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) strategy: String,
    #[serde(default)]
    pub(super) webhook: Option<ConversionWebhook>,
}

/// The conversion webhook.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversionWebhook {
    /// Its `WebhookClientConfig`.
    #[serde(default)]
    pub(super) client_config: Option<Value>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) conversion_review_versions: Vec<String>,
}

/// The status.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DefinitionStatus {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) accepted_names: Names,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) conditions: Vec<Condition>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) stored_versions: Vec<String>,
}

/// A condition.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Condition {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) r#type: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) status: String,
}

impl Definition {
    /// Reads a stored definition.
    ///
    /// # Errors
    /// A member has the wrong type.
    pub(super) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// Returns true if the definition is being deleted.
    pub(super) fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns true if this condition is true.
    pub(super) fn has(&self, condition: &str) -> bool {
        let mut all = self.status.conditions.iter();
        all.any(|c| c.r#type == condition && c.status == "True")
    }

    /// Returns the version that objects are stored in.
    pub(super) fn storage_version(&self) -> Option<&Version> {
        self.spec.versions.iter().find(|version| version.storage)
    }

    /// Returns the storage prefix of its objects.
    pub(super) fn storage_prefix(&self) -> String {
        format!("{}/{}", self.spec.group, self.spec.names.plural)
    }
}

/// Deserializes a member that may be null.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Sets the defaults of a definition.
pub(crate) fn set_defaults(object: &mut Value) {
    let names = &mut object["spec"]["names"];
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    let lacks = |value: &Value| value.as_str().is_none_or(str::is_empty);
    if names.is_object() && !kind.is_empty() {
        if lacks(&names["singular"]) {
            names["singular"] = kind.to_lowercase().into();
        }
        if lacks(&names["listKind"]) {
            names["listKind"] = format!("{kind}List").into();
        }
    }
    let spec = &mut object["spec"];
    if spec.is_object() && spec["conversion"].is_null() {
        spec["conversion"] = json!({"strategy": "None"});
    }
    let service = spec.pointer_mut("/conversion/webhook/clientConfig/service");
    if let Some(Value::Object(service)) = service {
        service.entry("port").or_insert(443.into());
    }
}

/// Sets the initial status of a new definition.
pub(crate) fn prepare_create(object: &mut Value) {
    object["status"] = json!({
        "acceptedNames": {"kind": "", "plural": ""},
        "conditions": [],
        "storedVersions": [],
    });
    prepare_update(object);
}

/// Sets the defaults, and adds the storage version to `status.storedVersions`.
pub(crate) fn prepare_update(object: &mut Value) {
    set_defaults(object);
    let versions = object["spec"]["versions"].as_array();
    let storage = versions
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true)
        .map(|version| version["name"].clone());
    if let (Some(storage), Some(stored)) = (
        storage,
        object
            .pointer_mut("/status/storedVersions")
            .and_then(Value::as_array_mut),
    ) && !stored.contains(&storage)
    {
        stored.push(storage);
    }
}
