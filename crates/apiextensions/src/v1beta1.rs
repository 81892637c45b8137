//! Definitions of `apiextensions.k8s.io/v1beta1`, the version in which kube-apiserver stores them, as JSON. It does not
//! serve this version; this server stores v1, which a kube-apiserver reads too.
//!
//! Upstream's conversion is `pkg/apis/apiextensions/v1beta1/conversion.go` and that of v1: v1beta1 has members of the spec
//! that v1 has in each version, if they are the same in all versions.

use memchr::memmem;
use serde_json::{Map, Value, json};

const V1: &str = "apiextensions.k8s.io/v1";
const V1BETA1: &str = "apiextensions.k8s.io/v1beta1";

/// The members that the spec has for all versions: their names in v1beta1, and in the versions of v1.
const OF_ALL_VERSIONS: [(&str, &str); 4] = [
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Returns a stored definition in v1, if it is one of v1beta1.
pub(crate) fn upgrade_stored(stored: &[u8]) -> Option<Vec<u8>> {
    // Few values have the text elsewhere.
    memmem::find(stored, V1BETA1.as_bytes())?;
    let mut definition: Value = serde_json::from_slice(stored).ok()?;
    if definition["apiVersion"] != V1BETA1 {
        return None;
    }
    definition["apiVersion"] = V1.into();
    if let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) {
        upgrade(spec);
    }
    Some(definition.to_string().into())
}

fn upgrade(spec: &mut Map<String, Value>) {
    let version = spec.remove("version");
    let has_versions =
        |spec: &Map<String, Value>| spec.get("versions").is_some_and(|all| *all != json!([]));
    if let (Some(name), false) = (version, has_versions(spec)) {
        let only = json!([{"name": name, "served": true, "storage": true}]);
        spec.insert("versions".to_owned(), only);
    }
    let shared = OF_ALL_VERSIONS.map(|(old, new)| (new, spec.remove(old)));
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
    for version in versions
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        for (name, value) in &shared {
            if let Some(value) = value.as_ref().filter(|value| !value.is_null()) {
                version.entry(*name).or_insert_with(|| value.clone());
            }
        }
        let columns = version.get_mut("additionalPrinterColumns");
        for column in columns.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(column) = column.as_object_mut()
                && let Some(path) = column.remove("JSONPath")
            {
                column.insert("jsonPath".to_owned(), path);
            }
        }
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        upgrade_conversion(conversion);
    }
    match spec.get("preserveUnknownFields") {
        Some(Value::Bool(false)) => {
            spec.remove("preserveUnknownFields");
        }
        // The default of v1beta1 is true, that of v1 false.
        None | Some(Value::Null) => {
            spec.insert("preserveUnknownFields".to_owned(), true.into());
        }
        Some(_) => {}
    }
}

/// v1 has the members of a webhook in an object of their own.
fn upgrade_conversion(conversion: &mut Map<String, Value>) {
    let client = conversion.remove("webhookClientConfig");
    let versions = conversion.remove("conversionReviewVersions");
    let given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    if !given(&client) && !given(&versions) {
        return;
    }
    let mut webhook = Map::new();
    for (name, value) in [
        ("clientConfig", client),
        ("conversionReviewVersions", versions),
    ] {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            webhook.insert(name.to_owned(), value);
        }
    }
    conversion.insert("webhook".to_owned(), webhook.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgraded(spec: Value) -> Value {
        let stored =
            json!({"kind": "CustomResourceDefinition", "apiVersion": V1BETA1, "spec": spec});
        let upgraded = upgrade_stored(stored.to_string().as_bytes()).unwrap();
        let mut upgraded: Value = serde_json::from_slice(&upgraded).unwrap();
        assert_eq!(upgraded["apiVersion"], V1);
        upgraded["spec"].take()
    }

    #[test]
    fn members_of_all_versions_are_those_of_each_version() {
        let spec = json!({
            "group": "e.com", "version": "v1", "preserveUnknownFields": false,
            "versions": [{"name": "v1", "served": true}, {"name": "v2", "served": false}],
            "validation": {"openAPIV3Schema": {"type": "object"}},
            "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Size", "JSONPath": ".size"}],
            "selectableFields": [{"jsonPath": ".size"}],
            "conversion": {"strategy": "None"},
        });
        let version = |name: &str, served| {
            json!({
                "name": name, "served": served, "schema": {"openAPIV3Schema": {"type": "object"}},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Size", "jsonPath": ".size"}],
                "selectableFields": [{"jsonPath": ".size"}],
            })
        };
        let expected = json!({
            "group": "e.com", "versions": [version("v1", true), version("v2", false)],
            "conversion": {"strategy": "None"},
        });
        assert_eq!(upgraded(spec), expected);
    }

    #[test]
    fn members_of_versions_are_kept() {
        let versions = json!([
            {"name": "v1", "additionalPrinterColumns": [{"name": "A", "JSONPath": ".a"}]},
            {"name": "v2", "schema": {"openAPIV3Schema": {}}},
        ]);
        let spec = json!({"version": "v1", "versions": versions, "preserveUnknownFields": true});
        let expected = json!({
            "preserveUnknownFields": true,
            "versions": [
                {"name": "v1", "additionalPrinterColumns": [{"name": "A", "jsonPath": ".a"}]},
                {"name": "v2", "schema": {"openAPIV3Schema": {}}},
            ],
        });
        assert_eq!(upgraded(spec), expected);
    }

    #[test]
    fn old_definitions_have_one_version_and_preserve_unknown_fields() {
        let expected = json!({
            "versions": [{"name": "v1", "served": true, "storage": true}],
            "preserveUnknownFields": true,
        });
        assert_eq!(upgraded(json!({"version": "v1"})), expected);
    }

    #[test]
    fn webhook_of_a_conversion_is_an_object() {
        let client = json!({"url": "https://a", "caBundle": "AA=="});
        let conversion = json!({
            "strategy": "Webhook", "webhookClientConfig": client, "conversionReviewVersions": ["v1"],
        });
        let webhook = json!({"clientConfig": client, "conversionReviewVersions": ["v1"]});
        assert_eq!(
            upgraded(json!({"conversion": conversion}))["conversion"],
            json!({"strategy": "Webhook", "webhook": webhook})
        );
    }

    #[test]
    fn other_values_are_unchanged() {
        let fields = json!({"managedFields": [{"apiVersion": V1BETA1}]});
        for stored in [
            json!({"apiVersion": V1, "metadata": fields}).to_string(),
            format!("{V1BETA1} x"),
        ] {
            assert_eq!(upgrade_stored(stored.as_bytes()), None);
        }
    }
}
